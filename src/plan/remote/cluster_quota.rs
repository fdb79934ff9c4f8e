//! The quota of tenants' clusters: so many places for each namespace and so many in all, given in the order of requests.
//!
//! A place in use is never taken away. The place of an invalid or unused kubeconfig is spare: it is handed over to a waiter, and
//! its former holder queues again if tasks still use it.

mod waiters;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::time::Instant;

use waiters::QuotaWaiters;

/// The holders of places, and the queue of waiters.
#[derive(Debug)]
pub struct ClusterQuota<K> {
    each: usize,
    all: usize,
    holders: HashMap<K, QuotaHolder>,
    /// Places taken by namespace.
    taken: HashMap<String, usize>,
    waiting: QuotaWaiters<K>,
}

#[derive(Debug)]
struct QuotaHolder {
    namespace: String,
    /// Time since which the place is spare.
    spare: Option<Instant>,
}

/// A place that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaHandover<K> {
    /// The former holder.
    pub gone: K,
    /// The new holder.
    pub next: K,
}

/// A spare place: since when, and of whom.
type SparePlace<'a, K> = (Instant, &'a K);

impl<K: Hash + Eq + Clone> ClusterQuota<K> {
    /// `each` places for a namespace, and `all` together.
    #[must_use]
    pub fn new(each: usize, all: usize) -> Self {
        Self {
            each,
            all,
            holders: HashMap::new(),
            taken: HashMap::new(),
            waiting: QuotaWaiters::new(),
        }
    }

    /// Requests a place for a namespace; returns whether the key has one. Without a place it queues, if it does not already: a spare
    /// place, which [`ClusterQuota::hand_over`] gives, may be due to one that came before.
    pub fn request(&mut self, namespace: &str, key: &K, now: Instant) -> bool {
        if self.has_place(key) {
            return true;
        }
        if !self.waiting.has(key) {
            if self.is_free(namespace) {
                self.assign(namespace, key);
                return true;
            }
            self.enqueue(namespace, key, now);
        }
        false
    }

    /// Whether a key has a place.
    #[must_use]
    pub fn has_place(&self, key: &K) -> bool {
        self.holders.contains_key(key)
    }

    /// Queues for a place, as the last waiter.
    pub fn enqueue(&mut self, namespace: &str, key: &K, not_before: Instant) {
        self.waiting.push(namespace, key, not_before);
    }

    /// Sets whether the place of a holder is spare.
    pub fn set_spare(&mut self, key: &K, is_spare: bool, now: Instant) {
        if let Some(holder) = self.holders.get_mut(key) {
            holder.spare = is_spare.then(|| holder.spare.unwrap_or(now));
        }
    }

    /// Hands the longest spare place over to the first waiter that may have it now.
    pub fn hand_over(&mut self, now: Instant) -> Option<QuotaHandover<K>> {
        self.waiting.wake(now);
        let spare = self.spare_places();
        let any = spare.values().min_by_key(|(since, _)| *since)?;
        let possible = self.waiting.first_due().filter_map(|(namespace, number)| {
            let is_full = self.taken_by(namespace) >= self.each;
            let place = if is_full { spare.get(namespace) } else { Some(any) };
            place.map(|(_, gone)| (number, *gone))
        });
        let (number, gone) = possible.min_by_key(|(number, _)| *number)?;
        let gone = gone.clone();
        let (namespace, next) = self.waiting.take(number)?;
        self.free(&gone);
        self.assign(&namespace, &next);
        Some(QuotaHandover { gone, next })
    }

    /// When [`ClusterQuota::hand_over`] may succeed only because time has passed.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        self.waiting.next_due(now)
    }

    /// Releases a place, or leaves the queue; returns the waiter that got the place.
    pub fn release(&mut self, key: &K) -> Option<K> {
        self.waiting.remove(key);
        if !self.free(key) {
            return None;
        }
        let firsts = self.waiting.first();
        let possible = firsts.filter(|(namespace, _)| self.is_free(namespace));
        let number = possible.map(|(_, number)| number).min()?;
        let (namespace, next) = self.waiting.take(number)?;
        self.assign(&namespace, &next);
        Some(next)
    }

    /// The longest spare place of each namespace.
    fn spare_places(&self) -> HashMap<&str, SparePlace<'_, K>> {
        let mut longest = HashMap::new();
        for (key, holder) in &self.holders {
            let Some(since) = holder.spare else { continue };
            match longest.entry(holder.namespace.as_str()) {
                Entry::Vacant(entry) => _ = entry.insert((since, key)),
                Entry::Occupied(mut entry) if entry.get().0 > since => _ = entry.insert((since, key)),
                Entry::Occupied(_) => {}
            }
        }
        longest
    }

    fn taken_by(&self, namespace: &str) -> usize {
        self.taken.get(namespace).copied().unwrap_or_default()
    }

    fn is_free(&self, namespace: &str) -> bool {
        self.taken_by(namespace) < self.each && self.holders.len() < self.all
    }

    fn assign(&mut self, namespace: &str, key: &K) {
        let holder = QuotaHolder {
            namespace: namespace.to_owned(),
            spare: None,
        };
        self.holders.insert(key.clone(), holder);
        *self.taken.entry(namespace.to_owned()).or_default() += 1;
    }

    /// Frees the place of a holder; returns whether it had one.
    fn free(&mut self, key: &K) -> bool {
        let Some(QuotaHolder { namespace, .. }) = self.holders.remove(key) else {
            return false;
        };
        if let Some(taken) = self.taken.get_mut(&namespace) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(&namespace);
            }
        }
        true
    }
}

#[cfg(test)]
#[path = "cluster_quota/tests.rs"]
mod tests;
