//! How long things take on a connection, by which clock.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

/// One moment by both clocks: the one that never jumps for waiting, the other for telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// For timers.
    pub at: Instant,
    /// For people, and for what outlives the hub.
    pub wall: Timestamp,
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTiming {
    /// From the start of a probe to the start of the next.
    pub probe_every: Duration,
    /// Probes start on multiples of it, so that those of many clusters wake the hub together; zero is any time.
    pub beat: Duration,
    /// What the beats are counted from; the same for all connections.
    pub origin: Instant,
    /// Probes in a row without an answer after which a connection is lost.
    pub misses: u32,
    /// Calls in a row that are not answered in time after which it is lost too, whatever it says to probes; once it was lost so,
    /// one more is enough until a call is answered.
    pub unanswered: u32,
    /// Longest wait for the Secret to be read anew, after the cluster refused what was read before.
    pub reread: Duration,
    /// First wait between two attempts to connect; doubled each time.
    pub backoff: Duration,
    /// Longest wait between two attempts.
    pub backoff_cap: Duration,
    /// Longest that a site counts as up without its watch.
    pub rewatch: Duration,
    /// Longest that the sites of a new connection wait for the slowest of them.
    pub settle: Duration,
}

impl ConnectionTiming {
    /// What a hub runs with, whose beats are counted from there.
    #[must_use]
    pub const fn since(origin: Instant) -> Self {
        Self {
            probe_every: Duration::from_secs(10),
            beat: Duration::from_secs(1),
            origin,
            misses: 5,
            unanswered: 3,
            reread: Duration::from_secs(5),
            backoff: Duration::from_secs(5),
            backoff_cap: Duration::from_secs(320),
            rewatch: Duration::from_secs(5),
            settle: Duration::from_secs(20),
        }
    }

    /// The last beat that is not later.
    #[must_use]
    pub fn on_beat(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.origin).as_nanos();
        let late = since.checked_rem(self.beat.as_nanos()).unwrap_or_default();
        let late = u64::try_from(late).map(Duration::from_nanos).unwrap_or_default();
        at.checked_sub(late).unwrap_or(at)
    }

    /// How long to wait after so many failures, spread over the upper half so that many do not come back at once.
    #[must_use]
    pub fn wait(&self, failures: u32, seed: u64) -> Duration {
        let full = self
            .backoff
            .saturating_mul(1 << failures.min(16))
            .min(self.backoff_cap);
        full.mul_f64(0.5 + 0.5 * share(seed, failures))
    }
}

/// A number in 0…1 that differs between seeds and between the attempts of one.
fn share(seed: u64, failures: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, failures).hash(&mut hasher);
    let thousandths = u16::try_from(hasher.finish() % 1000).unwrap_or_default();
    f64::from(thousandths) / 1000.0
}
