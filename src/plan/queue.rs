//! The fair queue: namespaces take turns, inside one the oldest task goes first, and caps bound what runs.
//!
//! Pure and in memory: its order follows from creation times, so a restart rebuilds it from the tasks alone.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::names::TaskUid;

mod clusters;

use clusters::Clusters;

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
    clusters: Clusters,
}

/// A task as it stands in line.
#[derive(Clone, Copy, Debug)]
pub struct Ticket<'a> {
    /// Whose it is.
    pub namespace: &'a str,
    /// When it was made.
    pub created: Timestamp,
    /// Which it is.
    pub uid: &'a TaskUid,
    /// The cluster its Job goes to, where that one may have a cap of its own.
    pub cluster: Option<&'a str>,
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
            clusters: Clusters::default(),
        }
    }

    /// Puts a task in line, unless it waits or runs already.
    pub fn wait(&mut self, ticket: Ticket<'_>) {
        let Ticket {
            namespace,
            created,
            uid,
            cluster,
        } = ticket;
        if self.clusters.is_parked(namespace, created, uid) {
            return;
        }
        let lane = self.lanes.entry(namespace.to_owned()).or_default();
        if !lane.running.contains(uid) && lane.waiting.insert((created, uid.clone())) {
            self.waiting += 1;
            self.clusters.enter(uid, cluster);
            self.enter(namespace);
        }
    }

    /// Counts a task as running without a turn: its Job exists already.
    pub fn adopt(&mut self, ticket: Ticket<'_>) {
        let Ticket {
            namespace,
            created,
            uid,
            cluster,
        } = ticket;
        self.waiting -= usize::from(self.clusters.unpark(namespace, created, uid));
        let lane = self.lanes.entry(namespace.to_owned()).or_default();
        self.waiting -= usize::from(lane.waiting.remove(&(created, uid.clone())));
        if lane.running.insert(uid.clone()) {
            self.running += 1;
            self.clusters.enter(uid, cluster);
            self.clusters.start(uid);
        }
    }

    /// Forgets a task, whether it waits or runs.
    pub fn leave(&mut self, namespace: &str, created: Timestamp, uid: &TaskUid) {
        self.waiting -= usize::from(self.clusters.unpark(namespace, created, uid));
        let Some(lane) = self.lanes.get_mut(namespace) else {
            return self.go_on(uid, false);
        };
        self.waiting -= usize::from(lane.waiting.remove(&(created, uid.clone())));
        let was_running = lane.running.remove(uid);
        self.running -= usize::from(was_running);
        if lane.waiting.is_empty() && lane.running.is_empty() && !lane.in_round {
            self.lanes.remove(namespace);
        } else {
            self.enter(namespace);
        }
        self.go_on(uid, was_running);
    }

    /// Sets how many Jobs may run on a cluster.
    pub fn set_cap(&mut self, cluster: &str, cap: Option<usize>) {
        let next = self.clusters.set_cap(cluster, cap);
        self.back_in_line(next);
    }

    /// Clusters that have a cap.
    pub fn capped(&self) -> impl Iterator<Item = &Arc<str>> {
        self.clusters.capped()
    }

    /// Jobs that run on each cluster.
    pub fn running_on(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.clusters.running()
    }

    /// Takes a task off its cluster, and lets those go on that waited for its place.
    fn go_on(&mut self, uid: &TaskUid, was_running: bool) {
        let next = self.clusters.leave(uid, was_running);
        self.back_in_line(next);
    }

    fn back_in_line(&mut self, tasks: Vec<(Arc<str>, Timestamp, TaskUid)>) {
        for (namespace, created, uid) in tasks {
            let lane = self.lanes.entry(namespace.to_string()).or_default();
            lane.waiting.insert((created, uid));
            self.enter(&namespace);
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
            while let Some((created, uid)) = lane.waiting.pop_first() {
                if !self.clusters.has_room(&uid) {
                    // It waits for its cluster, and holds up nobody who goes to another.
                    self.clusters.park(&namespace, created, uid);
                    continue;
                }
                self.waiting -= 1;
                lane.running.insert(uid.clone());
                self.running += 1;
                self.clusters.start(&uid);
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

    fn ticket<'a>(namespace: &'a str, second: i64, uid: &'a TaskUid) -> Ticket<'a> {
        Ticket {
            namespace,
            created: at(second),
            uid,
            cluster: None,
        }
    }

    /// Holds: D1.
    #[test]
    fn a_flood_in_one_namespace_does_not_delay_another() {
        let mut queue = FairQueue::new(CAPS);
        for n in 0..1000 {
            queue.wait(ticket("a", 0, &uid(n)));
        }
        queue.wait(ticket("b", 9, &uid(5000)));
        let first_two = [queue.grant(), queue.grant()];
        assert!(first_two.contains(&Some(uid(5000))), "{first_two:?}");
    }

    #[test]
    fn inside_a_namespace_the_oldest_goes_first() {
        let mut queue = FairQueue::new(CAPS);
        for (n, second) in [(1, 30), (2, 10), (3, 20)] {
            queue.wait(ticket("a", second, &uid(n)));
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
        queue.wait(ticket("a", 0, &uid(1)));
        queue.wait(ticket("a", 1, &uid(2)));
        assert_eq!(queue.grant(), Some(uid(1)));
        assert_eq!(queue.grant(), None);
        queue.leave("a", at(0), &uid(1));
        assert_eq!(queue.grant(), Some(uid(2)));
    }

    const CLUSTER_CAPS: [(&str, usize); 2] = [("east", 2), ("west", 1)];

    /// A third of the tasks goes to each cluster, a third to none.
    fn on_cluster<'a>(namespace: &'a str, task: usize, uid: &'a TaskUid) -> Ticket<'a> {
        Ticket {
            cluster: [None, Some("east"), Some("west")][task % 3],
            ..ticket(namespace, 0, uid)
        }
    }

    fn running_on(queue: &FairQueue, cluster: &str) -> usize {
        let found = queue.running_on().find(|(name, _)| &***name == cluster);
        found.map_or(0, |(_, running)| running)
    }

    #[test]
    fn a_full_cluster_holds_up_only_those_who_go_there() {
        let mut queue = FairQueue::new(Caps {
            total: 9,
            per_namespace: 5,
        });
        queue.set_cap("east", Some(1));
        let uids: Vec<_> = (0..4).map(uid).collect();
        let east = |n: usize| Ticket {
            cluster: Some("east"),
            ..ticket("a", i64::try_from(n).unwrap(), &uids[n])
        };
        for n in 0..3 {
            queue.wait(east(n));
        }
        queue.wait(ticket("a", 3, &uids[3]));
        assert_eq!(
            [queue.grant(), queue.grant(), queue.grant()],
            [Some(uid(0)), Some(uid(3)), None]
        );
        assert_eq!((queue.len(), running_on(&queue, "east")), ((2, 2), 1));
        queue.wait(east(1));
        assert_eq!(queue.len(), (2, 2), "who is parked is in line already");
        queue.leave("a", at(0), &uid(0));
        assert_eq!([queue.grant(), queue.grant()], [Some(uid(1)), None]);
        queue.set_cap("east", None);
        assert_eq!(
            queue.grant(),
            Some(uid(2)),
            "a cap that is lifted lets them go on"
        );
        for n in [1, 2, 3] {
            queue.leave("a", at(i64::try_from(n).unwrap()), &uid(n));
        }
        assert_eq!((queue.len(), queue.running_on().count()), ((0, 0), 0));
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
            for (cluster, cap) in CLUSTER_CAPS {
                queue.set_cap(cluster, Some(cap));
            }
            let name = |n: usize| format!("ns{n}");
            let (mut adopted, mut waiting) = (HashSet::new(), HashSet::new());
            for step in moves {
                match step {
                    Move::Wait(n, t) => {
                        queue.wait(on_cluster(&name(n), t, &uid(n * 100 + t)));
                        if !queue.is_running(&name(n), &uid(n * 100 + t)) {
                            waiting.insert((n, n * 100 + t));
                        }
                    }
                    Move::Adopt(n, t) => {
                        queue.adopt(on_cluster(&name(n), t, &uid(n * 100 + t)));
                        adopted.insert(n * 100 + t);
                        waiting.remove(&(n, n * 100 + t));
                    }
                    Move::Leave(n, t) => {
                        queue.leave(&name(n), at(0), &uid(n * 100 + t));
                        waiting.remove(&(n, n * 100 + t));
                    }
                    Move::Next => {
                        let before = queue.len().1;
                        let on = |queue: &FairQueue| -> Vec<usize> {
                            CLUSTER_CAPS.map(|(name, _)| running_on(queue, name)).into()
                        };
                        let there = on(&queue);
                        let next = queue.grant();
                        prop_assert!(next.is_none() || before < CAPS.total);
                        for ((before, after), (_, cap)) in there.into_iter().zip(on(&queue)).zip(CLUSTER_CAPS) {
                            prop_assert!(after == before || after <= cap);
                        }
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
