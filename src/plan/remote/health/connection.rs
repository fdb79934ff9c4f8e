//! One connection: when to connect, when to probe, and when it is lost.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use super::condition::{ConnectionHealth, ConnectionPhase};
use super::event::{ConnectionAction, ConnectionEvent};
use super::fault::ConnectionFault;
use super::timing::{ClockReading, ConnectionTiming};
use super::version::KubernetesVersion;

#[derive(Clone, Copy, Debug)]
enum ConnectionState {
    /// Down until the next attempt, whose time the status shows.
    Waiting {
        not_before: Instant,
        next_attempt: Timestamp,
    },
    /// Down, and an attempt is in flight.
    Trying,
    /// Up, and probed at that time; if a loss is suspected, one missed probe is enough.
    Up { probe_at: Instant, is_suspect: bool },
    /// Up, and a probe is in flight; `is_stale` after a change of the token, which its refusal does not concern.
    Probing {
        started: Instant,
        is_suspect: bool,
        is_stale: bool,
    },
    /// Up on the old connection; an attempt for the new one is due at once.
    Replacing,
    /// Up on the old connection; an attempt for the new one is in flight.
    Swapping,
}

impl ConnectionState {
    fn probe(now: ClockReading) -> Self {
        Self::Up {
            probe_at: now.at,
            is_suspect: false,
        }
    }

    fn wait(now: ClockReading, wait: Duration) -> Self {
        Self::Waiting {
            not_before: now.at + wait,
            next_attempt: now.wall.checked_add(wait).unwrap_or(now.wall),
        }
    }
}

/// Whether the Secret was read again since the credential last worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CredentialReread {
    No,
    /// A read was requested; the connection waits for it until then.
    Until(Instant),
    /// The Secret was read again, without success.
    InVain,
}

/// One connection to a cluster.
#[derive(Clone, Debug)]
pub struct ConnectionStateMachine {
    timing: ConnectionTiming,
    seed: u64,
    state: ConnectionState,
    reread: CredentialReread,
    fault: Option<ConnectionFault>,
    misses: u32,
    /// Attempts that the back-off counts.
    attempts: u32,
    /// Attempts that the status shows: since the loss, with this kubeconfig.
    attempts_shown: u32,
    /// Losses by unanswered calls since the last answered call, the time of the first, and whether it is lost by them now.
    stalls: u32,
    stalled: Option<Timestamp>,
    is_stalled: bool,
    version: Option<KubernetesVersion>,
    last_probe: Option<Timestamp>,
}

impl ConnectionStateMachine {
    /// A connection that was never up, and so counts as lost from now on; the seed spreads its attempts.
    #[must_use]
    pub fn new(timing: ConnectionTiming, seed: u64, now: ClockReading) -> Self {
        Self {
            timing,
            seed,
            state: ConnectionState::wait(now, Duration::ZERO),
            reread: CredentialReread::No,
            fault: Some(ConnectionFault::Connecting),
            misses: 0,
            attempts: 0,
            attempts_shown: 0,
            stalls: 0,
            stalled: None,
            is_stalled: false,
            version: None,
            last_probe: None,
        }
    }

    /// Name of the state, for a log.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match self.state {
            ConnectionState::Waiting { .. } if matches!(self.fault, Some(ConnectionFault::Connecting)) => {
                "new"
            }
            ConnectionState::Waiting { .. } => "lost",
            ConnectionState::Trying => "connecting",
            ConnectionState::Up { is_suspect: true, .. }
            | ConnectionState::Probing { is_suspect: true, .. } => "suspected",
            ConnectionState::Up { .. } | ConnectionState::Probing { .. } => "connected",
            ConnectionState::Replacing | ConnectionState::Swapping => "replacing",
        }
    }

    /// Whether it is up.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        !matches!(
            self.state,
            ConnectionState::Waiting { .. } | ConnectionState::Trying
        )
    }

    /// Whether an attempt or a probe is in flight, so that an event with its result follows.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(
            self.state,
            ConnectionState::Trying | ConnectionState::Probing { .. } | ConnectionState::Swapping
        )
    }

    /// Whether a probe is in flight; a change of the token does not abort it.
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        matches!(self.state, ConnectionState::Probing { .. })
    }

    /// When [`ConnectionStateMachine::wake`] is due; `None` where only a result is awaited.
    #[must_use]
    pub fn due(&self, now: ClockReading) -> Option<Instant> {
        let own = match self.state {
            ConnectionState::Waiting { not_before, .. } => Some(not_before),
            ConnectionState::Up { probe_at, .. } => Some(probe_at),
            ConnectionState::Replacing => Some(now.at),
            ConnectionState::Trying | ConnectionState::Probing { .. } | ConnectionState::Swapping => None,
        };
        let answer = match self.reread {
            CredentialReread::Until(until) => Some(until),
            CredentialReread::No | CredentialReread::InVain => None,
        };
        own.into_iter().chain(answer).min()
    }

    /// The action that is due now, if there is one.
    pub fn wake(&mut self, now: ClockReading) -> Option<ConnectionAction> {
        if let CredentialReread::Until(until) = self.reread
            && until <= now.at
        {
            self.give_up_credential(now);
        }
        match self.state {
            ConnectionState::Waiting { not_before, .. } if not_before <= now.at => {
                self.state = ConnectionState::Trying;
                self.attempts = self.attempts.saturating_add(1);
                self.attempts_shown = self.attempts_shown.saturating_add(1);
                Some(ConnectionAction::Connect)
            }
            ConnectionState::Replacing => {
                self.state = ConnectionState::Swapping;
                Some(ConnectionAction::Connect)
            }
            ConnectionState::Up { probe_at, is_suspect } if probe_at <= now.at => {
                self.state = ConnectionState::Probing {
                    started: now.at,
                    is_suspect,
                    is_stale: false,
                };
                Some(ConnectionAction::Probe)
            }
            _ => None,
        }
    }

    /// Handles an event; the result of an action that is not in flight any more changes nothing.
    pub fn handle(&mut self, event: ConnectionEvent, now: ClockReading) {
        match (event, self.state) {
            (ConnectionEvent::Connected(version), ConnectionState::Trying | ConnectionState::Swapping) => {
                self.connected(version, now);
            }
            (ConnectionEvent::Failed(fault), ConnectionState::Trying | ConnectionState::Swapping) => {
                self.failed(fault, now);
            }
            (
                ConnectionEvent::Answered | ConnectionEvent::Missed(ConnectionFault::Unauthorized),
                ConnectionState::Probing { is_stale: true, .. },
            ) => {
                self.state = ConnectionState::probe(now);
            }
            (ConnectionEvent::Answered, ConnectionState::Probing { started, .. }) => {
                self.answered(started, now);
            }
            (
                ConnectionEvent::Missed(fault),
                ConnectionState::Probing {
                    started, is_suspect, ..
                },
            ) => {
                self.missed(fault, started, is_suspect, now);
            }
            (ConnectionEvent::SuspectedLoss, _) => self.suspect_loss(now),
            (ConnectionEvent::Unanswered(calls), _) => self.unanswered(calls, now),
            (ConnectionEvent::TokenRotated, state) => self.restart_attempts(state, now),
            (ConnectionEvent::KubeconfigReplaced, state) => {
                self.restart_attempts(state, now);
                if self.is_up() {
                    self.state = ConnectionState::Replacing;
                }
            }
            (ConnectionEvent::KubeconfigUnchanged, _)
                if matches!(self.reread, CredentialReread::Until(_)) =>
            {
                self.give_up_credential(now);
            }
            _ => {}
        }
    }

    /// Health of the connection.
    #[must_use]
    pub fn health(&self) -> ConnectionHealth {
        let next_attempt = match self.state {
            ConnectionState::Waiting { next_attempt, .. } => Some(next_attempt),
            _ => None,
        };
        let phase = match self.fault {
            None => ConnectionPhase::Up,
            Some(ConnectionFault::Connecting) => ConnectionPhase::Connecting,
            Some(_) => ConnectionPhase::Lost,
        };
        ConnectionHealth {
            phase,
            fault: self.fault,
            unanswered_since: self.stalled.filter(|_| self.is_stalled),
            version: self.version,
            last_probe: self.last_probe,
            attempts: self.attempts_shown,
            next_attempt,
            wants_reread: matches!(self.reread, CredentialReread::Until(_)),
        }
    }

    fn connected(&mut self, version: KubernetesVersion, now: ClockReading) {
        self.version = Some(version);
        (self.fault, self.is_stalled) = (None, false);
        (self.attempts, self.attempts_shown) = (0, 0);
        self.answered(now.at, now);
    }

    fn answered(&mut self, started: Instant, now: ClockReading) {
        self.misses = 0;
        self.reread = CredentialReread::No;
        self.last_probe = Some(now.wall);
        self.probe_later(started, now);
    }

    fn probe_later(&mut self, started: Instant, now: ClockReading) {
        let probe_at = self.timing.on_beat(started + self.timing.probe_every).max(now.at);
        self.state = ConnectionState::Up {
            probe_at,
            is_suspect: false,
        };
    }

    fn failed(&mut self, fault: ConnectionFault, now: ClockReading) {
        if fault == ConnectionFault::Unauthorized && self.reread == CredentialReread::No {
            self.reread = CredentialReread::Until(now.at + self.timing.reread);
        }
        if self.is_up() {
            (self.attempts, self.attempts_shown) = (1, 1);
        }
        self.lose(fault, now);
    }

    fn missed(&mut self, fault: ConnectionFault, started: Instant, is_suspect: bool, now: ClockReading) {
        match fault {
            // A cluster that answers with a refusal is alive.
            ConnectionFault::Forbidden => self.answered(started, now),
            ConnectionFault::Unauthorized if self.reread == CredentialReread::No => {
                self.reread = CredentialReread::Until(now.at + self.timing.reread);
                self.probe_later(started, now);
            }
            // The refused credential is refused again while the Secret is read, which changes nothing.
            ConnectionFault::Unauthorized if matches!(self.reread, CredentialReread::Until(_)) => {
                self.probe_later(started, now);
            }
            ConnectionFault::Unauthorized => self.give_up_credential(now),
            _ => {
                self.misses = self.misses.saturating_add(1);
                if is_suspect || self.misses >= self.timing.misses {
                    self.lose(fault, now);
                } else {
                    self.probe_later(started, now);
                }
            }
        }
    }

    fn suspect_loss(&mut self, now: ClockReading) {
        match &mut self.state {
            ConnectionState::Up { probe_at, is_suspect } => {
                *is_suspect = true;
                // While the Secret is read again, a refusal of the old credential is expected.
                if !matches!(self.reread, CredentialReread::Until(_)) {
                    *probe_at = now.at;
                }
            }
            ConnectionState::Probing { is_suspect, .. } => *is_suspect = true,
            ConnectionState::Waiting { .. }
            | ConnectionState::Trying
            | ConnectionState::Replacing
            | ConnectionState::Swapping => {}
        }
    }

    /// A cluster that answers probes and no calls counts as lost. Until a call is answered, its attempts back off, and the loss
    /// counts from the first time.
    fn unanswered(&mut self, calls: u32, now: ClockReading) {
        if calls == 0 {
            (self.stalls, self.stalled) = (0, None);
        } else if !self.is_up() {
            // The calls were sent before the loss.
        } else if calls >= self.timing.unanswered {
            self.stalled.get_or_insert(now.wall);
            (self.is_stalled, self.attempts) = (true, self.stalls.saturating_add(1));
            self.lose(ConnectionFault::Unreachable, now);
            self.stalls = self.stalls.saturating_add(1);
            self.attempts = 0;
        } else {
            self.suspect_loss(now);
        }
    }

    /// A new credential is tried at once, but does not reset the back-off.
    fn restart_attempts(&mut self, state: ConnectionState, now: ClockReading) {
        if matches!(self.reread, CredentialReread::Until(_)) {
            self.reread = CredentialReread::InVain;
        }
        self.attempts_shown = 0;
        self.state = match state {
            ConnectionState::Waiting { .. } | ConnectionState::Trying => {
                ConnectionState::wait(now, Duration::ZERO)
            }
            ConnectionState::Up { .. } => ConnectionState::probe(now),
            // The probe is not aborted: API servers treat many aborted requests as an attack.
            ConnectionState::Probing {
                started, is_suspect, ..
            } => ConnectionState::Probing {
                started,
                is_suspect,
                is_stale: true,
            },
            ConnectionState::Replacing | ConnectionState::Swapping => ConnectionState::Replacing,
        };
    }

    fn give_up_credential(&mut self, now: ClockReading) {
        self.reread = CredentialReread::InVain;
        if self.is_up() {
            self.lose(ConnectionFault::Unauthorized, now);
        }
    }

    fn lose(&mut self, fault: ConnectionFault, now: ClockReading) {
        self.fault = Some(fault);
        self.misses = 0;
        let wait = self.timing.backoff.wait(self.attempts, &self.seed);
        self.state = ConnectionState::wait(now, wait);
    }
}
