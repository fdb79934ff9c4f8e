//! Reserves the calls of a reconcile to a cluster before it begins, so that it holds no worker while it waits for the rate limit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::state::RemoteClient;

/// Calls that are reserved in advance: the most that a reconcile without retries makes, which reads a Job and its pods and
/// deletes the Job and its Secret. Unused calls are given back; a further call waits as any other.
pub(super) const CALLS_PER_RECONCILE: u32 = 4;
/// Pause before the next try where all call slots are taken: about one round trip.
pub(super) const NO_SLOT_PAUSE: Duration = Duration::from_millis(50);

/// A call slot, and calls that the rate limiter has admitted already.
pub(in crate::remote) struct CallReservation {
    client: RemoteClient,
    calls: AtomicU32,
    _slot: OwnedSemaphorePermit,
}

impl CallReservation {
    pub(super) fn new(client: RemoteClient, calls: u32, slot: OwnedSemaphorePermit) -> Self {
        Self {
            client,
            calls: AtomicU32::new(calls),
            _slot: slot,
        }
    }

    /// Takes one reserved call for this client; `false` where none is left, or the reservation is for another client.
    pub(super) fn take_call(&self, client: &RemoteClient) -> bool {
        let take = |calls: u32| calls.checked_sub(1);
        self.client.is(client)
            && self
                .calls
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
    }
}

impl Drop for CallReservation {
    fn drop(&mut self) {
        self.client.give_back(*self.calls.get_mut());
    }
}
