//! Waits that grow with each failure in a row, with a jitter, so that many objects do not retry at once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// An exponential back-off: the wait doubles with each failure in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// Longest first wait.
    pub base: Duration,
    /// Longest wait.
    pub cap: Duration,
}

impl BackoffPolicy {
    /// The back-off of a task or an object of the platform.
    pub const REQUEUE: Self = Self {
        base: Duration::from_secs(1),
        cap: Duration::from_secs(300),
    };
    /// The back-off of what rests on a registry: a chart that was not pushed, or not deleted.
    pub const CHART: Self = Self {
        base: Duration::from_secs(60),
        cap: Duration::from_secs(3_600),
    };

    /// The wait after so many failures in a row, of which the upper half is jitter that differs between seeds.
    #[must_use]
    pub fn wait(self, failures: u32, seed: &impl Hash) -> Duration {
        let full = self.longest_wait(failures);
        full.mul_f64(0.5 + 0.5 * share(seed, failures))
    }

    /// The wait after so many failures in a row, without jitter.
    #[must_use]
    pub fn longest_wait(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }
}

/// Failures in a row by key. A key without failures costs nothing.
#[derive(Debug)]
pub struct Backoff<K> {
    failures: HashMap<K, u32>,
}

impl<K> Default for Backoff<K> {
    fn default() -> Self {
        Self {
            failures: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Backoff<K> {
    /// Counts a failure; returns the wait of [`BackoffPolicy::REQUEUE`].
    pub fn failed(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        BackoffPolicy::REQUEUE.wait(*failures, key)
    }

    /// Forgets a key's failures.
    pub fn clear(&mut self, key: &K) {
        self.failures.remove(key);
    }
}

/// A number in 0…1 that differs between seeds and between the failures of one.
fn share(seed: &impl Hash, failures: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, failures).hash(&mut hasher);
    let thousandths = u16::try_from(hasher.finish() % 1000).unwrap_or(0);
    f64::from(thousandths) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_start_over_after_a_success() {
        let BackoffPolicy { base, cap } = BackoffPolicy::REQUEUE;
        let mut backoff = Backoff::default();
        for attempt in 0..40 {
            let full = cap.min(base * (1 << attempt.min(10)));
            let wait = backoff.failed(&"a");
            assert!(wait >= full / 2 && wait <= full, "{attempt}: {wait:?}");
        }
        backoff.clear(&"a");
        assert!(backoff.failed(&"a") <= base);
    }

    #[test]
    fn keys_do_not_retry_together() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|key| backoff.failed(&key)).collect();
        assert!(waits.iter().any(|w| *w != waits[0]), "{waits:?}");
    }
}
