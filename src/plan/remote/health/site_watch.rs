//! The watch of one site: when the site may be used, and when it counts as down.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use super::condition::ConnectionHealth;
use super::fault::ConnectionFault;
use super::timing::{ClockReading, ConnectionTiming};
use crate::plan::remote::site::SiteState;

#[derive(Clone, Copy, Debug)]
enum SiteWatchState {
    /// The connection is down.
    Idle,
    /// The first watch on this connection is being opened; other sites wait for it at most until then.
    Opening { until: Instant },
    /// The initial list is complete.
    Synced,
    /// The watch was synced, and is being reopened; until then the site counts as up.
    Reopening { until: Instant },
    /// The watch failed, or did not open in time.
    Down,
}

/// The watch of one site.
#[derive(Clone, Debug)]
pub struct SiteWatchStateMachine {
    state: SiteWatchState,
    fault: ConnectionFault,
    unanswered_since: Option<Timestamp>,
}

impl Default for SiteWatchStateMachine {
    /// A site on a connection that is not up.
    fn default() -> Self {
        Self {
            state: SiteWatchState::Idle,
            fault: ConnectionFault::Connecting,
            unanswered_since: None,
        }
    }
}

impl SiteWatchStateMachine {
    /// The connection is up, and the watch is being opened. A site that was synced before counts as up for a while.
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

    /// The connection is lost, for the fault in `health`.
    pub fn lost(&mut self, health: &ConnectionHealth) {
        self.state = SiteWatchState::Idle;
        self.unanswered_since = health.unanswered_since;
        self.fault = health.fault.unwrap_or(ConnectionFault::Unreachable);
    }

    /// The initial list is complete.
    pub fn synced(&mut self) {
        if !matches!(self.state, SiteWatchState::Idle) {
            self.state = SiteWatchState::Synced;
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
            // The timer ends the grace period.
            SiteWatchState::Reopening { .. } if fault.is_passing() => {}
            SiteWatchState::Idle => {}
            SiteWatchState::Opening { .. }
            | SiteWatchState::Synced
            | SiteWatchState::Reopening { .. }
            | SiteWatchState::Down => {
                self.down(fault);
            }
        }
    }

    /// When [`SiteWatchStateMachine::wake`] is due.
    #[must_use]
    pub const fn due(&self) -> Option<Instant> {
        match self.state {
            SiteWatchState::Opening { until } | SiteWatchState::Reopening { until } => Some(until),
            SiteWatchState::Idle | SiteWatchState::Synced | SiteWatchState::Down => None,
        }
    }

    /// Counts the site as down if its watch took too long to open.
    pub fn wake(&mut self, now: ClockReading) {
        if self.due().is_some_and(|until| until <= now.at) {
            self.down(ConnectionFault::Unreachable);
        }
    }

    /// Whether other sites need not wait for this one any more.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        !matches!(
            self.state,
            SiteWatchState::Opening { .. } | SiteWatchState::Reopening { .. }
        )
    }

    /// Whether the initial list is complete, and the watch is open.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        matches!(self.state, SiteWatchState::Synced)
    }

    /// Why the site cannot be used; `None` where it can.
    #[must_use]
    pub const fn fault(&self) -> Option<ConnectionFault> {
        match self.state {
            SiteWatchState::Synced | SiteWatchState::Reopening { .. } => None,
            SiteWatchState::Idle | SiteWatchState::Opening { .. } | SiteWatchState::Down => Some(self.fault),
        }
    }

    /// State of the site.
    #[must_use]
    pub const fn site_state(&self) -> SiteState {
        match self.fault() {
            None => SiteState::Up,
            Some(fault) => SiteState::Down {
                reason: fault.reason(),
                unanswered_since: self.unanswered_since,
            },
        }
    }

    const fn down(&mut self, fault: ConnectionFault) {
        self.state = SiteWatchState::Down;
        (self.fault, self.unanswered_since) = (fault, None);
    }
}
