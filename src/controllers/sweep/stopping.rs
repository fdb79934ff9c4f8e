//! The end of a sweep with that of the hub.

use tokio_util::sync::CancellationToken;

/// What is to be removed or taken over, as long as the hub does not stop: the next instance waits for its Lease, and finds the rest by a
/// sweep.
pub fn unless_stopped<T>(all: Vec<T>, stop: &CancellationToken) -> impl Iterator<Item = T> {
    all.into_iter().take_while(|_| !stop.is_cancelled())
}
