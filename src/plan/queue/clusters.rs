//! How many Jobs run on each cluster, and who waits until there is room on one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::names::TaskUid;

/// One cluster.
#[derive(Debug, Default)]
struct Cluster {
    /// Tasks in line, parked or running.
    members: usize,
    running: usize,
    cap: Option<usize>,
    /// Those whose turn came while there was no room, by namespace.
    parked: HashMap<Arc<str>, BTreeSet<(Timestamp, TaskUid)>>,
}

impl Cluster {
    fn has_room(&self) -> bool {
        self.cap.is_none_or(|cap| self.running < cap)
    }
}

/// All clusters with a cap, or with something that runs or waits there.
#[derive(Debug, Default)]
pub struct Clusters {
    all: HashMap<Arc<str>, Cluster>,
    /// The cluster of each task in line or running that has one.
    of: HashMap<TaskUid, Arc<str>>,
}

impl Clusters {
    /// Sets the cap of a cluster; whoever may go on because of it.
    pub fn set_cap(&mut self, name: &str, cap: Option<usize>) -> Vec<(Arc<str>, Timestamp, TaskUid)> {
        let Some(cluster) = self.all.get_mut(name) else {
            if cap.is_some() {
                let cluster = Cluster {
                    cap,
                    ..Cluster::default()
                };
                self.all.insert(name.into(), cluster);
            }
            return Vec::new();
        };
        cluster.cap = cap;
        let next = self.next(name);
        self.tidy(name);
        next
    }

    /// Names of the clusters with a cap.
    pub fn capped(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all
            .iter()
            .filter(|(_, cluster)| cluster.cap.is_some())
            .map(|(name, _)| name)
    }

    /// Jobs on each cluster.
    pub fn running(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.all.iter().map(|(name, cluster)| (name, cluster.running))
    }

    /// A task is in line or runs.
    pub fn enter(&mut self, uid: &TaskUid, cluster: Option<&str>) {
        if let Some(name) = cluster
            && !self.of.contains_key(uid)
        {
            let known = self.all.get_key_value(name).map(|(name, _)| Arc::clone(name));
            let name = known.unwrap_or_else(|| name.into());
            self.all.entry(Arc::clone(&name)).or_default().members += 1;
            self.of.insert(uid.clone(), name);
        }
    }

    /// Whether there is room for the task.
    pub fn has_room(&self, uid: &TaskUid) -> bool {
        let cluster = self.of.get(uid).and_then(|name| self.all.get(name));
        cluster.is_none_or(Cluster::has_room)
    }

    /// A task's turn came, but there is no room for it.
    pub fn park(&mut self, namespace: &str, created: Timestamp, uid: TaskUid) {
        let cluster = self.of.get(&uid).and_then(|name| self.all.get_mut(name));
        if let Some(cluster) = cluster {
            cluster
                .parked
                .entry(namespace.into())
                .or_default()
                .insert((created, uid));
        }
    }

    /// Whether a task is parked.
    pub fn is_parked(&self, namespace: &str, created: Timestamp, uid: &TaskUid) -> bool {
        let cluster = self.of.get(uid).and_then(|name| self.all.get(name));
        let lane = cluster.and_then(|cluster| cluster.parked.get(namespace));
        lane.is_some_and(|lane| lane.contains(&(created, uid.clone())))
    }

    /// A parked task gives up; whether it was parked.
    pub fn unpark(&mut self, namespace: &str, created: Timestamp, uid: &TaskUid) -> bool {
        let cluster = self.of.get(uid).and_then(|name| self.all.get_mut(name));
        let Some(lane) = cluster.and_then(|cluster| cluster.parked.get_mut(namespace)) else {
            return false;
        };
        lane.remove(&(created, uid.clone()))
    }

    /// A task runs.
    pub fn start(&mut self, uid: &TaskUid) {
        if let Some(cluster) = self.of.get(uid).and_then(|name| self.all.get_mut(name)) {
            cluster.running += 1;
        }
    }

    /// A task runs no more, or never did; whoever may go on because of it: the oldest of each namespace, because one that is
    /// full itself must not keep the others waiting.
    pub fn leave(&mut self, uid: &TaskUid, was_running: bool) -> Vec<(Arc<str>, Timestamp, TaskUid)> {
        let Some(name) = self.of.remove(uid) else {
            return Vec::new();
        };
        if let Some(cluster) = self.all.get_mut(&name) {
            cluster.members -= 1;
            cluster.running -= usize::from(was_running);
        }
        let next = if was_running { self.next(&name) } else { Vec::new() };
        self.tidy(&name);
        next
    }

    fn next(&mut self, name: &str) -> Vec<(Arc<str>, Timestamp, TaskUid)> {
        let Some(cluster) = self.all.get_mut(name).filter(|cluster| cluster.has_room()) else {
            return Vec::new();
        };
        let first = cluster.parked.iter_mut().filter_map(|(namespace, lane)| {
            let (created, uid) = lane.pop_first()?;
            Some((Arc::clone(namespace), created, uid))
        });
        let first = first.collect();
        cluster.parked.retain(|_, lane| !lane.is_empty());
        first
    }

    fn tidy(&mut self, name: &str) {
        let is_idle = |cluster: &Cluster| cluster.members == 0 && cluster.cap.is_none();
        if self.all.get(name).is_some_and(is_idle) {
            self.all.remove(name);
        }
    }
}
