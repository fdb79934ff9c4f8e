//! The watch of one site on a connection that stands: when the site may be used, and when it is to be given up.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use super::condition::ConnectionHealth;
use super::fault::ConnectionFault;
use super::timing::{ClockReading, ConnectionTiming};
use crate::plan::remote::site::SiteState;

#[derive(Clone, Copy, Debug)]
enum SiteWatchState {
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
pub struct SiteWatchStateMachine {
    state: SiteWatchState,
    since: Option<Timestamp>,
    fault: ConnectionFault,
}

impl SiteWatchStateMachine {
    /// Of a site on a connection that does not stand, or not yet.
    #[must_use]
    pub const fn new(now: ClockReading) -> Self {
        Self {
            state: SiteWatchState::Idle,
            since: Some(now.wall),
            fault: ConnectionFault::Connecting,
        }
    }

    /// A connection stands: the watch is being opened. What was synced on the one before stays up for a while.
    pub fn open(&mut self, timing: &ConnectionTiming, now: ClockReading) {
        self.state = match self.state {
            SiteWatchState::Synced | SiteWatchState::Reopening { .. } => SiteWatchState::Reopening {
                until: now.at + timing.rewatch,
            },
            SiteWatchState::Idle | SiteWatchState::Opening { .. } | SiteWatchState::Down => {
                SiteWatchState::Opening {
                    until: now.at + timing.settle,
                }
            }
        };
    }

    /// The connection is lost, since then and for that reason.
    pub fn lost(&mut self, health: &ConnectionHealth, now: ClockReading) {
        self.state = SiteWatchState::Idle;
        let since = health.since.unwrap_or(now.wall);
        self.since = Some(self.since.map_or(since, |own| own.min(since)));
        self.fault = health.fault.unwrap_or(ConnectionFault::Unreachable);
    }

    /// Every Job was seen.
    pub fn synced(&mut self) {
        if !matches!(self.state, SiteWatchState::Idle) {
            self.state = SiteWatchState::Synced;
            self.since = None;
        }
    }

    /// The watch ended for this reason, or could not be opened.
    pub fn ended(&mut self, fault: ConnectionFault, timing: &ConnectionTiming, now: ClockReading) {
        match self.state {
            SiteWatchState::Synced if fault.is_passing() => {
                self.state = SiteWatchState::Reopening {
                    until: now.at + timing.rewatch,
                };
            }
            // Not had within the grace: the timer decides.
            SiteWatchState::Reopening { .. } if fault.is_passing() => {}
            SiteWatchState::Idle => {}
            SiteWatchState::Opening { .. }
            | SiteWatchState::Synced
            | SiteWatchState::Reopening { .. }
            | SiteWatchState::Down => {
                self.down(fault, now);
            }
        }
    }

    /// When [`SiteWatchStateMachine::wake`] has something to do.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        match self.state {
            SiteWatchState::Opening { until } | SiteWatchState::Reopening { until } => Some(until),
            SiteWatchState::Idle | SiteWatchState::Synced | SiteWatchState::Down => None,
        }
    }

    /// Gives up what took too long.
    pub fn wake(&mut self, now: ClockReading) {
        if self.due().is_some_and(|until| until <= now.at) {
            self.down(ConnectionFault::Unreachable, now);
        }
    }

    /// Whether the others need not wait for it any more.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        !matches!(
            self.state,
            SiteWatchState::Opening { .. } | SiteWatchState::Reopening { .. }
        )
    }

    /// Whether every Job was seen, and the watch stands.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        matches!(self.state, SiteWatchState::Synced)
    }

    /// What keeps the site from being used; `None` where nothing does.
    #[must_use]
    pub const fn fault(&self) -> Option<ConnectionFault> {
        match self.state {
            SiteWatchState::Synced | SiteWatchState::Reopening { .. } => None,
            SiteWatchState::Idle | SiteWatchState::Opening { .. } | SiteWatchState::Down => Some(self.fault),
        }
    }

    /// How the site stands.
    #[must_use]
    pub fn site_state(&self, now: ClockReading) -> SiteState {
        match self.fault() {
            None => SiteState::Up,
            Some(fault) => SiteState::Down {
                since: self.since.unwrap_or(now.wall),
                reason: fault.reason(),
            },
        }
    }

    fn down(&mut self, fault: ConnectionFault, now: ClockReading) {
        self.state = SiteWatchState::Down;
        self.fault = fault;
        self.since.get_or_insert(now.wall);
    }
}
