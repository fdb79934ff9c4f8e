//! One connection: when to try, when to probe, and when it is lost.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use super::condition::{ConnectionHealth, ConnectionPhase};
use super::event::{ConnectionAction, ConnectionEvent};
use super::fault::ConnectionFault;
use super::timing::{ClockReading, ConnectionTiming};
use super::version::KubernetesVersion;

#[derive(Clone, Copy, Debug)]
enum ConnectionState {
    /// Down until then, which is told as that time.
    Waiting { not_before: Instant, told: Timestamp },
    /// Down, and an attempt is under way.
    Trying,
    /// Up, and probed at that time; a doubt makes one miss enough.
    Up { probe_at: Instant, in_doubt: bool },
    /// Up, and a probe is under way; with another token meanwhile, its refusal is none of that token's.
    Probing {
        started: Instant,
        in_doubt: bool,
        is_stale: bool,
    },
    /// Up on the old connection; the new one is tried at once.
    Replacing,
    /// Up on the old connection, while the new one is tried.
    Swapping,
}

impl ConnectionState {
    fn probe(now: ClockReading) -> Self {
        Self::Up {
            probe_at: now.at,
            in_doubt: false,
        }
    }

    fn wait(now: ClockReading, wait: Duration) -> Self {
        Self::Waiting {
            not_before: now.at + wait,
            told: now.wall.checked_add(wait).unwrap_or(now.wall),
        }
    }
}

/// Whether the Secret was asked for since the credential worked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CredentialReread {
    No,
    /// It was, and the answer is waited for until then.
    Until(Instant),
    /// It was, and that did not help.
    InVain,
}

/// One connection to a cluster.
#[derive(Clone, Debug)]
pub struct ConnectionStateMachine {
    timing: ConnectionTiming,
    seed: u64,
    state: ConnectionState,
    asked: CredentialReread,
    since: Option<Timestamp>,
    fault: Option<ConnectionFault>,
    misses: u32,
    /// Attempts by which the waits grow.
    attempts: u32,
    /// Those of them that are told: since the loss, with this kubeconfig.
    told: u32,
    /// Times that it was lost for calls that were not answered, since one was, and when that was first.
    stalls: u32,
    stalled: Option<Timestamp>,
    version: Option<KubernetesVersion>,
    last_probe: Option<Timestamp>,
}

impl ConnectionStateMachine {
    /// One that never stood, and so is lost from now on; the seed spreads its attempts.
    #[must_use]
    pub fn new(timing: ConnectionTiming, seed: u64, now: ClockReading) -> Self {
        Self {
            timing,
            seed,
            state: ConnectionState::wait(now, Duration::ZERO),
            asked: CredentialReread::No,
            since: Some(now.wall),
            fault: Some(ConnectionFault::Connecting),
            misses: 0,
            attempts: 0,
            told: 0,
            stalls: 0,
            stalled: None,
            version: None,
            last_probe: None,
        }
    }

    /// Where it stands in a word, for a log.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match self.state {
            ConnectionState::Waiting { .. } if matches!(self.fault, Some(ConnectionFault::Connecting)) => {
                "new"
            }
            ConnectionState::Waiting { .. } => "lost",
            ConnectionState::Trying => "connecting",
            ConnectionState::Up { in_doubt: true, .. } | ConnectionState::Probing { in_doubt: true, .. } => {
                "doubted"
            }
            ConnectionState::Up { .. } | ConnectionState::Probing { .. } => "connected",
            ConnectionState::Replacing | ConnectionState::Swapping => "replacing",
        }
    }

    /// Whether it stands.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        !matches!(
            self.state,
            ConnectionState::Waiting { .. } | ConnectionState::Trying
        )
    }

    /// Whether an attempt or a probe is under way, so that its outcome will be told.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(
            self.state,
            ConnectionState::Trying | ConnectionState::Probing { .. } | ConnectionState::Swapping
        )
    }

    /// Whether a probe is under way, which another token leaves so.
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        matches!(self.state, ConnectionState::Probing { .. })
    }

    /// When [`ConnectionStateMachine::wake`] has something to do; `None` where only an outcome is waited for.
    #[must_use]
    pub fn due(&self, now: ClockReading) -> Option<Instant> {
        let own = match self.state {
            ConnectionState::Waiting { not_before, .. } => Some(not_before),
            ConnectionState::Up { probe_at, .. } => Some(probe_at),
            ConnectionState::Replacing => Some(now.at),
            ConnectionState::Trying | ConnectionState::Probing { .. } | ConnectionState::Swapping => None,
        };
        let answer = match self.asked {
            CredentialReread::Until(until) => Some(until),
            CredentialReread::No | CredentialReread::InVain => None,
        };
        own.into_iter().chain(answer).min()
    }

    /// What is to be done now, if anything.
    pub fn wake(&mut self, now: ClockReading) -> Option<ConnectionAction> {
        if let CredentialReread::Until(until) = self.asked
            && until <= now.at
        {
            self.refused_for_good(now);
        }
        match self.state {
            ConnectionState::Waiting { not_before, .. } if not_before <= now.at => {
                self.state = ConnectionState::Trying;
                self.attempts = self.attempts.saturating_add(1);
                self.told = self.told.saturating_add(1);
                Some(ConnectionAction::Connect)
            }
            ConnectionState::Replacing => {
                self.state = ConnectionState::Swapping;
                Some(ConnectionAction::Connect)
            }
            ConnectionState::Up { probe_at, in_doubt } if probe_at <= now.at => {
                self.state = ConnectionState::Probing {
                    started: now.at,
                    in_doubt,
                    is_stale: false,
                };
                Some(ConnectionAction::Probe)
            }
            _ => None,
        }
    }

    /// Takes in what became of something; an outcome of what is not under way any more changes nothing.
    pub fn handle(&mut self, heard: ConnectionEvent, now: ClockReading) {
        match (heard, self.state) {
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
                    started, in_doubt, ..
                },
            ) => {
                self.missed(fault, started, in_doubt, now);
            }
            (ConnectionEvent::SuspectedLoss, _) => self.doubt(now),
            (ConnectionEvent::Unanswered(calls), _) => self.unanswered(calls, now),
            (ConnectionEvent::Token, state) => self.renewed(state, now),
            (ConnectionEvent::Replaced, state) => {
                self.renewed(state, now);
                if self.is_up() {
                    self.state = ConnectionState::Replacing;
                }
            }
            (ConnectionEvent::Same, _) if matches!(self.asked, CredentialReread::Until(_)) => {
                self.refused_for_good(now);
            }
            _ => {}
        }
    }

    /// What is known of it.
    #[must_use]
    pub fn health(&self) -> ConnectionHealth {
        let next_attempt = match self.state {
            ConnectionState::Waiting { told, .. } => Some(told),
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
            since: self.since,
            version: self.version,
            last_probe: self.last_probe,
            attempts: self.told,
            next_attempt,
            reread: matches!(self.asked, CredentialReread::Until(_)),
        }
    }

    fn connected(&mut self, version: KubernetesVersion, now: ClockReading) {
        self.version = Some(version);
        self.since = None;
        self.fault = None;
        (self.attempts, self.told) = (0, 0);
        self.answered(now.at, now);
    }

    fn answered(&mut self, started: Instant, now: ClockReading) {
        self.misses = 0;
        self.asked = CredentialReread::No;
        self.last_probe = Some(now.wall);
        self.probe_later(started, now);
    }

    fn probe_later(&mut self, started: Instant, now: ClockReading) {
        let probe_at = self.timing.on_beat(started + self.timing.probe_every).max(now.at);
        self.state = ConnectionState::Up {
            probe_at,
            in_doubt: false,
        };
    }

    fn failed(&mut self, fault: ConnectionFault, now: ClockReading) {
        if fault == ConnectionFault::Unauthorized && self.asked == CredentialReread::No {
            self.asked = CredentialReread::Until(now.at + self.timing.reread);
        }
        if self.is_up() {
            (self.attempts, self.told) = (1, 1);
        }
        self.lose(fault, now);
    }

    fn missed(&mut self, fault: ConnectionFault, started: Instant, in_doubt: bool, now: ClockReading) {
        match fault {
            // Who answers that something is forbidden is alive.
            ConnectionFault::Forbidden => self.answered(started, now),
            ConnectionFault::Unauthorized if self.asked == CredentialReread::No => {
                self.asked = CredentialReread::Until(now.at + self.timing.reread);
                self.probe_later(started, now);
            }
            // The same credential is refused once more, while the Secret is read: no news.
            ConnectionFault::Unauthorized if matches!(self.asked, CredentialReread::Until(_)) => {
                self.probe_later(started, now);
            }
            ConnectionFault::Unauthorized => self.refused_for_good(now),
            _ => {
                self.misses = self.misses.saturating_add(1);
                if in_doubt || self.misses >= self.timing.misses {
                    self.lose(fault, now);
                } else {
                    self.probe_later(started, now);
                }
            }
        }
    }

    fn doubt(&mut self, now: ClockReading) {
        match &mut self.state {
            ConnectionState::Up { probe_at, in_doubt } => {
                *in_doubt = true;
                // While the Secret is read anew, the old credential's refusal is no news.
                if !matches!(self.asked, CredentialReread::Until(_)) {
                    *probe_at = now.at;
                }
            }
            ConnectionState::Probing { in_doubt, .. } => *in_doubt = true,
            ConnectionState::Waiting { .. }
            | ConnectionState::Trying
            | ConnectionState::Replacing
            | ConnectionState::Swapping => {}
        }
    }

    /// A cluster that answers probes and does no work is as good as down. What was lost so is tried less and less often, and
    /// counts as lost since the first time, until a call is answered.
    fn unanswered(&mut self, calls: u32, now: ClockReading) {
        if calls == 0 {
            (self.stalls, self.stalled) = (0, None);
        } else if !self.is_up() {
            // Of before the loss.
        } else if calls >= self.timing.unanswered {
            let since = *self.stalled.get_or_insert(now.wall);
            (self.since, self.attempts) = (Some(since), self.stalls.saturating_add(1));
            self.lose(ConnectionFault::Unreachable, now);
            self.stalls = self.stalls.saturating_add(1);
            self.attempts = 0;
        } else {
            self.doubt(now);
        }
    }

    /// Another credential deserves an attempt at once, but no fresh start of the waits.
    fn renewed(&mut self, state: ConnectionState, now: ClockReading) {
        if matches!(self.asked, CredentialReread::Until(_)) {
            self.asked = CredentialReread::InVain;
        }
        self.told = 0;
        self.state = match state {
            ConnectionState::Waiting { .. } | ConnectionState::Trying => {
                ConnectionState::wait(now, Duration::ZERO)
            }
            ConnectionState::Up { .. } => ConnectionState::probe(now),
            // Not given up: servers take many requests that are given up for an attack.
            ConnectionState::Probing {
                started, in_doubt, ..
            } => ConnectionState::Probing {
                started,
                in_doubt,
                is_stale: true,
            },
            ConnectionState::Replacing | ConnectionState::Swapping => ConnectionState::Replacing,
        };
    }

    fn refused_for_good(&mut self, now: ClockReading) {
        self.asked = CredentialReread::InVain;
        if self.is_up() {
            self.lose(ConnectionFault::Unauthorized, now);
        }
    }

    fn lose(&mut self, fault: ConnectionFault, now: ClockReading) {
        self.since.get_or_insert(now.wall);
        self.fault = Some(fault);
        self.misses = 0;
        let failures = self.attempts.saturating_sub(1);
        let wait = self.timing.wait(failures, self.seed);
        self.state = ConnectionState::wait(now, wait);
    }
}
