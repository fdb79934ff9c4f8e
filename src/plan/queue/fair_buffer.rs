//! A bounded buffer that namespaces fill and empty in turn, so that a namespace with many entries displaces none that has few.
//!
//! Pure; a step costs O(1) while there is space, and O(n) of the namespaces that wait where there is none.

use std::collections::{HashMap, VecDeque};

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairBufferLimits {
    /// Of one namespace.
    pub of_namespace: usize,
    /// Of all namespaces.
    pub total: usize,
}

/// What waits, in the order of each namespace.
#[derive(Debug)]
pub struct FairBuffer<T> {
    limits: FairBufferLimits,
    lanes: HashMap<String, VecDeque<T>>,
    /// Namespaces with entries, in order of service.
    round: VecDeque<String>,
    count: usize,
}

impl<T> FairBuffer<T> {
    /// Nothing waits yet.
    #[must_use]
    pub fn new(limits: FairBufferLimits) -> Self {
        Self {
            limits,
            lanes: HashMap::new(),
            round: VecDeque::new(),
            count: 0,
        }
    }

    /// Puts something in; what finds no room: this, or the newest of a namespace that has more.
    pub fn put(&mut self, namespace: &str, item: T) -> Option<T> {
        let own = self.lanes.get(namespace).map_or(0, VecDeque::len) + 1;
        if own > self.limits.of_namespace {
            return Some(item);
        }
        let mut gone = None;
        if self.count >= self.limits.total {
            let longest = self.lanes.values_mut().max_by_key(|lane| lane.len());
            let Some(longest) = longest.filter(|lane| lane.len() > own) else {
                return Some(item);
            };
            gone = longest.pop_back();
            self.count -= 1;
        }
        self.count += 1;
        if let Some(lane) = self.lanes.get_mut(namespace) {
            lane.push_back(item);
        } else {
            self.lanes.insert(namespace.to_owned(), VecDeque::from([item]));
            self.round.push_back(namespace.to_owned());
        }
        gone
    }

    /// Takes the oldest entry of the next namespace.
    pub fn take(&mut self) -> Option<T> {
        let namespace = self.round.pop_front()?;
        let lane = self.lanes.get_mut(&namespace)?;
        let item = lane.pop_front()?;
        self.count -= 1;
        if lane.is_empty() {
            self.lanes.remove(&namespace);
        } else {
            self.round.push_back(namespace);
        }
        Some(item)
    }

    /// How much waits.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bag(of_namespace: usize, total: usize) -> FairBuffer<(usize, usize)> {
        FairBuffer::new(FairBufferLimits { of_namespace, total })
    }

    /// Holds: B19.
    #[test]
    fn who_has_little_to_tell_has_the_next_turn() {
        let mut bag = bag(16, 64);
        for n in 0..100 {
            let refused = bag.put("many", (0, n));
            assert_eq!(refused, (n >= 16).then_some((0, n)));
        }
        assert_eq!(bag.put("few", (1, 0)), None);
        assert_eq!(
            (bag.take(), bag.take(), bag.take()),
            (Some((0, 0)), Some((1, 0)), Some((0, 1)))
        );
    }

    /// Holds: B19.
    #[test]
    fn where_there_is_no_room_the_newest_of_the_longest_gives_way() {
        let mut bag = bag(16, 20);
        for n in 0..16 {
            bag.put("many", (0, n));
        }
        for n in 0..4 {
            bag.put("some", (1, n));
        }
        assert_eq!(bag.put("few", (2, 0)), Some((0, 15)));
        assert_eq!(bag.put("many", (0, 99)), Some((0, 99)));
        assert_eq!(bag.len(), 20);
    }

    proptest! {
        /// Holds: B19.
        #[test]
        fn it_is_bounded_keeps_the_order_and_takes_from_none_that_has_less(
            moves in prop::collection::vec(prop::option::weighted(0.7, 0..6_usize), 0..200),
            of_namespace in 1..8_usize,
            total in 1..20_usize,
        ) {
            let mut bag = bag(of_namespace, total);
            let mut model: Vec<Vec<usize>> = vec![Vec::new(); 6];
            for (n, move_) in moves.into_iter().enumerate() {
                match move_ {
                    Some(namespace) => {
                        model[namespace].push(n);
                        if let Some((from, gone)) = bag.put(&namespace.to_string(), (namespace, n)) {
                            prop_assert_eq!(model[from].pop(), Some(gone), "the newest");
                            prop_assert!(from == namespace || model[from].len() >= model[namespace].len());
                        }
                    }
                    None => {
                        if let Some((namespace, n)) = bag.take() {
                            prop_assert_eq!(model[namespace].remove(0), n);
                        } else {
                            prop_assert!(bag.is_empty());
                        }
                    }
                }
                let count: usize = model.iter().map(Vec::len).sum();
                prop_assert!(bag.len() == count && count <= total);
                prop_assert!(model.iter().all(|lane| lane.len() <= of_namespace));
            }
        }
    }
}
