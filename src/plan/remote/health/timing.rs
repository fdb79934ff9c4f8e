//! Intervals and deadlines of a connection, and its clocks.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::plan::queue::backoff::BackoffPolicy;

/// The same moment by the monotonic clock and by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// For timers.
    pub at: Instant,
    /// For statuses, logs and the ledger.
    pub wall: Timestamp,
}

/// Intervals and deadlines.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTiming {
    /// From the start of a probe to the start of the next. `remote::limits` takes the deadlines of a probe
    /// and of a ping from it.
    pub probe_every: Duration,
    /// Probes start on multiples of it, so that probes of many clusters wake the hub together; zero allows any time.
    pub tick: Duration,
    /// Start of the first tick; the same for all connections.
    pub origin: Instant,
    /// Probes in a row without an answer after which a connection is lost.
    pub misses: u32,
    /// Calls in a row without an answer in time after which a connection is lost, even if probes are answered; after such a loss
    /// one more is enough, until a call is answered.
    pub unanswered: u32,
    /// Longest wait for the Secret to be read again, after the cluster refused the credential.
    pub reread: Duration,
    /// Waits between attempts to connect.
    pub backoff: BackoffPolicy,
    /// Longest that a site counts as up without its watch.
    pub rewatch: Duration,
    /// Longest that the sites of a new connection wait for the slowest of them.
    pub settle: Duration,
}

impl ConnectionTiming {
    /// The timing of a production hub, with ticks from `origin` on.
    #[must_use]
    pub const fn since(origin: Instant) -> Self {
        Self {
            probe_every: Duration::from_secs(10),
            tick: Duration::from_secs(1),
            origin,
            misses: 5,
            unanswered: 3,
            reread: Duration::from_secs(5),
            backoff: BackoffPolicy {
                base: Duration::from_secs(5),
                cap: Duration::from_secs(320),
            },
            rewatch: Duration::from_secs(5),
            settle: Duration::from_secs(20),
        }
    }

    /// The last tick that is not after `at`.
    #[must_use]
    pub fn on_beat(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.origin).as_nanos();
        let late = since.checked_rem(self.tick.as_nanos()).unwrap_or_default();
        let late = u64::try_from(late).map(Duration::from_nanos).unwrap_or_default();
        at.checked_sub(late).unwrap_or(at)
    }
}
