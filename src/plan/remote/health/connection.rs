//! One connection: when to try, when to probe, and when it is lost.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use super::{Fault, Health, Moment, Phase, Timing, Version};

/// What is to be done next; its outcome is told by [`Connection::heard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Todo {
    /// Connect, and ask what is asked once.
    Connect,
    /// Probe.
    Probe,
}

/// What became of something, or came from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The attempt to connect came through, to a cluster of this version.
    Connected(Version),
    /// The attempt failed.
    Failed(Fault),
    /// The probe was answered.
    Answered,
    /// The probe was not, or with a refusal.
    Missed(Fault),
    /// Something else than a probe ended as on a broken connection, or with a refused credential.
    Doubt,
    /// So many calls in a row ran out of time, whatever probes say; with 0 one was answered since.
    Unanswered(u32),
    /// The kubeconfig has another token, which requests carry from now on. An attempt that was under way does not count; a
    /// probe goes on.
    Token,
    /// The kubeconfig leads elsewhere, or proves who the hub is in another way; nothing that was under way counts.
    Replaced,
    /// The Secret was read once more, and holds the same.
    Same,
}

#[derive(Clone, Copy, Debug)]
enum State {
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

impl State {
    fn probe(now: Moment) -> Self {
        Self::Up {
            probe_at: now.at,
            in_doubt: false,
        }
    }

    fn wait(now: Moment, wait: Duration) -> Self {
        Self::Waiting {
            not_before: now.at + wait,
            told: now.wall.checked_add(wait).unwrap_or(now.wall),
        }
    }
}

/// Whether the Secret was asked for since the credential worked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    No,
    /// It was, and the answer is waited for until then.
    Until(Instant),
    /// It was, and that did not help.
    InVain,
}

/// One connection to a cluster.
#[derive(Clone, Debug)]
pub struct Connection {
    timing: Timing,
    seed: u64,
    state: State,
    asked: Asked,
    since: Option<Timestamp>,
    fault: Option<Fault>,
    misses: u32,
    /// Attempts by which the waits grow.
    attempts: u32,
    /// Those of them that are told: since the loss, with this kubeconfig.
    told: u32,
    /// Times that it was lost for calls that were not answered, since one was, and when that was first.
    stalls: u32,
    stalled: Option<Timestamp>,
    version: Option<Version>,
    last_probe: Option<Timestamp>,
}

impl Connection {
    /// One that never stood, and so is lost from now on; the seed spreads its attempts.
    #[must_use]
    pub fn new(timing: Timing, seed: u64, now: Moment) -> Self {
        Self {
            timing,
            seed,
            state: State::wait(now, Duration::ZERO),
            asked: Asked::No,
            since: Some(now.wall),
            fault: Some(Fault::Connecting),
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
            State::Waiting { .. } if matches!(self.fault, Some(Fault::Connecting)) => "new",
            State::Waiting { .. } => "lost",
            State::Trying => "connecting",
            State::Up { in_doubt: true, .. } | State::Probing { in_doubt: true, .. } => "doubted",
            State::Up { .. } | State::Probing { .. } => "connected",
            State::Replacing | State::Swapping => "replacing",
        }
    }

    /// Whether it stands.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        !matches!(self.state, State::Waiting { .. } | State::Trying)
    }

    /// Whether an attempt or a probe is under way, so that its outcome will be told.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        matches!(
            self.state,
            State::Trying | State::Probing { .. } | State::Swapping
        )
    }

    /// Whether a probe is under way, which another token leaves so.
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        matches!(self.state, State::Probing { .. })
    }

    /// When [`Connection::wake`] has something to do; `None` where only an outcome is waited for.
    #[must_use]
    pub fn due(&self, now: Moment) -> Option<Instant> {
        let own = match self.state {
            State::Waiting { not_before, .. } => Some(not_before),
            State::Up { probe_at, .. } => Some(probe_at),
            State::Replacing => Some(now.at),
            State::Trying | State::Probing { .. } | State::Swapping => None,
        };
        let answer = match self.asked {
            Asked::Until(until) => Some(until),
            Asked::No | Asked::InVain => None,
        };
        own.into_iter().chain(answer).min()
    }

    /// What is to be done now, if anything.
    pub fn wake(&mut self, now: Moment) -> Option<Todo> {
        if let Asked::Until(until) = self.asked
            && until <= now.at
        {
            self.refused_for_good(now);
        }
        match self.state {
            State::Waiting { not_before, .. } if not_before <= now.at => {
                self.state = State::Trying;
                self.attempts = self.attempts.saturating_add(1);
                self.told = self.told.saturating_add(1);
                Some(Todo::Connect)
            }
            State::Replacing => {
                self.state = State::Swapping;
                Some(Todo::Connect)
            }
            State::Up { probe_at, in_doubt } if probe_at <= now.at => {
                self.state = State::Probing {
                    started: now.at,
                    in_doubt,
                    is_stale: false,
                };
                Some(Todo::Probe)
            }
            _ => None,
        }
    }

    /// Takes in what became of something; an outcome of what is not under way any more changes nothing.
    pub fn heard(&mut self, heard: Heard, now: Moment) {
        match (heard, self.state) {
            (Heard::Connected(version), State::Trying | State::Swapping) => self.connected(version, now),
            (Heard::Failed(fault), State::Trying | State::Swapping) => self.failed(fault, now),
            (Heard::Answered | Heard::Missed(Fault::Unauthorized), State::Probing { is_stale: true, .. }) => {
                self.state = State::probe(now);
            }
            (Heard::Answered, State::Probing { started, .. }) => self.answered(started, now),
            (
                Heard::Missed(fault),
                State::Probing {
                    started, in_doubt, ..
                },
            ) => {
                self.missed(fault, started, in_doubt, now);
            }
            (Heard::Doubt, _) => self.doubt(now),
            (Heard::Unanswered(calls), _) => self.unanswered(calls, now),
            (Heard::Token, state) => self.renewed(state, now),
            (Heard::Replaced, state) => {
                self.renewed(state, now);
                if self.is_up() {
                    self.state = State::Replacing;
                }
            }
            (Heard::Same, _) if matches!(self.asked, Asked::Until(_)) => self.refused_for_good(now),
            _ => {}
        }
    }

    /// What is known of it.
    #[must_use]
    pub fn health(&self) -> Health {
        let next_attempt = match self.state {
            State::Waiting { told, .. } => Some(told),
            _ => None,
        };
        let phase = match self.fault {
            None => Phase::Up,
            Some(Fault::Connecting) => Phase::Connecting,
            Some(_) => Phase::Lost,
        };
        Health {
            phase,
            fault: self.fault,
            since: self.since,
            version: self.version,
            last_probe: self.last_probe,
            attempts: self.told,
            next_attempt,
            reread: matches!(self.asked, Asked::Until(_)),
        }
    }

    fn connected(&mut self, version: Version, now: Moment) {
        self.version = Some(version);
        self.since = None;
        self.fault = None;
        (self.attempts, self.told) = (0, 0);
        self.answered(now.at, now);
    }

    fn answered(&mut self, started: Instant, now: Moment) {
        self.misses = 0;
        self.asked = Asked::No;
        self.last_probe = Some(now.wall);
        self.probe_later(started, now);
    }

    fn probe_later(&mut self, started: Instant, now: Moment) {
        let probe_at = self.timing.on_beat(started + self.timing.probe_every).max(now.at);
        self.state = State::Up {
            probe_at,
            in_doubt: false,
        };
    }

    fn failed(&mut self, fault: Fault, now: Moment) {
        if fault == Fault::Unauthorized && self.asked == Asked::No {
            self.asked = Asked::Until(now.at + self.timing.reread);
        }
        if self.is_up() {
            (self.attempts, self.told) = (1, 1);
        }
        self.lose(fault, now);
    }

    fn missed(&mut self, fault: Fault, started: Instant, in_doubt: bool, now: Moment) {
        match fault {
            // Who answers that something is forbidden is alive.
            Fault::Forbidden => self.answered(started, now),
            Fault::Unauthorized if self.asked == Asked::No => {
                self.asked = Asked::Until(now.at + self.timing.reread);
                self.probe_later(started, now);
            }
            // The same credential is refused once more, while the Secret is read: no news.
            Fault::Unauthorized if matches!(self.asked, Asked::Until(_)) => self.probe_later(started, now),
            Fault::Unauthorized => self.refused_for_good(now),
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

    fn doubt(&mut self, now: Moment) {
        match &mut self.state {
            State::Up { probe_at, in_doubt } => {
                *in_doubt = true;
                // While the Secret is read anew, the old credential's refusal is no news.
                if !matches!(self.asked, Asked::Until(_)) {
                    *probe_at = now.at;
                }
            }
            State::Probing { in_doubt, .. } => *in_doubt = true,
            State::Waiting { .. } | State::Trying | State::Replacing | State::Swapping => {}
        }
    }

    /// A cluster that answers probes and does no work is as good as down. What was lost so is tried less and less often, and
    /// counts as lost since the first time, until a call is answered.
    fn unanswered(&mut self, calls: u32, now: Moment) {
        if calls == 0 {
            (self.stalls, self.stalled) = (0, None);
        } else if !self.is_up() {
            // Of before the loss.
        } else if calls >= self.timing.unanswered {
            let since = *self.stalled.get_or_insert(now.wall);
            (self.since, self.attempts) = (Some(since), self.stalls.saturating_add(1));
            self.lose(Fault::Unreachable, now);
            self.stalls = self.stalls.saturating_add(1);
            self.attempts = 0;
        } else {
            self.doubt(now);
        }
    }

    /// Another credential deserves an attempt at once, but no fresh start of the waits.
    fn renewed(&mut self, state: State, now: Moment) {
        if matches!(self.asked, Asked::Until(_)) {
            self.asked = Asked::InVain;
        }
        self.told = 0;
        self.state = match state {
            State::Waiting { .. } | State::Trying => State::wait(now, Duration::ZERO),
            State::Up { .. } => State::probe(now),
            // Not given up: servers take many requests that are given up for an attack.
            State::Probing {
                started, in_doubt, ..
            } => State::Probing {
                started,
                in_doubt,
                is_stale: true,
            },
            State::Replacing | State::Swapping => State::Replacing,
        };
    }

    fn refused_for_good(&mut self, now: Moment) {
        self.asked = Asked::InVain;
        if self.is_up() {
            self.lose(Fault::Unauthorized, now);
        }
    }

    fn lose(&mut self, fault: Fault, now: Moment) {
        self.since.get_or_insert(now.wall);
        self.fault = Some(fault);
        self.misses = 0;
        let failures = self.attempts.saturating_sub(1);
        let wait = self.timing.wait(failures, self.seed);
        self.state = State::wait(now, wait);
    }
}
