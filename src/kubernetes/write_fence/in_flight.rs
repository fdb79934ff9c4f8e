//! The writes of one connection: with one of them in flight it breaks when the Lease is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;

use super::fence::{FenceClosed, WriteFence, only_reads};

/// The writes in flight on one connection, whose last bytes may still wait in the process. Clones count together.
///
/// The body of a write is checked when the connection takes it; what the connection has taken it sends when it can, also after a
/// pause of the whole process. Only reads go on without the Lease.
#[derive(Clone, Debug)]
pub struct WritesInFlight {
    fence: WriteFence,
    writes: Arc<AtomicUsize>,
}

/// One request in flight. If it is cancelled without the Lease, its connection sends nothing any more until the hub holds it
/// again.
#[derive(Debug)]
pub struct InFlightRequest {
    of: WritesInFlight,
    is_write: bool,
    is_over: bool,
}

impl WritesInFlight {
    /// For one new connection.
    #[must_use]
    pub fn new(gate: WriteFence) -> Self {
        let writes = Arc::default();
        Self { fence: gate, writes }
    }

    /// Counts a request of this method before the connection takes it.
    #[must_use]
    pub fn begin(&self, method: &Method) -> InFlightRequest {
        let is_write = !only_reads(method);
        if is_write {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        InFlightRequest {
            of: self.clone(),
            is_write,
            is_over: false,
        }
    }

    /// Whether the socket of the connection may send.
    ///
    /// # Errors
    /// [`FenceClosed`] while a write is in flight without the Lease.
    pub fn admit(&self) -> Result<(), FenceClosed> {
        match self.writes.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => self.fence.admit(),
        }
    }
}

impl InFlightRequest {
    /// Says that it was answered, or that nothing of it waits to be sent.
    pub fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let leaves_nothing = self.is_over || self.of.fence.admit().is_ok();
        if self.is_write && leaves_nothing {
            self.of.writes.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::tests::with_claim;
    use super::*;

    #[test]
    fn without_the_lease_a_connection_sends_only_while_it_carries_no_write() {
        let (gate, renewed) = with_claim();
        let (busy, idle) = (WritesInFlight::new(gate.clone()), WritesInFlight::new(gate));
        let (write, read) = (busy.begin(&Method::POST), idle.begin(&Method::GET));
        assert_eq!((busy.admit(), idle.admit()), (Ok(()), Ok(())));
        renewed.send_replace(Instant::now());
        assert_eq!((busy.admit(), idle.admit()), (Err(FenceClosed), Ok(())));
        write.over();
        assert_eq!(busy.admit(), Ok(()), "it was answered");
        drop(read);
    }

    #[test]
    fn a_write_that_is_cancelled_without_the_lease_counts_on() {
        let (gate, renewed) = with_claim();
        let connection = WritesInFlight::new(gate);
        drop(connection.begin(&Method::DELETE));
        let later = connection.begin(&Method::DELETE);
        renewed.send_replace(Instant::now());
        drop(later);
        assert_eq!(connection.admit(), Err(FenceClosed), "its bytes may wait still");
        renewed.send_replace(Instant::now() + Duration::from_secs(60));
        assert_eq!(connection.admit(), Ok(()));
    }
}
