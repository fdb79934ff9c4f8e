//! The quota of tenants' clusters: so many places for each namespace and so many in all, given in the order of requests.
//!
//! A place in use is never taken away. The place of an invalid or unused kubeconfig is spare: it is handed over to a waiter, and
//! its former holder queues again if tasks still use it.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Instant;

/// The holders of places, and the queue of waiters.
#[derive(Debug)]
pub struct ClusterQuota<K> {
    each: usize,
    all: usize,
    holders: HashMap<K, QuotaHolder>,
    /// Places taken by namespace.
    taken: HashMap<String, usize>,
    waiting: VecDeque<QuotaWaiter<K>>,
}

#[derive(Debug)]
struct QuotaHolder {
    namespace: String,
    /// Time since which the place is spare.
    spare: Option<Instant>,
}

#[derive(Debug)]
struct QuotaWaiter<K> {
    namespace: String,
    key: K,
    /// No spare place is handed over to it before; a free place is given earlier.
    not_before: Instant,
}

/// A place that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaHandover<K> {
    /// The former holder.
    pub gone: K,
    /// The new holder.
    pub next: K,
}

impl<K: Hash + Eq + Clone> ClusterQuota<K> {
    /// `each` places for a namespace, and `all` together.
    #[must_use]
    pub fn new(each: usize, all: usize) -> Self {
        Self {
            each,
            all,
            holders: HashMap::new(),
            taken: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Requests a place for a namespace; returns whether it got one, and the former holder. Without a place the key queues.
    pub fn request(&mut self, namespace: &str, key: &K, now: Instant) -> (bool, Option<K>) {
        if self.holders.contains_key(key) {
            return (true, None);
        }
        if self.waiting.iter().any(|waiting| waiting.key == *key) {
            return (false, None);
        }
        if self.is_free(namespace) {
            self.assign(namespace, key);
            return (true, None);
        }
        self.enqueue(namespace, key, now);
        let handover = self.hand_over(now);
        (handover.is_some(), handover.map(|handover| handover.gone))
    }

    /// Queues for a place, as the last waiter.
    pub fn enqueue(&mut self, namespace: &str, key: &K, not_before: Instant) {
        self.waiting.push_back(QuotaWaiter {
            namespace: namespace.to_owned(),
            key: key.clone(),
            not_before,
        });
    }

    /// Sets whether the place of a holder is spare.
    pub fn set_spare(&mut self, key: &K, is_spare: bool, now: Instant) {
        if let Some(holder) = self.holders.get_mut(key) {
            holder.spare = is_spare.then(|| holder.spare.unwrap_or(now));
        }
    }

    /// Hands the longest spare place over to the first waiter that may have it now.
    pub fn hand_over(&mut self, now: Instant) -> Option<QuotaHandover<K>> {
        let due = self.waiting.iter().enumerate();
        let mut due = due.filter(|(_, waiting)| waiting.not_before <= now);
        let (at, gone) = due.find_map(|(at, waiting)| Some((at, self.spare_for(&waiting.namespace)?)))?;
        let waiting = self.waiting.remove(at)?;
        self.free(&gone);
        self.assign(&waiting.namespace, &waiting.key);
        Some(QuotaHandover {
            gone,
            next: waiting.key,
        })
    }

    /// When [`ClusterQuota::hand_over`] may succeed only because time has passed.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let times = self.waiting.iter().map(|waiting| waiting.not_before);
        times.filter(|time| *time > now).min()
    }

    /// Releases a place, or leaves the queue; returns the waiter that got the place.
    pub fn release(&mut self, key: &K) -> Option<K> {
        self.waiting.retain(|waiting| waiting.key != *key);
        if !self.free(key) {
            return None;
        }
        let next = self
            .waiting
            .iter()
            .position(|waiting| self.is_free(&waiting.namespace))?;
        let next = self.waiting.remove(next)?;
        self.assign(&next.namespace, &next.key);
        Some(next.key)
    }

    /// The holder of the longest spare place that a namespace may take over.
    fn spare_for(&self, namespace: &str) -> Option<K> {
        let is_full = self.taken_by(namespace) >= self.each;
        let spare = self
            .holders
            .iter()
            .filter(|(_, holder)| !is_full || holder.namespace == namespace);
        let spare = spare.filter_map(|(key, holder)| Some((holder.spare?, key)));
        spare.min_by_key(|(since, _)| *since).map(|(_, key)| key.clone())
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
mod tests {
    use std::time::Duration;

    use super::*;

    /// Holds: K13.
    #[test]
    fn a_namespace_takes_no_place_of_another() {
        let (mut quota, now) = (ClusterQuota::new(5, 8), Instant::now());
        let mut request = |namespace: &str, key: &i32| quota.request(namespace, key, now).0;
        let flood: Vec<bool> = (0..5_000).map(|n| request("flood", &n)).collect();
        assert!(flood[..5].iter().all(|given| *given) && !flood[5..].iter().any(|given| *given));
        assert!(request("quiet", &9_001) && request("quiet", &9_002));
        assert!(request("late", &9_003));
        assert!(!request("later", &9_004), "all are taken");
        assert!(
            request("quiet", &9_001) && request("flood", &0),
            "a holder keeps its place"
        );
        assert!(!request("flood", &17), "asking again does not help");
    }

    #[test]
    fn a_free_place_goes_to_the_first_waiter_within_its_quota() {
        let (mut quota, now) = (ClusterQuota::new(2, 3), Instant::now());
        for (namespace, key) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("b", 6)] {
            quota.request(namespace, &key, now);
        }
        assert_eq!(quota.release(&3), Some(5), "a has its two");
        assert_eq!(quota.release(&1), Some(4));
        assert_eq!(quota.release(&6), None, "it only waited");
        assert_eq!(quota.release(&5), None);
        assert_eq!(quota.release(&5), None, "once is enough");
        assert!(quota.request("d", &7, now).0 && !quota.request("d", &8, now).0);
    }

    /// Holds: K13, B34.
    #[test]
    fn a_spare_place_is_handed_over_and_one_in_use_is_not() {
        let (mut quota, now) = (ClusterQuota::new(2, 3), Instant::now());
        let later = now + Duration::from_secs(300);
        for (namespace, key) in [("a", 1), ("a", 2), ("b", 3)] {
            assert_eq!(quota.request(namespace, &key, now), (true, None));
        }
        assert_eq!(
            (quota.request("a", &4, now), quota.due(now)),
            ((false, None), None)
        );
        quota.set_spare(&3, true, now);
        assert_eq!(
            quota.hand_over(now),
            None,
            "a place of another namespace does not raise its own limit"
        );
        assert_eq!(
            quota.request("c", &5, now),
            (true, Some(3)),
            "but it can be taken over where all are taken"
        );
        // A former holder queues again, and waits longer than a key that had no place yet.
        quota.set_spare(&2, true, now);
        assert_eq!(quota.hand_over(now), Some(QuotaHandover { gone: 2, next: 4 }));
        quota.enqueue("a", &2, later);
        quota.set_spare(&4, true, now);
        assert_eq!((quota.hand_over(now), quota.due(now)), (None, Some(later)));
        assert_eq!(quota.hand_over(later), Some(QuotaHandover { gone: 4, next: 2 }));
        // A place that is in use again is not handed over.
        quota.set_spare(&2, true, later);
        quota.set_spare(&2, false, later);
        assert_eq!(quota.request("a", &6, later), (false, None));
        // A free place is given at once.
        quota.enqueue("b", &7, later + Duration::from_secs(9));
        assert_eq!(quota.release(&5), Some(7));
    }
}
