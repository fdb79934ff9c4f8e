//! The fair queue: namespaces share the slots by weight, inside one the oldest task goes first, and caps bound what runs.
//!
//! Stride scheduling: each namespace has a virtual time, a slot moves it on by 1/weight, and the smallest goes next. A namespace
//! that was idle, full or waiting for a full cluster comes back at the time of the others, so that none collects credit; one that
//! was ahead of them is still ahead, so that none wins by leaving and coming back. Pure and in memory: after a restart all times
//! are equal, and the order follows from the running tasks and from creation times.
//!
//! Each step costs O(log n) of the tasks and of the namespaces that wait, times the clusters that the tasks of one namespace wait
//! for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;

pub mod backoff;
mod cluster_queues;
pub mod fair_buffer;
mod weights;
pub mod workqueue;

use cluster_queues::{ClusterQueueEntry, ClusterQueues, QueueCluster, QueuePosition};
pub use weights::{HEAVIEST, NamespaceWeights};

/// Virtual time of one slot of weight 1; so fine that the remainders of divisions never add up to a slot, and so far below the
/// whole range that it never runs out.
const SLOT: u128 = 1 << 64;

/// How much may run at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConcurrencyLimits {
    /// Jobs of all tasks.
    pub total: usize,
    /// Jobs of one namespace's tasks.
    pub per_namespace: usize,
}

/// Waiting and running tasks of one namespace.
#[derive(Debug, Default)]
struct NamespaceQueue {
    /// The virtual time of its next slot, or a later one.
    pass: u128,
    /// By the cluster that they go to.
    waiting: BTreeMap<QueueCluster, BTreeSet<QueuePosition>>,
    running: HashSet<TaskUid>,
    /// Its position in the queue of each cluster.
    positions: BTreeMap<QueueCluster, ClusterQueueEntry>,
}

impl NamespaceQueue {
    fn insert(&mut self, cluster: &QueueCluster, head: QueuePosition) -> bool {
        self.waiting.entry(cluster.clone()).or_default().insert(head)
    }

    fn remove(&mut self, cluster: &QueueCluster, head: &QueuePosition) -> bool {
        let Some(line) = self.waiting.get_mut(cluster) else {
            return false;
        };
        let was_there = line.remove(head);
        if line.is_empty() {
            self.waiting.remove(cluster);
        }
        was_there
    }
}

/// Tasks of one namespace that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceQueueDepth {
    /// How many.
    pub tasks: usize,
    /// When the oldest of them was made.
    pub oldest: Timestamp,
}

/// The waiting and running tasks, and the order of the namespaces.
#[derive(Debug)]
pub struct FairQueue {
    caps: ConcurrencyLimits,
    weights: Arc<NamespaceWeights>,
    lanes: HashMap<Arc<str>, NamespaceQueue>,
    /// Namespaces with nothing to do that lately had more slots than their share, by their virtual time.
    ahead: BTreeSet<(u128, Arc<str>)>,
    /// The virtual time of the latest slot.
    now: u128,
    /// The latest virtual time of any namespace.
    latest: u128,
    running: usize,
    waiting: usize,
    gates: ClusterQueues,
    /// Tasks whose Jobs should have ended, and count for their clusters alone.
    overdue: HashSet<TaskUid>,
}

/// A task as the queue knows it.
#[derive(Clone, Copy, Debug)]
pub struct QueuedTask<'a> {
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
    /// An empty queue in which all namespaces have the same weight.
    #[must_use]
    pub fn new(caps: ConcurrencyLimits) -> Self {
        Self {
            caps,
            weights: Arc::default(),
            lanes: HashMap::new(),
            ahead: BTreeSet::new(),
            now: 0,
            latest: 0,
            running: 0,
            waiting: 0,
            gates: ClusterQueues::default(),
            overdue: HashSet::new(),
        }
    }

    /// Sets the weights; they count from the next slot of each namespace on.
    pub fn set_weights(&mut self, weights: Arc<NamespaceWeights>) {
        self.weights = weights;
    }

    /// Puts a task in line, unless it waits or runs already.
    pub fn wait(&mut self, ticket: QueuedTask<'_>) {
        self.forget_overdue(ticket.uid);
        let namespace = self.namespace_queue(ticket.namespace);
        let Some(lane) = self.lanes.get_mut(&namespace) else {
            return;
        };
        if lane.running.contains(ticket.uid) {
            return;
        }
        let cluster = self.gates.enter(ticket.uid, ticket.cluster);
        if lane.insert(&cluster, QueuePosition::new(ticket.created, ticket.uid)) {
            self.waiting += 1;
            self.update_position(&namespace, &cluster);
        }
    }

    /// Counts a task as running without a grant: its Job exists already.
    pub fn adopt(&mut self, ticket: QueuedTask<'_>) {
        self.forget_overdue(ticket.uid);
        let namespace = self.namespace_queue(ticket.namespace);
        let cluster = self.gates.enter(ticket.uid, ticket.cluster);
        let Some(lane) = self.lanes.get_mut(&namespace) else {
            return;
        };
        let head = QueuePosition::new(ticket.created, ticket.uid);
        self.waiting -= usize::from(lane.remove(&cluster, &head));
        if lane.running.insert(ticket.uid.clone()) {
            self.running += 1;
            self.gates.start(&cluster);
        }
        self.update_position(&namespace, &cluster);
        self.update_positions(&namespace);
        self.forget_idle_namespaces();
    }

    /// Gives the slot of a task to others: its cluster has not ended its Job in time, and may never do so. The Job still counts for
    /// the cluster. Returns whether this is new.
    pub fn set_overdue(&mut self, ticket: QueuedTask<'_>) -> bool {
        let is_new = !self.overdue.contains(ticket.uid);
        self.remove(ticket.namespace, ticket.created, ticket.uid);
        let cluster = self.gates.enter(ticket.uid, ticket.cluster);
        self.gates.start(&cluster);
        self.overdue.insert(ticket.uid.clone());
        is_new
    }

    fn forget_overdue(&mut self, uid: &TaskUid) {
        if self.overdue.remove(uid) {
            self.gates.leave(uid, true);
        }
    }

    /// Forgets a task, whether it waits or runs.
    pub fn remove(&mut self, namespace: &str, created: Timestamp, uid: &TaskUid) {
        self.forget_overdue(uid);
        let Some(cluster) = self.gates.of(uid) else { return };
        let Some((namespace, _)) = self.lanes.get_key_value(namespace) else {
            return;
        };
        let namespace = Arc::clone(namespace);
        let Some(lane) = self.lanes.get_mut(&namespace) else {
            return;
        };
        let was_waiting = lane.remove(&cluster, &QueuePosition::new(created, uid));
        let was_full = lane.running.len() >= self.caps.per_namespace;
        let was_running = lane.running.remove(uid);
        if was_running && was_full {
            // It was full, and has not waited for the others.
            lane.pass = lane.pass.max(self.now);
        }
        if !was_waiting && !was_running {
            return;
        }
        self.waiting -= usize::from(was_waiting);
        self.running -= usize::from(was_running);
        self.gates.leave(uid, was_running);
        self.update_position(&namespace, &cluster);
        if was_running {
            self.update_positions(&namespace);
        }
        self.remove_if_idle(&namespace);
        self.forget_idle_namespaces();
    }

    /// Sets how many Jobs may run on a cluster.
    pub fn set_cap(&mut self, cluster: &str, cap: Option<usize>) {
        self.gates.set_cap(cluster, cap);
    }

    /// Clusters that have a cap.
    pub fn capped(&self) -> impl Iterator<Item = &Arc<str>> {
        self.gates.capped()
    }

    /// Jobs that run on each cluster.
    pub fn running_on(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.gates.running()
    }

    /// The next task that may run; it counts as running from now on. Where a task may run, one is granted.
    pub fn grant(&mut self) -> Option<TaskUid> {
        if self.running >= self.caps.total {
            return None;
        }
        let (turn, cluster) = self.gates.next()?;
        let lane = self.lanes.get_mut(&turn.namespace)?;
        lane.remove(&cluster, &turn.head);
        let uid = turn.head.uid.clone();
        lane.running.insert(uid.clone());
        self.now = self.now.max(lane.pass);
        // From the time of the others on, even if it was behind: a full cluster gives no credit either.
        lane.pass = self.now + SLOT / u128::from(self.weights.of(&turn.namespace));
        self.latest = self.latest.max(lane.pass);
        self.waiting -= 1;
        self.running += 1;
        self.gates.start(&cluster);
        self.update_position(&turn.namespace, &cluster);
        self.update_positions(&turn.namespace);
        self.forget_idle_namespaces();
        Some(uid)
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

    /// The namespaces in which tasks wait.
    pub fn depths(&self) -> impl Iterator<Item = (&Arc<str>, NamespaceQueueDepth)> {
        self.lanes.iter().filter_map(|(namespace, lane)| {
            let lines = lane.waiting.values();
            let oldest = lines.filter_map(|line| line.first()).map(|head| head.created);
            let depth = NamespaceQueueDepth {
                oldest: oldest.min()?,
                tasks: lane.waiting.values().map(BTreeSet::len).sum(),
            };
            Some((namespace, depth))
        })
    }

    /// The lane of a namespace; one that was away begins where the others are.
    fn namespace_queue(&mut self, namespace: &str) -> Arc<str> {
        let known = self.lanes.get_key_value(namespace);
        let namespace = known.map_or_else(|| namespace.into(), |(name, _)| Arc::clone(name));
        let lane = self.lanes.entry(Arc::clone(&namespace)).or_default();
        if lane.waiting.is_empty() {
            self.ahead.remove(&(lane.pass, Arc::clone(&namespace)));
            lane.pass = lane.pass.max(self.now);
        }
        namespace
    }

    /// Forgets a namespace with nothing to do, unless it is ahead of the others.
    fn remove_if_idle(&mut self, namespace: &Arc<str>) {
        if let Some(lane) = self.lanes.get(namespace)
            && lane.waiting.is_empty()
            && lane.running.is_empty()
        {
            self.ahead.insert((lane.pass, Arc::clone(namespace)));
        }
    }

    /// Forgets the namespaces that the others have caught up with. Where none waits, none is behind.
    fn forget_idle_namespaces(&mut self) {
        if self.waiting == 0 {
            self.now = self.latest;
        }
        while self.ahead.first().is_some_and(|(pass, _)| *pass <= self.now) {
            if let Some((_, namespace)) = self.ahead.pop_first() {
                self.lanes.remove(&namespace);
            }
        }
    }

    /// Puts a namespace where it belongs in the lines of all clusters that its tasks wait for.
    fn update_positions(&mut self, namespace: &Arc<str>) {
        let Some(lane) = self.lanes.get(namespace) else {
            return;
        };
        let clusters: Vec<QueueCluster> = lane.waiting.keys().cloned().collect();
        for cluster in clusters {
            self.update_position(namespace, &cluster);
        }
    }

    /// Puts a namespace where it belongs in the line of a cluster, or takes it out of it.
    fn update_position(&mut self, namespace: &Arc<str>, cluster: &QueueCluster) {
        let Some(lane) = self.lanes.get_mut(namespace) else {
            return;
        };
        let is_full = lane.running.len() >= self.caps.per_namespace;
        let head = lane.waiting.get(cluster).and_then(BTreeSet::first);
        let turn = head.filter(|_| !is_full).map(|head| ClusterQueueEntry {
            pass: lane.pass,
            running: lane.running.len(),
            head: head.clone(),
            namespace: Arc::clone(namespace),
        });
        let known = match &turn {
            Some(turn) => lane.positions.insert(cluster.clone(), turn.clone()),
            None => lane.positions.remove(cluster),
        };
        if known != turn {
            self.gates.swap(cluster, known.as_ref(), turn);
        }
    }
}

#[cfg(test)]
mod tests;
