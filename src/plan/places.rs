//! How many clusters tenants may have: so many a namespace and so many in all, in the order in which they came.
//!
//! Nobody who has a place loses it to somebody who comes later.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Who has a place, and who waits for one.
#[derive(Debug)]
pub struct Places<K> {
    each: usize,
    all: usize,
    holders: HashSet<K>,
    /// Places taken by namespace.
    taken: HashMap<String, usize>,
    waiting: VecDeque<(String, K)>,
}

impl<K: Hash + Eq + Clone> Places<K> {
    /// `each` places for a namespace, and `all` together.
    #[must_use]
    pub fn new(each: usize, all: usize) -> Self {
        Self {
            each,
            all,
            holders: HashSet::new(),
            taken: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Asks for a place for a namespace; whether there is one. Who gets none waits for it.
    pub fn ask(&mut self, namespace: &str, key: &K) -> bool {
        if self.holders.contains(key) {
            return true;
        }
        if self.waiting.iter().any(|(_, waiting)| waiting == key) {
            return false;
        }
        let is_free = self.is_free(namespace);
        if is_free {
            self.seat(namespace, key);
        } else {
            self.waiting.push_back((namespace.to_owned(), key.clone()));
        }
        is_free
    }

    /// Gives a place up, or the wait for it; who gets one by it.
    pub fn leave(&mut self, namespace: &str, key: &K) -> Option<K> {
        self.waiting.retain(|(_, waiting)| waiting != key);
        if !self.holders.remove(key) {
            return None;
        }
        if let Some(taken) = self.taken.get_mut(namespace) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(namespace);
            }
        }
        let next = self.waiting.iter().position(|(of, _)| self.is_free(of))?;
        let (of, next) = self.waiting.remove(next)?;
        self.seat(&of, &next);
        Some(next)
    }

    fn is_free(&self, namespace: &str) -> bool {
        let taken = self.taken.get(namespace).copied().unwrap_or_default();
        taken < self.each && self.holders.len() < self.all
    }

    fn seat(&mut self, namespace: &str, key: &K) {
        self.holders.insert(key.clone());
        *self.taken.entry(namespace.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds: K13.
    #[test]
    fn one_namespace_takes_no_place_of_another() {
        let mut places = Places::new(5, 8);
        let flood: Vec<bool> = (0..5_000).map(|n| places.ask("flood", &n)).collect();
        assert!(flood[..5].iter().all(|given| *given) && !flood[5..].iter().any(|given| *given));
        assert!(places.ask("quiet", &9_001) && places.ask("quiet", &9_002));
        assert!(places.ask("late", &9_003));
        assert!(!places.ask("later", &9_004), "all are taken");
        assert!(
            places.ask("quiet", &9_001) && places.ask("flood", &0),
            "who has a place keeps it"
        );
        assert!(!places.ask("flood", &17), "asking again helps nobody");
    }

    #[test]
    fn who_waits_longest_and_may_have_it_gets_what_is_left() {
        let mut places = Places::new(2, 3);
        for (namespace, key) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("b", 6)] {
            places.ask(namespace, &key);
        }
        assert_eq!(places.leave("b", &3), Some(5), "a has its two");
        assert_eq!(places.leave("a", &1), Some(4));
        assert_eq!(places.leave("b", &6), None, "it only waited");
        assert_eq!(places.leave("c", &5), None);
        assert_eq!(places.leave("c", &5), None, "once is enough");
        assert!(places.ask("d", &7) && !places.ask("d", &8));
    }
}
