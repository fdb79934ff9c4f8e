//! What a pass over a task pays for its calls to a cluster before it begins, so that none of it waits while others could work.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::state::RemoteClient;

/// Calls that are paid for in advance: the most that a pass makes where nothing is in its way, which reads a Job and its pods
/// and deletes the Job and its Secret. What it does not use is given back; a further call waits as any other.
pub(super) const CALLS_OF_PASS: u32 = 4;
/// Pause before it is tried again where all calls at a time are under way: about one round trip.
pub(super) const NO_TURN: Duration = Duration::from_millis(50);

/// A turn, and calls that are paid for.
pub(in crate::remote) struct CallReservation {
    link: RemoteClient,
    calls: AtomicU32,
    _turn: OwnedSemaphorePermit,
}

impl fmt::Debug for CallReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fare")
    }
}

impl CallReservation {
    pub(super) fn new(link: RemoteClient, calls: u32, turn: OwnedSemaphorePermit) -> Self {
        Self {
            link,
            calls: AtomicU32::new(calls),
            _turn: turn,
        }
    }

    /// Whether a call over this link is paid for; it is used up by that.
    pub(super) fn pays(&self, link: &RemoteClient) -> bool {
        let pay = |calls: u32| calls.checked_sub(1);
        self.link.is(link)
            && self
                .calls
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay)
                .is_ok()
    }
}

impl Drop for CallReservation {
    fn drop(&mut self) {
        self.link.give_back(*self.calls.get_mut());
    }
}
