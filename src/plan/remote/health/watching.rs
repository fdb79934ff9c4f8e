//! The watch of one site on a connection that stands: when the site may be used, and when it is to be given up.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use crate::plan::remote::site::SiteState;

use super::{Fault, Health, Moment, Timing};

#[derive(Clone, Copy, Debug)]
enum State {
    /// No connection stands.
    Idle,
    /// The first watch on this connection is being opened; the others need not wait longer than until then.
    Opening { until: Instant },
    /// Every Job was seen.
    Synced,
    /// It was synced, and is being opened anew; until then the site counts as up.
    Reopening { until: Instant },
    /// It is not to be had, for the time being.
    Down,
}

/// The watch of one site.
#[derive(Clone, Debug)]
pub struct Watching {
    state: State,
    since: Option<Timestamp>,
    fault: Fault,
}

impl Watching {
    /// Of a site on a connection that does not stand, or not yet.
    #[must_use]
    pub const fn new(now: Moment) -> Self {
        Self {
            state: State::Idle,
            since: Some(now.wall),
            fault: Fault::Connecting,
        }
    }

    /// A connection stands: the watch is being opened. What was synced on the one before stays up for a while.
    pub fn open(&mut self, timing: &Timing, now: Moment) {
        self.state = match self.state {
            State::Synced | State::Reopening { .. } => State::Reopening {
                until: now.at + timing.rewatch,
            },
            State::Idle | State::Opening { .. } | State::Down => State::Opening {
                until: now.at + timing.settle,
            },
        };
    }

    /// The connection is lost, since then and for that reason.
    pub fn lost(&mut self, health: &Health, now: Moment) {
        self.state = State::Idle;
        let since = health.since.unwrap_or(now.wall);
        self.since = Some(self.since.map_or(since, |own| own.min(since)));
        self.fault = health.fault.unwrap_or(Fault::Unreachable);
    }

    /// Every Job was seen.
    pub fn synced(&mut self) {
        if !matches!(self.state, State::Idle) {
            self.state = State::Synced;
            self.since = None;
        }
    }

    /// The watch ended for this reason, or could not be opened.
    pub fn ended(&mut self, fault: Fault, timing: &Timing, now: Moment) {
        match self.state {
            State::Synced if fault.is_passing() => {
                self.state = State::Reopening {
                    until: now.at + timing.rewatch,
                };
            }
            // Not had within the grace: the timer decides.
            State::Reopening { .. } if fault.is_passing() => {}
            State::Idle => {}
            State::Opening { .. } | State::Synced | State::Reopening { .. } | State::Down => {
                self.down(fault, now);
            }
        }
    }

    /// When [`Watching::wake`] has something to do.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        match self.state {
            State::Opening { until } | State::Reopening { until } => Some(until),
            State::Idle | State::Synced | State::Down => None,
        }
    }

    /// Gives up what took too long.
    pub fn wake(&mut self, now: Moment) {
        if self.due().is_some_and(|until| until <= now.at) {
            self.down(Fault::Unreachable, now);
        }
    }

    /// Whether the others need not wait for it any more.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        !matches!(self.state, State::Opening { .. } | State::Reopening { .. })
    }

    /// Whether every Job was seen, and the watch stands.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        matches!(self.state, State::Synced)
    }

    /// What keeps the site from being used; `None` where nothing does.
    #[must_use]
    pub const fn fault(&self) -> Option<Fault> {
        match self.state {
            State::Synced | State::Reopening { .. } => None,
            State::Idle | State::Opening { .. } | State::Down => Some(self.fault),
        }
    }

    /// How the site stands.
    #[must_use]
    pub fn standing(&self, now: Moment) -> SiteState {
        match self.fault() {
            None => SiteState::Up,
            Some(fault) => SiteState::Down {
                since: self.since.unwrap_or(now.wall),
                reason: fault.reason(),
            },
        }
    }

    fn down(&mut self, fault: Fault, now: Moment) {
        self.state = State::Down;
        self.fault = fault;
        self.since.get_or_insert(now.wall);
    }
}
