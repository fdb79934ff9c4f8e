//! The queue against a plain model of it, through random events.

use proptest::test_runner::FileFailurePersistence;

use super::*;

/// A task of the model: its cluster follows from its number, as does its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    namespace: usize,
    task: usize,
}

impl Key {
    fn uid(self) -> TaskUid {
        uid(self.namespace * 100 + self.task)
    }

    fn of(uid: &TaskUid) -> Self {
        let number: usize = uid.as_str()[1..].parse().unwrap();
        Self {
            namespace: number / 100,
            task: number % 100,
        }
    }

    fn name(self) -> String {
        format!("ns{}", self.namespace)
    }

    fn cluster(self) -> Option<&'static str> {
        [None, Some("east"), Some("west")][self.task % 3]
    }

    /// Older ones are not those with the smaller numbers.
    fn created(self) -> Timestamp {
        at(i64::try_from(self.task * 7 % 30).unwrap())
    }
}

#[derive(Clone, Debug)]
enum Move {
    Wait(Key),
    Adopt(Key),
    Leave(Key),
    Overdue(Key),
    Cap(usize, Option<usize>),
    Weight(Vec<u32>),
    Next,
}

const NAMESPACES: usize = 4;

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let key = || (0..NAMESPACES, 0..30_usize).prop_map(|(namespace, task)| Key { namespace, task });
    let weights = prop::collection::vec(1..=HEAVIEST, NAMESPACES);
    let one = prop_oneof![
        12 => key().prop_map(Move::Wait),
        2 => key().prop_map(Move::Adopt),
        8 => key().prop_map(Move::Leave),
        1 => key().prop_map(Move::Overdue),
        1 => (0..2_usize, prop::option::of(0..4_usize)).prop_map(|(cluster, cap)| Move::Cap(cluster, cap)),
        1 => weights.prop_map(Move::Weight),
        16 => Just(Move::Next),
    ];
    prop::collection::vec(one, 0..300)
}

/// What the queue should know, and the slots of each namespace while another one could have had them.
struct Model {
    queue: FairQueue,
    weights: Vec<u32>,
    caps: [Option<usize>; 2],
    waiting: BTreeSet<Key>,
    running: BTreeSet<Key>,
    overdue: BTreeSet<Key>,
    /// Slots of each namespace since one of them has had a task that may run without a break.
    turns: [[u64; NAMESPACES]; NAMESPACES],
    /// Namespaces without a slot since the weights changed: their last one counts by the old ones.
    is_old: [bool; NAMESPACES],
}

impl Model {
    fn new() -> Self {
        let mut queue = FairQueue::new(CAPS);
        for (cluster, cap) in CLUSTER_CAPS {
            queue.set_cap(cluster, Some(cap));
        }
        Self {
            queue,
            weights: vec![1; NAMESPACES],
            caps: CLUSTER_CAPS.map(|(_, cap)| Some(cap)),
            waiting: BTreeSet::new(),
            running: BTreeSet::new(),
            overdue: BTreeSet::new(),
            turns: Default::default(),
            is_old: Default::default(),
        }
    }

    fn running_where(&self, fits: impl Fn(&Key) -> bool) -> usize {
        self.running.iter().filter(|key| fits(key)).count()
    }

    /// Jobs on a cluster, those that should have ended among them.
    fn running_on(&self, cluster: Option<&str>) -> usize {
        let overdue = self.overdue.iter().filter(|key| key.cluster() == cluster);
        self.running_where(|key| key.cluster() == cluster) + overdue.count()
    }

    /// Whether nothing but the cap of all together keeps a task from running.
    fn may_run(&self, key: Key) -> bool {
        let has_room = |at: usize| {
            let there = self.running_on(key.cluster());
            self.caps[at].is_none_or(|cap| there < cap)
        };
        let cluster = CLUSTER_CAPS
            .iter()
            .position(|(name, _)| Some(*name) == key.cluster());
        let of_namespace = self.running_where(|other| other.namespace == key.namespace);
        of_namespace < CAPS.per_namespace && cluster.is_none_or(has_room)
    }

    fn act(&mut self, step: Move) -> Result<(), TestCaseError> {
        if let Move::Wait(key) | Move::Adopt(key) | Move::Leave(key) = &step {
            self.overdue.remove(key);
        }
        match step {
            Move::Wait(key) => {
                self.queue.wait(ticket_of(key, &key.uid(), &key.name()));
                if !self.running.contains(&key) {
                    self.waiting.insert(key);
                }
            }
            Move::Adopt(key) => {
                self.queue.adopt(ticket_of(key, &key.uid(), &key.name()));
                self.waiting.remove(&key);
                self.running.insert(key);
            }
            Move::Leave(key) => {
                self.queue.remove(&key.name(), key.created(), &key.uid());
                self.waiting.remove(&key);
                self.running.remove(&key);
            }
            Move::Overdue(key) => {
                self.queue.set_overdue(ticket_of(key, &key.uid(), &key.name()));
                self.waiting.remove(&key);
                self.running.remove(&key);
                self.overdue.insert(key);
            }
            Move::Cap(cluster, cap) => {
                self.queue.set_cap(CLUSTER_CAPS[cluster].0, cap);
                self.caps[cluster] = cap;
            }
            Move::Weight(weights) => self.weigh(weights),
            Move::Next => self.next()?,
        }
        self.check()
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.queue.len(), (self.waiting.len(), self.running.len()));
        for (cluster, _) in CLUSTER_CAPS {
            prop_assert_eq!(running_on(&self.queue, cluster), self.running_on(Some(cluster)));
        }
        // A break, and the count starts over.
        for namespace in 0..NAMESPACES {
            let of_it = |key: &&Key| key.namespace == namespace && self.may_run(**key);
            if self.waiting.iter().find(of_it).is_none() {
                self.turns[namespace] = Default::default();
            }
        }
        Ok(())
    }

    fn weigh(&mut self, weights: Vec<u32>) {
        self.queue.set_weights(shares::weights(&weights));
        self.weights = weights;
        (self.turns, self.is_old) = (Default::default(), [true; NAMESPACES]);
    }

    fn next(&mut self) -> Result<(), TestCaseError> {
        let has_room = self.running.len() < CAPS.total;
        let free: Vec<Key> = self
            .waiting
            .iter()
            .copied()
            .filter(|key| has_room && self.may_run(*key))
            .collect();
        let Some(uid) = self.queue.grant() else {
            prop_assert!(free.is_empty(), "an owner may run and none got a turn: {free:?}");
            return Ok(());
        };
        let key = Key::of(&uid);
        prop_assert!(free.contains(&key), "{key:?} may not run");
        let own = free.iter().filter(|other| other.namespace == key.namespace);
        let oldest = own.min_by_key(|other| (other.created(), other.uid()));
        prop_assert_eq!(oldest, Some(&key), "inside a namespace the oldest goes first");
        self.waiting.remove(&key);
        self.running.insert(key);
        self.count(key.namespace)
    }

    /// While a namespace may run, another has no more slots than its share, and one.
    fn count(&mut self, taker: usize) -> Result<(), TestCaseError> {
        if std::mem::take(&mut self.is_old[taker]) {
            self.turns[taker] = Default::default();
        }
        for other in 0..NAMESPACES {
            let turns = &mut self.turns[other];
            turns[taker] += 1;
            if other != taker && !self.is_old[other] {
                let had = (turns[taker] - 1) * u64::from(self.weights[other]);
                let share = (turns[other] + 1) * u64::from(self.weights[taker]);
                prop_assert!(had <= share, "{other} waits while {taker} had {}", turns[taker]);
            }
        }
        Ok(())
    }
}

fn ticket_of<'a>(key: Key, uid: &'a TaskUid, namespace: &'a str) -> QueuedTask<'a> {
    QueuedTask {
        namespace,
        created: key.created(),
        uid,
        cluster: key.cluster(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("seeds"))),
        ..ProptestConfig::default()
    })]

    /// No cap is ever exceeded, a slot is granted whenever a task may run, the oldest of a namespace goes first, no namespace
    /// waits for more than the share of the others, and in the end every task had its slot.
    ///
    /// Holds: D1.
    #[test]
    fn the_queue_keeps_its_rules_whatever_happens(moves in moves()) {
        let mut model = Model::new();
        for step in moves {
            model.act(step)?;
        }
        // A task that still waits gets its slot once the others have left.
        for key in model.overdue.clone() {
            model.act(Move::Leave(key))?;
        }
        for cluster in 0..CLUSTER_CAPS.len() {
            model.act(Move::Cap(cluster, Some(1)))?;
        }
        while !(model.waiting.is_empty() && model.running.is_empty()) {
            model.act(Move::Next)?;
            if let Some(key) = model.running.first().copied() {
                model.act(Move::Leave(key))?;
            }
        }
        prop_assert!(model.queue.lanes.is_empty() && model.queue.ahead.is_empty());
    }
}
