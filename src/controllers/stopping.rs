//! The end of long lists of writes with that of the hub.

use tokio_util::sync::CancellationToken;

/// What is to be written, removed or taken over, as long as the hub does not stop: the next instance waits for its Lease, and finds the
/// rest by itself.
pub fn unless_stopped<T>(
    all: impl IntoIterator<Item = T>,
    stop: &CancellationToken,
) -> impl Iterator<Item = T> {
    all.into_iter().take_while(|_| !stop.is_cancelled())
}
