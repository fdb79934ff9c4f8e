//! A queue of keys with client-go's promises: a key is worked on by one worker at a time, equal requests count once,
//! and a request that arrives while the key is worked on is served right after.
//!
//! Pure: the clock is passed in, waiting is the caller's.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
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

/// Keys that are due, that are worked on, and that become due.
#[derive(Debug)]
pub struct WorkQueue<K> {
    ready: VecDeque<K>,
    states: HashMap<K, State>,
    /// Earliest wake-up by key; an entry of `later` that does not match it is stale.
    wakes: HashMap<K, Instant>,
    later: BinaryHeap<Reverse<(Instant, K)>>,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
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
        self.promote(now);
        let key = self.ready.pop_front()?;
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
        self.ready.len()
    }

    /// Whether no key is in line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
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
