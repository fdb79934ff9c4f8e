//! A queue of keys with client-go's promises: a key is worked on by one worker at a time, equal requests count once,
//! and a request that arrives while the key is worked on is served right after.
//!
//! Pure: the clock is passed in, waiting is the caller's.

mod concurrency_windows;
mod pool;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

pub use concurrency_windows::ClusterFeedback;
use concurrency_windows::ConcurrencyWindows;
pub use pool::ConcurrencyPool;

#[derive(Debug, PartialEq, Eq)]
enum KeyState {
    /// In line.
    Ready,
    /// A worker has it.
    Busy,
    /// A worker has it, and it is asked for again.
    BusyAgain,
}

/// Whose a key is, and the pools it is worked on out of, each with how many of it are worked on at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyOwner {
    /// `None` is an owner too.
    pub name: Option<Arc<str>>,
    /// Each number is at least 1, and the same for all owners of a pool. The one that fewer owners share comes first.
    pub pools: [Option<(ConcurrencyPool, usize)>; 3],
}

impl KeyOwner {
    /// An owner without a name, without a bound.
    pub const UNKNOWN: Self = Self {
        name: None,
        pools: [None, None, None],
    };

    /// A namespace of which one key is worked on at once.
    #[must_use]
    pub fn one_at_a_time(namespace: &str) -> Self {
        let name: Arc<str> = namespace.into();
        Self {
            name: Some(Arc::clone(&name)),
            pools: [Some((ConcurrencyPool::Namespace(name), 1)), None, None],
        }
    }

    fn pools(&self) -> impl Iterator<Item = &(ConcurrencyPool, usize)> {
        self.pools.iter().flatten()
    }
}

/// How much of a pool is used.
#[derive(Debug, Default)]
struct PoolUsage {
    busy: usize,
    /// Nothing is taken out of it before then.
    not_before: Option<Instant>,
    /// Owners with keys that wait for the pool, in order of service.
    waiting: VecDeque<KeyOwner>,
}

impl PoolUsage {
    fn has_room(&self, most: usize) -> bool {
        self.busy < most && self.not_before.is_none()
    }

    fn is_unused(&self) -> bool {
        self.busy == 0 && self.not_before.is_none() && self.waiting.is_empty()
    }
}

/// The keys of one owner that are in line; there is at least one.
#[derive(Debug)]
struct OwnerQueue<K> {
    keys: VecDeque<K>,
    /// What the owner had to wait for since the line began, that of its own before that of all.
    waited_for: Option<ConcurrencyPool>,
}

/// Keys that are due, that are worked on, and that become due.
#[derive(Debug)]
pub struct WorkQueue<K> {
    /// Those whose owner was not asked for yet.
    ready: VecDeque<K>,
    /// The others, by their owner.
    lanes: HashMap<KeyOwner, OwnerQueue<K>>,
    /// The owners with keys that wait for no pool, in order of service.
    round: VecDeque<KeyOwner>,
    in_lanes: usize,
    /// How much of each pool is used, and by which keys.
    usage: HashMap<ConcurrencyPool, PoolUsage>,
    /// How much of those of clusters may be used by now.
    windows: ConcurrencyWindows,
    held: HashMap<K, KeyOwner>,
    /// When pools may be used again; an entry that does not match the pool is stale.
    rests: BinaryHeap<Reverse<(Instant, ConcurrencyPool)>>,
    states: HashMap<K, KeyState>,
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
            usage: HashMap::new(),
            windows: ConcurrencyWindows::default(),
            held: HashMap::new(),
            rests: BinaryHeap::new(),
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
                self.states.insert(key.clone(), KeyState::Ready);
                self.ready.push_back(key.clone());
            }
            Some(state @ KeyState::Busy) => *state = KeyState::BusyAgain,
            Some(KeyState::Ready | KeyState::BusyAgain) => {}
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
        self.take_fair(now, |_| KeyOwner::UNKNOWN).map(|(key, _)| key)
    }

    /// Takes the next key that is due and whose pools have a free slot, and returns the pool that its owner had to wait for;
    /// owners are served in turn, and the keys of one in the order in which they were added.
    pub fn take_fair(
        &mut self,
        now: Instant,
        owner: impl Fn(&K) -> KeyOwner,
    ) -> Option<(K, Option<ConcurrencyPool>)> {
        self.promote(now);
        while let Some(key) = self.ready.pop_front() {
            self.enqueue_owner(key.clone(), owner(&key));
        }
        while let Some(owner) = self.round.pop_front() {
            if let Some(pool) = self.full_pool(&owner) {
                self.requeue_owner(owner, pool);
            } else if let Some(taken) = self.take_of(owner) {
                return Some(taken);
            }
        }
        None
    }

    fn take_of(&mut self, owner: KeyOwner) -> Option<(K, Option<ConcurrencyPool>)> {
        let line = self.lanes.get_mut(&owner)?;
        let (key, waited_for) = (line.keys.pop_front()?, line.waited_for.clone());
        let was_last = line.keys.is_empty();
        self.in_lanes -= 1;
        for (pool, _) in owner.pools() {
            self.usage.entry(pool.clone()).or_default().busy += 1;
        }
        // Owners that wait come before the one that was just served.
        self.wake_owners(&owner);
        if was_last {
            self.lanes.remove(&owner);
        } else {
            self.round.push_back(owner.clone());
        }
        self.held.insert(key.clone(), owner);
        self.states.insert(key.clone(), KeyState::Busy);
        Some((key, waited_for))
    }

    /// The first of its pools without room.
    fn full_pool(&self, owner: &KeyOwner) -> Option<ConcurrencyPool> {
        let mut pools = owner.pools();
        let full = pools.find(|(pool, most)| {
            let most = self.windows.at_once(pool, *most);
            self.usage.get(pool).is_some_and(|usage| !usage.has_room(most))
        });
        full.map(|(pool, _)| pool.clone())
    }

    /// Puts an owner behind the others that wait for a pool.
    fn requeue_owner(&mut self, owner: KeyOwner, pool: ConcurrencyPool) {
        if let Some(line) = self.lanes.get_mut(&owner) {
            let is_own = owner.pools().next().is_some_and(|(own, _)| *own == pool);
            if is_own || line.waited_for.is_none() {
                line.waited_for = Some(pool.clone());
            }
        }
        self.wake_owners(&owner);
        self.usage.entry(pool).or_default().waiting.push_back(owner);
    }

    /// Lets one more owner try, for each of these pools with a free slot: while there is one, one of the owners that wait for it
    /// is on its way.
    fn wake_owners(&mut self, owner: &KeyOwner) {
        for (pool, most) in owner.pools() {
            let most = self.windows.at_once(pool, *most);
            if let Some(usage) = self.usage.get_mut(pool)
                && usage.has_room(most)
                && let Some(next) = usage.waiting.pop_front()
            {
                self.round.push_back(next);
            }
        }
    }

    fn enqueue_owner(&mut self, key: K, owner: KeyOwner) {
        self.in_lanes += 1;
        if let Some(line) = self.lanes.get_mut(&owner) {
            line.keys.push_back(key);
            return;
        }
        let line = OwnerQueue {
            keys: [key].into(),
            waited_for: None,
        };
        self.lanes.insert(owner.clone(), line);
        self.round.push_back(owner);
    }

    /// Records what a reconcile showed of its key's cluster, before the key is given back.
    pub fn record_feedback(&mut self, key: &K, ended: ClusterFeedback) {
        let Some((pool, most)) = self.held.get(key).and_then(|owner| owner.pools[0].as_ref()) else {
            return;
        };
        if matches!(
            pool,
            ConcurrencyPool::Cluster(_) | ConcurrencyPool::OwnClusters(_)
        ) {
            self.windows.ended(pool, *most, ended);
        }
    }

    /// Gives a key back.
    pub fn done(&mut self, key: &K) {
        self.release(key);
        if self.states.remove(key) == Some(KeyState::BusyAgain) {
            self.states.insert(key.clone(), KeyState::Ready);
            self.ready.push_back(key.clone());
        }
    }

    /// Puts a key back that could not be used: it is the next of its owner, whom the first of its pools serves next, and not
    /// before then.
    pub fn put_back(&mut self, key: &K, not_before: Instant) {
        let Some(owner) = self.held.get(key).cloned() else {
            return;
        };
        self.release(key);
        self.states.insert(key.clone(), KeyState::Ready);
        self.in_lanes += 1;
        let pool = owner.pools().next().map(|(pool, _)| pool.clone());
        let line = self.lanes.entry(owner.clone()).or_insert_with(|| OwnerQueue {
            keys: VecDeque::new(),
            waited_for: None,
        });
        line.keys.push_front(key.clone());
        line.waited_for = line.waited_for.take().or_else(|| pool.clone());
        self.round.retain(|other| *other != owner);
        let Some(pool) = pool else {
            self.round.push_front(owner);
            return;
        };
        let usage = self.usage.entry(pool.clone()).or_default();
        usage.waiting.retain(|other| *other != owner);
        usage.waiting.push_front(owner);
        usage.not_before = Some(not_before);
        self.rests.push(Reverse((not_before, pool)));
    }

    /// Gives the places of a key in its pools back.
    fn release(&mut self, key: &K) {
        let Some(owner) = self.held.remove(key) else {
            return;
        };
        for (pool, _) in owner.pools() {
            if let Some(usage) = self.usage.get_mut(pool) {
                usage.busy -= 1;
            }
        }
        self.wake_owners(&owner);
        for (pool, _) in owner.pools() {
            if self.usage.get(pool).is_some_and(PoolUsage::is_unused) {
                self.usage.remove(pool);
            }
        }
    }

    /// Forgets wake-ups of a key that no longer exists.
    pub fn forget(&mut self, key: &K) {
        if let Some(at) = self.wakes.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
    }

    /// When the next key becomes due, if none is due now.
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let rest = self.rests.peek().map(|Reverse((at, _))| *at);
        let key = self.later.first().map(|(at, _)| *at);
        rest.into_iter().chain(key).min()
    }

    /// Keys that are worked on.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.held.len()
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
        while self.rests.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((at, pool))) = self.rests.pop() {
                self.reopen(&pool, at);
            }
        }
    }

    /// A pool may be used again, unless it was put off further.
    fn reopen(&mut self, pool: &ConcurrencyPool, at: Instant) {
        let Some(usage) = self
            .usage
            .get_mut(pool)
            .filter(|usage| usage.not_before == Some(at))
        else {
            return;
        };
        usage.not_before = None;
        // Without a free slot, it waits again.
        if let Some(next) = usage.waiting.pop_front() {
            self.round.push_front(next);
        } else if usage.is_unused() {
            self.usage.remove(pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn owner(name: &str, at_once: usize) -> KeyOwner {
        let name: Arc<str> = Arc::from(name);
        KeyOwner {
            name: Some(Arc::clone(&name)),
            pools: [Some((ConcurrencyPool::Namespace(name), at_once)), None, None],
        }
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
        assert_eq!(queue.take_fair(now, owner), Some((0, None)));
        queue.add(&1000);
        queue.add(&1001);
        let next: Vec<_> = (0..5)
            .filter_map(|_| Some(queue.take_fair(now, owner)?.0))
            .collect();
        assert_eq!(next, [1, 1000, 2, 1001, 3]);
        assert_eq!((queue.len(), queue.is_empty()), (996, false));
        while queue.take_fair(now, owner).is_some() {}
        assert!(queue.is_empty() && queue.lanes.is_empty() && queue.round.is_empty());
    }

    /// Holds: D1.
    #[test]
    fn an_owner_has_no_more_worked_on_than_it_may_and_the_next_when_one_is_back() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let owner = |key: &i32| owner(if *key < 10 { "many" } else { "few" }, 2);
        for key in [0, 1, 2, 3, 4, 10] {
            queue.add(&key);
        }
        let take = |queue: &mut WorkQueue<i32>| queue.take_fair(now, owner).map(|(key, _)| key);
        let taken: Vec<_> = (0..4).filter_map(|_| take(&mut queue)).collect();
        assert_eq!((taken, queue.len()), (vec![0, 10, 1], 3));
        queue.done(&1);
        assert_eq!((take(&mut queue), take(&mut queue)), (Some(2), None));
        queue.add(&0);
        queue.done(&0);
        assert_eq!((take(&mut queue), take(&mut queue)), (Some(3), None));
        for key in [2, 3] {
            queue.done(&key);
        }
        let rest: Vec<_> = (0..3).filter_map(|_| take(&mut queue)).collect();
        assert_eq!(rest, [4, 0]);
    }

    /// Six owners of two namespaces at three clusters; those of each cluster share, and all do.
    fn remote_owner(key: usize) -> KeyOwner {
        let cluster = ConcurrencyPool::Cluster(Arc::from(format!("cluster-{}", key % 3)));
        KeyOwner {
            name: Some(Arc::from(format!("ns-{}", key / 3 % 2))),
            pools: [
                Some((cluster, key % 3 + 1)),
                Some((ConcurrencyPool::Elsewhere, 4)),
                None,
            ],
        }
    }

    /// Whether one more key may be worked on in addition to these, where the clusters have these windows.
    fn has_room(key: usize, at_work: &[usize], windows: &[usize; 3], closed: &HashSet<usize>) -> bool {
        let of_cluster = at_work.iter().filter(|other| *other % 3 == key % 3);
        at_work.len() < 4 && of_cluster.count() < windows[key % 3] && !closed.contains(&(key % 3))
    }

    proptest! {
        /// Holds: B2.
        ///
        /// After any events, no owner has more than it may, none waits that may go on, and all are served in the end.
        #[test]
        fn bounds_hold_and_no_key_is_forgotten(steps in prop::collection::vec((0..8_u8, 0..24_usize), 0..300)) {
            let (mut queue, now) = (WorkQueue::default(), Instant::now());
            let (closing, mut clock) = (Duration::from_secs(5), now);
            let (mut asked, mut working) = (HashSet::<usize>::new(), HashSet::<usize>::new());
            let mut closed = HashMap::<usize, Instant>::new();
            let mut windows = [1, 2, 2];
            for (step, key) in steps {
                closed.retain(|_, until| *until > clock);
                match step {
                    0 | 1 => {
                        queue.add(&key);
                        asked.insert(key);
                    }
                    2 => {
                        let busy: Vec<usize> = working.iter().copied().collect();
                        let closed = closed.keys().copied().collect();
                        if let Some((key, _)) = queue.take_fair(clock, |key| remote_owner(*key)) {
                            prop_assert!(has_room(key, &busy, &windows, &closed));
                            prop_assert!(asked.remove(&key) && working.insert(key));
                        } else {
                            let may = |key: &usize| !working.contains(key) && has_room(*key, &busy, &windows, &closed);
                            prop_assert!(!asked.iter().any(may));
                        }
                    }
                    3 => if let Some((key, _)) = queue.take_fair(clock, |key| remote_owner(*key)) {
                        // In vain.
                        queue.put_back(&key, clock + closing);
                        closed.insert(key % 3, clock + closing);
                        prop_assert!(queue.next_wake().is_some_and(|at| at <= clock + closing));
                    },
                    // Its cluster answered at once, or not in time.
                    4..=6 => if working.remove(&key) {
                        if step > 4 {
                            let is_slow = step == 6;
                            let took = Duration::from_secs(if is_slow { 60 } else { 0 });
                            queue.record_feedback(&key, ClusterFeedback::Answered(took));
                            let window = &mut windows[key % 3];
                            *window = if is_slow { 1 } else { (2 * *window).min(key % 3 + 1) };
                        }
                        queue.done(&key);
                    },
                    _ => clock += Duration::from_secs(1),
                }
                prop_assert_eq!(queue.held.len(), working.len());
            }
            for key in working {
                queue.done(&key);
            }
            clock += closing;
            while let Some((key, _)) = queue.take_fair(clock, |key| remote_owner(*key)) {
                prop_assert!(asked.remove(&key));
                queue.done(&key);
            }
            prop_assert!(asked.is_empty() && queue.is_empty() && queue.held.is_empty());
            prop_assert!(queue.usage.is_empty() && queue.lanes.is_empty() && queue.round.is_empty());
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
            queue.add_at(&1, now + Duration::from_nanos(604_800_000_000_000 - write));
        }
        assert_eq!(queue.later.len(), 1);
        queue.forget(&1);
        assert!(queue.later.is_empty() && queue.wakes.is_empty());
    }

    /// Holds: B2.
    #[test]
    fn what_is_put_back_closes_its_pool_for_a_while_and_keeps_its_turn() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let later = |s| now + Duration::from_secs(s);
        // Two namespaces at one cluster, and one at another.
        for key in [0, 6, 3, 1] {
            queue.add(&key);
        }
        let take = |queue: &mut WorkQueue<usize>, at| queue.take_fair(at, |key| remote_owner(*key));
        assert_eq!(take(&mut queue, now), Some((0, None)));
        queue.put_back(&0, later(1));
        assert_eq!(
            take(&mut queue, now),
            Some((1, None)),
            "another cluster is none of its business"
        );
        assert_eq!((take(&mut queue, now), queue.next_wake()), (None, Some(later(1))));
        let cluster = Some(ConcurrencyPool::Cluster(Arc::from("cluster-0")));
        for (second, key) in [(1, 0), (2, 3), (3, 6)] {
            assert_eq!(take(&mut queue, later(second)), Some((key, cluster.clone())));
            assert_eq!(take(&mut queue, later(second)), None);
            queue.done(&key);
            if let Some((next, _)) = take(&mut queue, later(second)) {
                queue.put_back(&next, later(second + 1));
            }
        }
        assert!(queue.is_empty());
    }

    /// Holds: B2.
    #[test]
    fn a_cluster_that_is_full_leaves_others_room_and_says_whom_it_kept_waiting() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let elsewhere = |name: &str, cluster: &str| KeyOwner {
            name: Some(Arc::from(name)),
            pools: [
                Some((ConcurrencyPool::Cluster(Arc::from(cluster)), 2)),
                Some((ConcurrencyPool::Elsewhere, 3)),
                None,
            ],
        };
        let owner = |key: &usize| match key {
            0..10 => elsewhere("team-a", "slow"),
            10..20 => elsewhere("team-b", "other"),
            _ => KeyOwner {
                name: Some(Arc::from("team-a")),
                pools: [
                    Some((ConcurrencyPool::Namespace(Arc::from("team-a")), 2)),
                    Some((ConcurrencyPool::Here, 3)),
                    None,
                ],
            },
        };
        for key in [0, 1, 2, 10, 11, 20] {
            queue.add(&key);
        }
        let mut taken: Vec<_> = std::iter::from_fn(|| queue.take_fair(now, owner)).collect();
        taken.sort_by_key(|(key, _)| *key);
        let keys: Vec<_> = taken.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [0, 1, 10, 20]);
        queue.done(&0);
        let slow = ConcurrencyPool::Cluster(Arc::from("slow"));
        assert_eq!(queue.take_fair(now, owner), Some((2, Some(slow))));
        queue.done(&10);
        assert_eq!(
            queue.take_fair(now, owner),
            Some((11, Some(ConcurrencyPool::Elsewhere)))
        );
    }

    /// Holds: B2.
    #[test]
    fn thirty_clusters_that_answer_nothing_leave_others_room() {
        let (mut queue, now) = (WorkQueue::default(), Instant::now());
        let at = |cluster: usize| KeyOwner {
            name: Some(Arc::from("team-a")),
            pools: [
                Some((ConcurrencyPool::Cluster(Arc::from(cluster.to_string())), 8)),
                Some((ConcurrencyPool::Elsewhere, 64)),
                None,
            ],
        };
        let owner = |key: &usize| at(key / 10);
        for key in 0..300 {
            queue.add(&key);
        }
        let taken: Vec<usize> =
            std::iter::from_fn(|| queue.take_fair(now, owner).map(|(key, _)| key)).collect();
        assert_eq!(taken.len(), 60, "two of each");
        // Another one answers, and has more then: what all together have left.
        for (round, at_once) in [2, 4].into_iter().enumerate() {
            for key in 300 + 10 * round..308 + 10 * round {
                queue.add(&key);
            }
            let taken: Vec<usize> =
                std::iter::from_fn(|| queue.take_fair(now, |_| at(30)).map(|(key, _)| key)).collect();
            assert_eq!(taken.len(), at_once);
            for key in &taken {
                queue.record_feedback(key, ClusterFeedback::Answered(Duration::from_millis(5)));
                queue.done(key);
            }
        }
        // A slow one keeps one at a time.
        for key in &taken {
            queue.record_feedback(key, ClusterFeedback::Failed(Duration::from_secs(30)));
            queue.done(key);
        }
        while queue.take_fair(now, owner).is_some() {}
        assert_eq!(
            queue.held.len(),
            30 + 8,
            "one of each, and all that the other may have"
        );
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
