//! The fair queue: namespaces take turns, inside one the oldest task goes first, and caps bound what runs.
//!
//! Pure and in memory: its order follows from creation times, so a restart rebuilds it from the tasks alone.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use k8s_openapi::jiff::Timestamp;

use crate::names::TaskUid;

/// How much may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Jobs of all tasks.
    pub total: usize,
    /// Jobs of one namespace's tasks.
    pub per_namespace: usize,
}

/// Waiting and running tasks of one namespace.
#[derive(Debug, Default)]
struct Lane {
    waiting: BTreeSet<(Timestamp, TaskUid)>,
    running: HashSet<TaskUid>,
    /// Whether the lane stands in the round.
    in_round: bool,
}

/// Who waits, who runs, and whose turn it is. Each step costs O(log n) of the waiting tasks of one namespace.
#[derive(Debug)]
pub struct FairQueue {
    caps: Caps,
    lanes: HashMap<String, Lane>,
    round: VecDeque<String>,
    running: usize,
    waiting: usize,
}

impl FairQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            lanes: HashMap::new(),
            round: VecDeque::new(),
            running: 0,
            waiting: 0,
        }
    }

    /// Puts a task in line, unless it waits or runs already.
    pub fn wait(&mut self, namespace: &str, created: Timestamp, uid: &TaskUid) {
        let lane = self.lanes.entry(namespace.to_owned()).or_default();
        if !lane.running.contains(uid) && lane.waiting.insert((created, uid.clone())) {
            self.waiting += 1;
            self.enter(namespace);
        }
    }

    /// Counts a task as running without a turn: its Job exists already.
    pub fn adopt(&mut self, namespace: &str, created: Timestamp, uid: &TaskUid) {
        let lane = self.lanes.entry(namespace.to_owned()).or_default();
        self.waiting -= usize::from(lane.waiting.remove(&(created, uid.clone())));
        if lane.running.insert(uid.clone()) {
            self.running += 1;
        }
    }

    /// Forgets a task, whether it waits or runs.
    pub fn leave(&mut self, namespace: &str, created: Timestamp, uid: &TaskUid) {
        let Some(lane) = self.lanes.get_mut(namespace) else {
            return;
        };
        self.waiting -= usize::from(lane.waiting.remove(&(created, uid.clone())));
        if lane.running.remove(uid) {
            self.running -= 1;
        }
        if lane.waiting.is_empty() && lane.running.is_empty() && !lane.in_round {
            self.lanes.remove(namespace);
        } else {
            self.enter(namespace);
        }
    }

    /// The next task that may run; it counts as running from now on.
    pub fn grant(&mut self) -> Option<TaskUid> {
        if self.running >= self.caps.total {
            return None;
        }
        while let Some(namespace) = self.round.pop_front() {
            let Some(lane) = self.lanes.get_mut(&namespace) else {
                continue;
            };
            lane.in_round = false;
            if lane.running.len() >= self.caps.per_namespace {
                continue;
            }
            if let Some((_, uid)) = lane.waiting.pop_first() {
                self.waiting -= 1;
                lane.running.insert(uid.clone());
                self.running += 1;
                self.enter(&namespace);
                return Some(uid);
            }
            if lane.running.is_empty() {
                self.lanes.remove(&namespace);
            }
        }
        None
    }

    /// Whether a task holds a slot.
    #[must_use]
    pub fn is_running(&self, namespace: &str, uid: &TaskUid) -> bool {
        self.lanes
            .get(namespace)
            .is_some_and(|lane| lane.running.contains(uid))
    }

    /// Tasks that wait and tasks that run.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.waiting, self.running)
    }

    /// Puts a lane with something to do at the end of the round; a full one comes back when a task leaves it.
    fn enter(&mut self, namespace: &str) {
        let Some(lane) = self.lanes.get_mut(namespace) else {
            return;
        };
        if !lane.in_round && !lane.waiting.is_empty() && lane.running.len() < self.caps.per_namespace {
            lane.in_round = true;
            self.round.push_back(namespace.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAPS: Caps = Caps {
        total: 5,
        per_namespace: 3,
    };

    fn uid(n: usize) -> TaskUid {
        TaskUid::new(&format!("u{n:04}"))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Holds: D1.
    #[test]
    fn a_flood_in_one_namespace_does_not_delay_another() {
        let mut queue = FairQueue::new(CAPS);
        for n in 0..1000 {
            queue.wait("a", at(0), &uid(n));
        }
        queue.wait("b", at(9), &uid(5000));
        let first_two = [queue.grant(), queue.grant()];
        assert!(first_two.contains(&Some(uid(5000))), "{first_two:?}");
    }

    #[test]
    fn inside_a_namespace_the_oldest_goes_first() {
        let mut queue = FairQueue::new(CAPS);
        for (n, second) in [(1, 30), (2, 10), (3, 20)] {
            queue.wait("a", at(second), &uid(n));
        }
        assert_eq!(
            [queue.grant(), queue.grant(), queue.grant()],
            [Some(uid(2)), Some(uid(3)), Some(uid(1))]
        );
    }

    #[test]
    fn a_full_namespace_gets_its_turn_back_when_a_task_leaves() {
        let mut queue = FairQueue::new(Caps {
            total: 9,
            per_namespace: 1,
        });
        queue.wait("a", at(0), &uid(1));
        queue.wait("a", at(1), &uid(2));
        assert_eq!(queue.grant(), Some(uid(1)));
        assert_eq!(queue.grant(), None);
        queue.leave("a", at(0), &uid(1));
        assert_eq!(queue.grant(), Some(uid(2)));
    }

    #[derive(Clone, Debug)]
    enum Move {
        Wait(usize, usize),
        Adopt(usize, usize),
        Leave(usize, usize),
        Next,
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let task = || (0..4_usize, 0..30_usize);
        let one = prop_oneof![
            3 => task().prop_map(|(n, t)| Move::Wait(n, t)),
            1 => task().prop_map(|(n, t)| Move::Adopt(n, t)),
            2 => task().prop_map(|(n, t)| Move::Leave(n, t)),
            4 => Just(Move::Next),
        ];
        prop::collection::vec(one, 0..200)
    }

    proptest! {
        /// Holds: D1.
        #[test]
        fn caps_hold_and_nobody_starves(moves in moves()) {
            let mut queue = FairQueue::new(CAPS);
            let name = |n: usize| format!("ns{n}");
            let (mut adopted, mut waiting) = (HashSet::new(), HashSet::new());
            for step in moves {
                match step {
                    Move::Wait(n, t) => {
                        queue.wait(&name(n), at(0), &uid(n * 100 + t));
                        if !queue.is_running(&name(n), &uid(n * 100 + t)) {
                            waiting.insert((n, n * 100 + t));
                        }
                    }
                    Move::Adopt(n, t) => {
                        queue.adopt(&name(n), at(0), &uid(n * 100 + t));
                        adopted.insert(n * 100 + t);
                        waiting.remove(&(n, n * 100 + t));
                    }
                    Move::Leave(n, t) => {
                        queue.leave(&name(n), at(0), &uid(n * 100 + t));
                        waiting.remove(&(n, n * 100 + t));
                    }
                    Move::Next => {
                        let before = queue.len().1;
                        let next = queue.grant();
                        prop_assert!(next.is_none() || before < CAPS.total);
                        waiting.retain(|(_, t)| Some(uid(*t)) != next);
                    }
                }
            }
            // Whoever still waits gets its turn once the others have left.
            for n in 0..4 {
                for t in 0..30 {
                    if !waiting.contains(&(n, n * 100 + t)) {
                        queue.leave(&name(n), at(0), &uid(n * 100 + t));
                    }
                }
            }
            while let Some(next) = queue.grant() {
                let n: usize = next.as_str()[1..].parse::<usize>().unwrap();
                prop_assert!(waiting.remove(&(n / 100, n)));
                queue.leave(&name(n / 100), at(0), &next);
            }
            prop_assert!(waiting.is_empty(), "{waiting:?}");
            prop_assert_eq!(queue.len(), (0, 0));
        }
    }
}
