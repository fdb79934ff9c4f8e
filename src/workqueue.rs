//! A queue of keys with client-go's promises: a key is worked on by one worker at a time, equal requests count once,
//! and a request that arrives while the key is worked on is served right after.
//!
//! Pure: the clock is passed in, waiting is the caller's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// In line.
    Ready,
    /// A worker has it.
    Busy,
    /// A worker has it, and it is asked for again.
    BusyAgain,
}

/// Whose a key is; keys of `None` are somebody's too.
pub type Owner = Option<Arc<str>>;

/// Keys that are due, that are worked on, and that become due.
#[derive(Debug)]
pub struct WorkQueue<K> {
    /// Those whose owner was not asked for yet.
    ready: VecDeque<K>,
    /// The others, by their owner; none of these lines is empty.
    lanes: HashMap<Owner, VecDeque<K>>,
    /// The owners in turn.
    round: VecDeque<Owner>,
    in_lanes: usize,
    states: HashMap<K, State>,
    /// Earliest wake-up by key; an entry of `later` that does not match it is stale.
    wakes: HashMap<K, Instant>,
    later: BinaryHeap<Reverse<(Instant, K)>>,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            lanes: HashMap::new(),
            round: VecDeque::new(),
            in_lanes: 0,
            states: HashMap::new(),
            wakes: HashMap::new(),
            later: BinaryHeap::new(),
        }
    }
}

impl<K: Hash + Eq + Ord + Clone> WorkQueue<K> {
    /// Asks for a key now.
    pub fn add(&mut self, key: &K) {
        self.wakes.remove(key);
        match self.states.get_mut(key) {
            None => {
                self.states.insert(key.clone(), State::Ready);
                self.ready.push_back(key.clone());
            }
            Some(state @ State::Busy) => *state = State::BusyAgain,
            Some(State::Ready | State::BusyAgain) => {}
        }
    }

    /// Asks for a key at `at`, unless it is asked for earlier.
    pub fn add_at(&mut self, key: &K, at: Instant) {
        if self.wakes.get(key).is_none_or(|earlier| at < *earlier) {
            self.wakes.insert(key.clone(), at);
            self.later.push(Reverse((at, key.clone())));
        }
    }

    /// Takes the next key that is due.
    pub fn take(&mut self, now: Instant) -> Option<K> {
        self.take_fair(now, |_| None)
    }

    /// Takes the next key that is due; owners take turns, and the keys of one come in the order in which they were asked for.
    pub fn take_fair(&mut self, now: Instant, owner: impl Fn(&K) -> Owner) -> Option<K> {
        self.promote(now);
        while let Some(key) = self.ready.pop_front() {
            let owner = owner(&key);
            let lane = self.lanes.entry(owner.clone()).or_default();
            if lane.is_empty() {
                self.round.push_back(owner);
            }
            lane.push_back(key);
            self.in_lanes += 1;
        }
        let owner = self.round.pop_front()?;
        let lane = self.lanes.get_mut(&owner)?;
        let key = lane.pop_front()?;
        self.in_lanes -= 1;
        if lane.is_empty() {
            self.lanes.remove(&owner);
        } else {
            self.round.push_back(owner);
        }
        self.states.insert(key.clone(), State::Busy);
        Some(key)
    }

    /// Gives a key back.
    pub fn done(&mut self, key: &K) {
        if self.states.remove(key) == Some(State::BusyAgain) {
            self.states.insert(key.clone(), State::Ready);
            self.ready.push_back(key.clone());
        }
    }

    /// Forgets wake-ups of a key that no longer exists.
    pub fn forget(&mut self, key: &K) {
        self.wakes.remove(key);
    }

    /// When the next key becomes due, if none is due now.
    pub fn next_wake(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, key))) = self.later.peek() {
            if self.wakes.get(key) == Some(at) {
                return Some(*at);
            }
            self.later.pop();
        }
        None
    }

    /// Keys in line.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready.len() + self.in_lanes
    }

    /// Whether no key is in line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn promote(&mut self, now: Instant) {
        while self.next_wake().is_some_and(|at| at <= now) {
            if let Some(Reverse((_, key))) = self.later.pop() {
                self.add(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_key_is_with_one_worker_and_is_not_lost() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        queue.add(&1);
        queue.add(&1);
        assert_eq!((queue.take(now), queue.take(now)), (Some(1), None));
        queue.add(&1);
        assert_eq!(queue.take(now), None, "still with the first worker");
        queue.done(&1);
        assert_eq!(queue.take(now), Some(1));
        queue.done(&1);
        assert_eq!(queue.take(now), None);
    }

    /// Holds: D1.
    #[test]
    fn owners_take_turns_however_many_keys_one_has() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let owner = |key: &i32| Some(Arc::from(if *key < 1000 { "many" } else { "few" }));
        for key in 0..1000 {
            queue.add(&key);
        }
        assert_eq!(queue.take_fair(now, owner), Some(0));
        queue.add(&1000);
        queue.add(&1001);
        let next: Vec<_> = (0..5).filter_map(|_| queue.take_fair(now, owner)).collect();
        assert_eq!(next, [1, 1000, 2, 1001, 3]);
        assert_eq!((queue.len(), queue.is_empty()), (996, false));
        while queue.take_fair(now, owner).is_some() {}
        assert!(queue.is_empty() && queue.lanes.is_empty() && queue.round.is_empty());
    }

    #[test]
    fn the_earliest_wake_wins_and_a_request_beats_it() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let later = |s| now + Duration::from_secs(s);
        queue.add_at(&1, later(9));
        queue.add_at(&1, later(5));
        queue.add_at(&1, later(7));
        assert_eq!((queue.next_wake(), queue.take(later(4))), (Some(later(5)), None));
        assert_eq!(queue.take(later(5)), Some(1));
        queue.done(&1);
        assert_eq!((queue.next_wake(), queue.take(later(99))), (None, None));
        queue.add_at(&2, later(9));
        queue.add(&2);
        assert_eq!((queue.take(now), queue.next_wake()), (Some(2), None));
    }
}
