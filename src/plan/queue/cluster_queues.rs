//! The queues of the clusters: which namespaces have tasks for each, in which order, and whether there is a free slot.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;

/// A cluster that may have a cap; `None` is all others together, which have none.
pub type QueueCluster = Option<Arc<str>>;

/// A task in line: older ones go first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// When it was made.
    pub created: Timestamp,
    /// Which it is.
    pub uid: TaskUid,
}

impl QueuePosition {
    /// The position of a task.
    pub fn new(created: Timestamp, uid: &TaskUid) -> Self {
        Self {
            created,
            uid: uid.clone(),
        }
    }
}

impl Ord for QueuePosition {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        comparisons::count();
        let by_age = self.created.cmp(&other.created);
        by_age.then_with(|| self.uid.cmp(&other.uid))
    }
}

impl PartialOrd for QueuePosition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A namespace in the queue of a cluster: the smallest virtual time goes first, then the one with less at work, then the oldest
/// task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterQueueEntry {
    /// Its virtual time.
    pub pass: u128,
    /// What it has at work.
    pub running: usize,
    /// Its oldest task that goes there.
    pub head: QueuePosition,
    /// Which it is.
    pub namespace: Arc<str>,
}

impl Ord for ClusterQueueEntry {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        comparisons::count();
        let by_time = self
            .pass
            .cmp(&other.pass)
            .then_with(|| self.running.cmp(&other.running))
            .then_with(|| self.head.cmp(&other.head));
        by_time.then_with(|| self.namespace.cmp(&other.namespace))
    }
}

impl PartialOrd for ClusterQueueEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What is before one cluster, and on it.
#[derive(Debug, Default)]
struct ClusterQueue {
    /// Tasks that wait for it or run there.
    members: usize,
    running: usize,
    cap: Option<usize>,
    line: BTreeSet<ClusterQueueEntry>,
}

impl ClusterQueue {
    /// The namespace that may go next, if there is a free slot.
    fn first(&self) -> Option<&ClusterQueueEntry> {
        let has_room = self.cap.is_none_or(|cap| self.running < cap);
        self.line.first().filter(|_| has_room)
    }
}

/// The lines before all clusters.
#[derive(Debug, Default)]
pub struct ClusterQueues {
    /// Clusters with a cap, or with something that runs or waits there.
    all: HashMap<Arc<str>, ClusterQueue>,
    /// All others together.
    others: ClusterQueue,
    /// The cluster of each task that waits or runs.
    of: HashMap<TaskUid, QueueCluster>,
    /// Of each queue of a cluster with a free slot, the namespace that may go next.
    open: BTreeSet<(ClusterQueueEntry, QueueCluster)>,
}

impl ClusterQueues {
    /// Sets the cap of a cluster.
    pub fn set_cap(&mut self, name: &str, cap: Option<usize>) {
        let cluster = self.intern(name);
        self.change(&Some(cluster), |gate| gate.cap = cap);
    }

    /// Names of the clusters with a cap.
    pub fn capped(&self) -> impl Iterator<Item = &Arc<str>> {
        let capped = self.all.iter().filter(|(_, gate)| gate.cap.is_some());
        capped.map(|(name, _)| name)
    }

    /// Jobs on each cluster.
    pub fn running(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.all.iter().map(|(name, gate)| (name, gate.running))
    }

    /// The next namespace and cluster: of all queues of clusters with a free slot, the first by virtual time.
    pub fn next(&self) -> Option<(ClusterQueueEntry, QueueCluster)> {
        self.open.first().cloned()
    }

    /// A task waits or runs; the cluster that it is counted for.
    pub fn enter(&mut self, uid: &TaskUid, cluster: Option<&str>) -> QueueCluster {
        if let Some(known) = self.of.get(uid) {
            return known.clone();
        }
        let cluster = cluster.map(|name| self.intern(name));
        self.of.insert(uid.clone(), cluster.clone());
        self.change(&cluster, |gate| gate.members += 1);
        cluster
    }

    /// The cluster that a task is counted for.
    pub fn of(&self, uid: &TaskUid) -> Option<QueueCluster> {
        self.of.get(uid).cloned()
    }

    /// A task of a cluster runs.
    pub fn start(&mut self, cluster: &QueueCluster) {
        self.change(cluster, |gate| gate.running += 1);
    }

    /// A task runs no more, or never did.
    pub fn leave(&mut self, uid: &TaskUid, was_running: bool) {
        if let Some(cluster) = self.of.remove(uid) {
            self.change(&cluster, |gate| {
                gate.members -= 1;
                gate.running -= usize::from(was_running);
            });
        }
    }

    /// A namespace has another place in the line before a cluster, or none any more.
    pub fn swap(
        &mut self,
        cluster: &QueueCluster,
        old: Option<&ClusterQueueEntry>,
        new: Option<ClusterQueueEntry>,
    ) {
        self.change(cluster, |gate| {
            if let Some(old) = old {
                gate.line.remove(old);
            }
            gate.line.extend(new);
        });
    }

    fn intern(&self, name: &str) -> Arc<str> {
        let known = self.all.get_key_value(name);
        known.map_or_else(|| name.into(), |(name, _)| Arc::clone(name))
    }

    /// Changes a cluster's queue, and with it the namespace that may go next.
    fn change(&mut self, cluster: &QueueCluster, change: impl FnOnce(&mut ClusterQueue)) {
        let gate = match cluster {
            Some(name) => self.all.entry(Arc::clone(name)).or_default(),
            None => &mut self.others,
        };
        let before = gate.first().cloned();
        change(gate);
        let after = gate.first().cloned();
        let is_idle = gate.members == 0 && gate.cap.is_none() && gate.line.is_empty();
        if before != after {
            if let Some(before) = before {
                self.open.remove(&(before, cluster.clone()));
            }
            self.open.extend(after.map(|after| (after, cluster.clone())));
        }
        if let Some(name) = cluster.as_ref().filter(|_| is_idle) {
            self.all.remove(name);
        }
    }
}

/// Counts comparisons, because only their number shows how the work of a step grows; a clock would show the machine.
#[cfg(test)]
pub mod comparisons {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        COUNT.set(COUNT.get() + 1);
    }

    /// Comparisons that something takes.
    pub fn of<T>(act: impl FnOnce() -> T) -> usize {
        COUNT.set(0);
        act();
        COUNT.get()
    }
}
