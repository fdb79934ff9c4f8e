//! A queue of keys with client-go's promises: a key is worked on by one worker at a time, equal requests count once,
//! and a request that arrives while the key is worked on is served right after.
//!
//! Pure: the clock is passed in, waiting is the caller's.

use std::collections::{BTreeSet, HashMap, VecDeque};
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

/// Whose a key is, and how many keys of that owner are worked on at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// `None` is somebody too.
    pub name: Option<Arc<str>>,
    /// At least 1.
    pub at_once: usize,
}

impl Owner {
    /// Whoever has no name, without a bound.
    pub const NOBODY: Self = Self {
        name: None,
        at_once: usize::MAX,
    };
}

/// Keys that are due, that are worked on, and that become due.
#[derive(Debug)]
pub struct WorkQueue<K> {
    /// Those whose owner was not asked for yet.
    ready: VecDeque<K>,
    /// The others, by their owner; none of these lines is empty.
    lanes: HashMap<Owner, VecDeque<K>>,
    /// The owners in turn who have a line and may have one more key worked on.
    round: VecDeque<Owner>,
    in_lanes: usize,
    /// How many keys of an owner are worked on, and which those are.
    busy: HashMap<Owner, usize>,
    held: HashMap<K, Owner>,
    states: HashMap<K, State>,
    /// Earliest wake-up by key.
    wakes: HashMap<K, Instant>,
    /// The same in the order of time: one entry for each key, however often it is asked for.
    later: BTreeSet<(Instant, K)>,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            lanes: HashMap::new(),
            round: VecDeque::new(),
            in_lanes: 0,
            busy: HashMap::new(),
            held: HashMap::new(),
            states: HashMap::new(),
            wakes: HashMap::new(),
            later: BTreeSet::new(),
        }
    }
}

impl<K: Hash + Eq + Ord + Clone> WorkQueue<K> {
    /// Asks for a key now.
    pub fn add(&mut self, key: &K) {
        self.forget(key);
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
            self.forget(key);
            self.wakes.insert(key.clone(), at);
            self.later.insert((at, key.clone()));
        }
    }

    /// Takes the next key that is due.
    pub fn take(&mut self, now: Instant) -> Option<K> {
        self.take_fair(now, |_| Owner::NOBODY)
    }

    /// Takes the next key that is due and whose owner has not as many worked on as it may; owners take turns, and the keys of
    /// one come in the order in which they were asked for.
    pub fn take_fair(&mut self, now: Instant, owner: impl Fn(&K) -> Owner) -> Option<K> {
        self.promote(now);
        while let Some(key) = self.ready.pop_front() {
            self.line_up(key.clone(), owner(&key));
        }
        let owner = self.round.pop_front()?;
        let lane = self.lanes.get_mut(&owner)?;
        let key = lane.pop_front()?;
        if lane.is_empty() {
            self.lanes.remove(&owner);
        }
        self.in_lanes -= 1;
        *self.busy.entry(owner.clone()).or_default() += 1;
        self.held.insert(key.clone(), owner.clone());
        if self.lanes.contains_key(&owner) && self.may_have_more(&owner) {
            self.round.push_back(owner);
        }
        self.states.insert(key.clone(), State::Busy);
        Some(key)
    }

    fn line_up(&mut self, key: K, owner: Owner) {
        let has_line = self.lanes.contains_key(&owner);
        self.lanes.entry(owner.clone()).or_default().push_back(key);
        self.in_lanes += 1;
        if !has_line && self.may_have_more(&owner) {
            self.round.push_back(owner);
        }
    }

    fn may_have_more(&self, owner: &Owner) -> bool {
        self.busy.get(owner).is_none_or(|busy| *busy < owner.at_once)
    }

    /// Gives a key back.
    pub fn done(&mut self, key: &K) {
        self.rest(key);
        if self.states.remove(key) == Some(State::BusyAgain) {
            self.states.insert(key.clone(), State::Ready);
            self.ready.push_back(key.clone());
        }
    }

    /// Counts a key that is worked on no longer as one of those that its owner may have at once.
    pub fn rest(&mut self, key: &K) {
        let Some(owner) = self.held.remove(key) else {
            return;
        };
        let was_full = !self.may_have_more(&owner);
        if let Some(busy) = self.busy.get_mut(&owner) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&owner);
            }
        }
        if was_full && self.lanes.contains_key(&owner) {
            self.round.push_back(owner);
        }
    }

    /// Forgets wake-ups of a key that no longer exists.
    pub fn forget(&mut self, key: &K) {
        if let Some(at) = self.wakes.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
    }

    /// When the next key becomes due, if none is due now.
    pub fn next_wake(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
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
        while let Some((_, key)) = self.later.first().filter(|(at, _)| *at <= now) {
            let key = key.clone();
            self.add(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn owner(name: &str, at_once: usize) -> Owner {
        let name = Some(Arc::from(name));
        Owner { name, at_once }
    }

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
        let owner = |key: &i32| owner(if *key < 1000 { "many" } else { "few" }, usize::MAX);
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

    /// Holds: D1.
    #[test]
    fn an_owner_has_no_more_worked_on_than_it_may_and_the_next_when_one_is_back_or_rests() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let owner = |key: &i32| owner(if *key < 10 { "many" } else { "few" }, 2);
        for key in [0, 1, 2, 3, 4, 10] {
            queue.add(&key);
        }
        let take = |queue: &mut WorkQueue<i32>| queue.take_fair(now, owner);
        let taken: Vec<_> = (0..4).filter_map(|_| take(&mut queue)).collect();
        assert_eq!((taken, queue.len()), (vec![0, 10, 1], 3));
        queue.rest(&1);
        queue.rest(&1);
        assert_eq!((take(&mut queue), take(&mut queue)), (Some(2), None));
        queue.done(&1);
        assert_eq!(take(&mut queue), None, "it had given its place away");
        queue.add(&0);
        queue.done(&0);
        assert_eq!((take(&mut queue), take(&mut queue)), (Some(3), None));
        for key in [2, 3] {
            queue.done(&key);
        }
        let rest: Vec<_> = (0..3).filter_map(|_| take(&mut queue)).collect();
        assert_eq!(rest, [4, 0]);
    }

    proptest! {
        /// Whatever comes and goes, no owner has more than it may, nobody waits who may go on, and all come in the end.
        #[test]
        fn bounds_hold_and_nobody_is_forgotten(steps in prop::collection::vec((0..4_u8, 0..12_usize), 0..200)) {
            let (mut queue, now) = (WorkQueue::default(), Instant::now());
            let owner = |key: &usize| owner(&(key % 3).to_string(), key % 3 + 1);
            let (mut asked, mut working, mut resting) = (HashSet::new(), HashSet::new(), HashSet::<usize>::new());
            for (step, key) in steps {
                match step {
                    0 => {
                        queue.add(&key);
                        asked.insert(key);
                    }
                    1 => if let Some(key) = queue.take_fair(now, owner) {
                        prop_assert!(asked.remove(&key) && working.insert(key));
                    } else {
                        let may = |key: &usize| {
                            let of_owner = |other: &&usize| **other % 3 == key % 3 && !resting.contains(*other);
                            !working.contains(key) && working.iter().filter(of_owner).count() < key % 3 + 1
                        };
                        prop_assert!(!asked.iter().any(may));
                    },
                    2 => if working.remove(&key) {
                        resting.remove(&key);
                        queue.done(&key);
                    },
                    _ => {
                        queue.rest(&key);
                        resting.extend(working.get(&key));
                    }
                }
                for rest in 0..3 {
                    let at_work = working.iter().filter(|key| *key % 3 == rest && !resting.contains(*key));
                    prop_assert!(at_work.count() <= rest + 1);
                }
            }
            for key in working {
                queue.done(&key);
            }
            while let Some(key) = queue.take_fair(now, owner) {
                prop_assert!(asked.remove(&key));
                queue.done(&key);
            }
            prop_assert!(asked.is_empty() && queue.is_empty() && queue.busy.is_empty() && queue.held.is_empty());
        }

        /// Holds: B7.
        #[test]
        fn wake_ups_are_those_of_a_model_with_one_for_each_key(
            steps in prop::collection::vec((0..6_u8, 0..8_usize, 0..50_u64), 0..400),
        ) {
            let (mut queue, start) = (WorkQueue::default(), Instant::now());
            let at = |second: u64| start + Duration::from_secs(second);
            // When each key is due, what is in line, what is worked on, and what of that is asked for again.
            let (mut due, mut line) = (BTreeMap::<usize, u64>::new(), VecDeque::new());
            let (mut busy, mut again) = (HashSet::new(), HashSet::new());
            let mut now = 0;
            for (step, key, second) in steps {
                let ask = |key: usize, line: &mut VecDeque<usize>, busy: &HashSet<usize>, again: &mut HashSet<usize>| {
                    if busy.contains(&key) {
                        again.insert(key);
                    } else if !line.contains(&key) {
                        line.push_back(key);
                    }
                };
                match step {
                    0..=2 => {
                        queue.add_at(&key, at(second));
                        let known = due.entry(key).or_insert(second);
                        *known = second.min(*known);
                    }
                    3 => {
                        queue.add(&key);
                        due.remove(&key);
                        ask(key, &mut line, &busy, &mut again);
                    }
                    4 if second % 2 == 0 => {
                        queue.forget(&key);
                        due.remove(&key);
                    }
                    4 => if busy.remove(&key) {
                        queue.done(&key);
                        if again.remove(&key) {
                            line.push_back(key);
                        }
                    },
                    _ => {
                        now = now.max(second);
                        let mut woken: Vec<_> = due.iter().filter(|(_, at)| **at <= now).map(|(key, at)| (*at, *key)).collect();
                        woken.sort_unstable();
                        for (_, key) in woken {
                            due.remove(&key);
                            ask(key, &mut line, &busy, &mut again);
                        }
                        let taken = queue.take(at(now));
                        prop_assert_eq!(taken, line.pop_front());
                        busy.extend(taken);
                    }
                }
                prop_assert_eq!(queue.later.len(), due.len(), "one entry for each key");
                prop_assert_eq!(queue.next_wake(), due.values().min().map(|second| at(*second)));
                prop_assert_eq!(queue.len(), line.len());
            }
        }
    }

    /// Holds: B7.
    #[test]
    fn a_key_that_is_asked_for_again_and_again_takes_one_entry() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        for write in 0..100_000 {
            // Each time a little earlier, as when a time by the clock is turned into one of the process.
            queue.add_at(
                &1,
                now + Duration::from_secs(604_800) - Duration::from_nanos(write),
            );
        }
        assert_eq!(queue.later.len(), 1);
        queue.forget(&1);
        assert!(queue.later.is_empty() && queue.wakes.is_empty());
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
