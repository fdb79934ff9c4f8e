//! Waits that grow with each failure of one key, spread so that many keys do not come back at once.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// First wait.
const BASE: Duration = Duration::from_secs(1);
/// Longest wait.
const CAP: Duration = Duration::from_secs(300);

/// Failed attempts by key. A key without failures costs nothing.
#[derive(Debug)]
pub struct Backoff<K> {
    attempts: HashMap<K, u32>,
}

impl<K> Default for Backoff<K> {
    fn default() -> Self {
        Self {
            attempts: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Backoff<K> {
    /// Counts a failure and says how long to wait: 1 s doubled each time up to 300 s, spread over its upper half.
    pub fn failed(&mut self, key: &K) -> Duration {
        let attempts = self.attempts.entry(key.clone()).or_insert(0);
        *attempts = attempts.saturating_add(1);
        let full = BASE.saturating_mul(1 << (*attempts - 1).min(16)).min(CAP);
        full.mul_f64(0.5 + 0.5 * share(key, *attempts))
    }

    /// Forgets a key's failures.
    pub fn clear(&mut self, key: &K) {
        self.attempts.remove(key);
    }
}

/// A number in 0…1 that differs between keys and between the attempts of one.
fn share<K: Hash>(key: &K, attempt: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (key, attempt).hash(&mut hasher);
    let thousandths = u16::try_from(hasher.finish() % 1000).unwrap_or(0);
    f64::from(thousandths) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_start_over_after_a_success() {
        let mut backoff = Backoff::default();
        for attempt in 0..40 {
            let full = CAP.min(BASE * (1 << attempt.min(10)));
            let wait = backoff.failed(&"a");
            assert!(wait >= full / 2 && wait <= full, "{attempt}: {wait:?}");
        }
        backoff.clear(&"a");
        assert!(backoff.failed(&"a") <= BASE);
    }

    #[test]
    fn keys_do_not_come_back_together() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|key| backoff.failed(&key)).collect();
        assert!(waits.iter().any(|w| *w != waits[0]), "{waits:?}");
    }
}
