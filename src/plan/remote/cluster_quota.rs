//! How many clusters tenants may have: so many a namespace and so many in all, in the order in which they came.
//!
//! Who uses a place does not lose it to who comes later. One that leads nowhere, or that no task is for, is spare: it gives way to
//! who waits, and where it is still wanted, it waits for another turn.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Instant;

/// Who has a place, and who waits for one.
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
    /// Since when the place is spare.
    spare: Option<Instant>,
}

#[derive(Debug)]
struct QuotaWaiter<K> {
    namespace: String,
    key: K,
    /// No holder gives way to it before; a place that is free is had earlier.
    not_before: Instant,
}

/// Who got a place from whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaHandover<K> {
    /// Who gave way.
    pub gone: K,
    /// Who has the place now.
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

    /// Asks for a place for a namespace; whether there is one, and who gave way for it. Who gets none waits for it.
    pub fn ask(&mut self, namespace: &str, key: &K, now: Instant) -> (bool, Option<K>) {
        if self.holders.contains_key(key) {
            return (true, None);
        }
        if self.waiting.iter().any(|waiting| waiting.key == *key) {
            return (false, None);
        }
        if self.is_free(namespace) {
            self.seat(namespace, key);
            return (true, None);
        }
        self.wait(namespace, key, now);
        let turn = self.hand_over(now);
        (turn.is_some(), turn.map(|turn| turn.gone))
    }

    /// Waits for a place, behind all who wait.
    pub fn wait(&mut self, namespace: &str, key: &K, not_before: Instant) {
        self.waiting.push_back(QuotaWaiter {
            namespace: namespace.to_owned(),
            key: key.clone(),
            not_before,
        });
    }

    /// Says whether a place is of use to who has it.
    pub fn mark(&mut self, key: &K, is_spare: bool, now: Instant) {
        if let Some(holder) = self.holders.get_mut(key) {
            holder.spare = is_spare.then(|| holder.spare.unwrap_or(now));
        }
    }

    /// Lets the first who may have it now take the place that is spare for longest.
    pub fn hand_over(&mut self, now: Instant) -> Option<QuotaHandover<K>> {
        let due = self.waiting.iter().enumerate();
        let mut due = due.filter(|(_, waiting)| waiting.not_before <= now);
        let (at, gone) = due.find_map(|(at, waiting)| Some((at, self.spare_for(&waiting.namespace)?)))?;
        let waiting = self.waiting.remove(at)?;
        self.rise(&gone);
        self.seat(&waiting.namespace, &waiting.key);
        Some(QuotaHandover {
            gone,
            next: waiting.key,
        })
    }

    /// When [`ClusterQuota::hand_over`] may have something to do only because time has passed.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let times = self.waiting.iter().map(|waiting| waiting.not_before);
        times.filter(|time| *time > now).min()
    }

    /// Gives a place up, or the wait for it; who gets one by it.
    pub fn leave(&mut self, key: &K) -> Option<K> {
        self.waiting.retain(|waiting| waiting.key != *key);
        if !self.rise(key) {
            return None;
        }
        let next = self
            .waiting
            .iter()
            .position(|waiting| self.is_free(&waiting.namespace))?;
        let next = self.waiting.remove(next)?;
        self.seat(&next.namespace, &next.key);
        Some(next.key)
    }

    /// Whose place makes room for one of a namespace.
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

    fn seat(&mut self, namespace: &str, key: &K) {
        let holder = QuotaHolder {
            namespace: namespace.to_owned(),
            spare: None,
        };
        self.holders.insert(key.clone(), holder);
        *self.taken.entry(namespace.to_owned()).or_default() += 1;
    }

    /// Whether it had a place, which is free then.
    fn rise(&mut self, key: &K) -> bool {
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
    fn one_namespace_takes_no_place_of_another() {
        let (mut places, now) = (ClusterQuota::new(5, 8), Instant::now());
        let mut ask = |namespace: &str, key: &i32| places.ask(namespace, key, now).0;
        let flood: Vec<bool> = (0..5_000).map(|n| ask("flood", &n)).collect();
        assert!(flood[..5].iter().all(|given| *given) && !flood[5..].iter().any(|given| *given));
        assert!(ask("quiet", &9_001) && ask("quiet", &9_002));
        assert!(ask("late", &9_003));
        assert!(!ask("later", &9_004), "all are taken");
        assert!(
            ask("quiet", &9_001) && ask("flood", &0),
            "who has a place keeps it"
        );
        assert!(!ask("flood", &17), "asking again does not help");
    }

    #[test]
    fn who_waits_longest_and_may_have_it_gets_what_is_left() {
        let (mut places, now) = (ClusterQuota::new(2, 3), Instant::now());
        for (namespace, key) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("b", 6)] {
            places.ask(namespace, &key, now);
        }
        assert_eq!(places.leave(&3), Some(5), "a has its two");
        assert_eq!(places.leave(&1), Some(4));
        assert_eq!(places.leave(&6), None, "it only waited");
        assert_eq!(places.leave(&5), None);
        assert_eq!(places.leave(&5), None, "once is enough");
        assert!(places.ask("d", &7, now).0 && !places.ask("d", &8, now).0);
    }

    /// Holds: K13, B34.
    #[test]
    fn a_place_of_no_use_gives_way_and_one_in_use_does_not() {
        let (mut places, now) = (ClusterQuota::new(2, 3), Instant::now());
        let later = now + Duration::from_secs(300);
        for (namespace, key) in [("a", 1), ("a", 2), ("b", 3)] {
            assert_eq!(places.ask(namespace, &key, now), (true, None));
        }
        assert_eq!((places.ask("a", &4, now), places.due(now)), ((false, None), None));
        places.mark(&3, true, now);
        assert_eq!(
            places.hand_over(now),
            None,
            "the place of another namespace is no room in its own"
        );
        assert_eq!(
            places.ask("c", &5, now),
            (true, Some(3)),
            "but it is where all are taken"
        );
        // One that leads nowhere waits for another turn, and for longer than those who had none.
        places.mark(&2, true, now);
        assert_eq!(places.hand_over(now), Some(QuotaHandover { gone: 2, next: 4 }));
        places.wait("a", &2, later);
        places.mark(&4, true, now);
        assert_eq!((places.hand_over(now), places.due(now)), (None, Some(later)));
        assert_eq!(places.hand_over(later), Some(QuotaHandover { gone: 4, next: 2 }));
        // What is of use again is no room for others.
        places.mark(&2, true, later);
        places.mark(&2, false, later);
        assert_eq!(places.ask("a", &6, later), (false, None));
        // A place that is free is had at once.
        places.wait("b", &7, later + Duration::from_secs(9));
        assert_eq!(places.leave(&5), Some(7));
    }
}
