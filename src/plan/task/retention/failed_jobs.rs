//! Which failed Jobs go before their time: those beyond the newest that are kept for a namespace, and for all together.
//!
//! Each cluster is counted on its own, because each has room of its own. A step costs O(log n) of the failures that are kept.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::names::TaskUid;
use crate::plan::remote::site::Site;

use super::finished::FinishedTask;

/// Failed Jobs of one namespace that are kept on a cluster where no flag says otherwise: more than people read, and a hundred
/// namespaces reach [`KEPT_FAILURES`] together.
pub const KEPT_FAILURES_OF_NAMESPACE: usize = 100;
/// Failed Jobs of all namespaces together that are kept on a cluster where no flag says otherwise: half of the 20,000 Jobs, and as
/// many Secrets, that the chart's quota lets exist. The other half is for the 256 Jobs that run at once, for those that are being
/// deleted, and for what another release has there.
pub const KEPT_FAILURES: usize = 10_000;
/// Longest that a failed Job is kept where no flag says otherwise.
pub const KEPT_AT_MOST: SignedDuration = SignedDuration::from_hours(24);
/// Time between two failures that are cleared early. Each is a read and two deletes: 40 in a second, which is as fast as an API
/// server makes Jobs, so that what is kept does not grow however fast tasks fail.
pub const CLEARING_PACE: Duration = Duration::from_millis(25);

/// How many failed Jobs a hub keeps on one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedJobLimits {
    /// Those of one namespace.
    pub per_namespace: usize,
    /// Those of all namespaces.
    pub total: usize,
}

impl Default for FailedJobLimits {
    fn default() -> Self {
        Self {
            per_namespace: KEPT_FAILURES_OF_NAMESPACE,
            total: KEPT_FAILURES,
        }
    }
}

/// Where a failed Job is kept; `None` is the hub's own cluster.
type FailedJobCluster = Option<Arc<Site>>;

/// Failed tasks whose Job or config Secret is kept.
#[derive(Debug)]
pub(super) struct FailedJobs {
    most: FailedJobLimits,
    /// Where each is, and when it ended.
    known: HashMap<TaskUid, (FailedJobCluster, Arc<str>, Timestamp)>,
    clusters: HashMap<FailedJobCluster, ClusterFailedJobs>,
    /// Clusters with too many, in order of service.
    round: VecDeque<FailedJobCluster>,
    next: Option<Instant>,
}

/// What is kept on one cluster.
#[derive(Debug, Default)]
struct ClusterFailedJobs {
    /// The failures of each namespace, the oldest first.
    of: HashMap<Arc<str>, BTreeSet<(Timestamp, TaskUid)>>,
    /// The namespaces by how many they have.
    sizes: BTreeSet<(usize, Arc<str>)>,
    count: usize,
    is_in_round: bool,
}

impl FailedJobs {
    pub(super) fn new(most: FailedJobLimits) -> Self {
        Self {
            most,
            known: HashMap::new(),
            clusters: HashMap::new(),
            round: VecDeque::new(),
            next: None,
        }
    }

    /// A failed task has something on a cluster that can be removed there.
    pub(super) fn keep(&mut self, cluster: FailedJobCluster, task: FinishedTask<'_>) {
        let known = self.known.get(task.uid);
        let is_there = |(at, of, ended): &(FailedJobCluster, Arc<str>, Timestamp)| {
            *at == cluster && of == task.namespace && *ended == task.ended
        };
        if known.is_some_and(is_there) {
            return;
        }
        self.forget(task.uid);
        let stores = self.clusters.entry(cluster.clone()).or_default();
        stores.change(task.namespace, |store| store.insert(task.key()));
        self.enter(&cluster);
        let entry = (cluster, Arc::clone(task.namespace), task.ended);
        self.known.insert(task.uid.clone(), entry);
    }

    /// A task has nothing there any more, or nothing that can be removed.
    pub(super) fn forget(&mut self, uid: &TaskUid) {
        let Some((cluster, namespace, ended)) = self.known.remove(uid) else {
            return;
        };
        if let Some(stores) = self.clusters.get_mut(&cluster) {
            stores.change(&namespace, |store| store.remove(&(ended, uid.clone())));
            if stores.count == 0 && !stores.is_in_round {
                self.clusters.remove(&cluster);
            }
        }
    }

    /// When a failure may be cleared next; `None` where none is to be.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        (!self.round.is_empty()).then(|| self.next.unwrap_or(now))
    }

    /// The next failure to be cleared, which is not known here any more.
    pub(super) fn take(&mut self, now: Instant) -> Option<TaskUid> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        while let Some(cluster) = self.round.pop_front() {
            let surplus = self.clusters.get_mut(&cluster).and_then(|stores| {
                stores.is_in_round = false;
                stores.surplus(self.most)
            });
            if let Some(uid) = &surplus {
                self.forget(uid);
            }
            self.enter(&cluster);
            if surplus.is_some() {
                self.next = Some(now + CLEARING_PACE);
                return surplus;
            }
        }
        None
    }

    /// Puts a cluster with too many at the end of the round, and forgets one with none.
    fn enter(&mut self, cluster: &FailedJobCluster) {
        let Some(stores) = self.clusters.get_mut(cluster) else {
            return;
        };
        if stores.surplus(self.most).is_some() {
            if !std::mem::replace(&mut stores.is_in_round, true) {
                self.round.push_back(cluster.clone());
            }
        } else if stores.count == 0 && !stores.is_in_round {
            self.clusters.remove(cluster);
        }
    }
}

impl ClusterFailedJobs {
    /// Changes the failed Jobs of a namespace.
    fn change(
        &mut self,
        namespace: &Arc<str>,
        change: impl FnOnce(&mut BTreeSet<(Timestamp, TaskUid)>) -> bool,
    ) {
        let all = self.of.entry(Arc::clone(namespace)).or_default();
        let before = all.len();
        change(all);
        let after = all.len();
        self.count = self.count - before + after;
        self.sizes.remove(&(before, Arc::clone(namespace)));
        if after == 0 {
            self.of.remove(namespace);
        } else {
            self.sizes.insert((after, Arc::clone(namespace)));
        }
    }

    /// The failure that goes first: the oldest of the namespace with the most, where that or all together have too many.
    fn surplus(&self, most: FailedJobLimits) -> Option<TaskUid> {
        let (size, namespace) = self.sizes.last()?;
        if *size <= most.per_namespace && self.count <= most.total {
            return None;
        }
        let (_, uid) = self.of.get(namespace)?.first()?;
        Some(uid.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::remote::site::ClusterName;

    fn uid(n: usize) -> TaskUid {
        TaskUid::new(&format!("u{n:04}"))
    }

    fn finished<'a>(namespace: &'a Arc<str>, second: i64, uid: &'a TaskUid) -> FinishedTask<'a> {
        FinishedTask {
            namespace,
            ended: Timestamp::from_second(second).unwrap(),
            uid,
        }
    }

    fn failures(per_namespace: usize, total: usize) -> FailedJobs {
        FailedJobs::new(FailedJobLimits { per_namespace, total })
    }

    fn site(name: &str) -> Arc<Site> {
        Arc::new(Site {
            cluster: ClusterName::Platform(name.to_owned()),
            namespace: "renders".to_owned(),
        })
    }

    /// Everything that is cleared, as fast as it may be.
    fn cleared(failures: &mut FailedJobs) -> Vec<TaskUid> {
        let mut now = failures.next.unwrap_or_else(Instant::now);
        std::iter::from_fn(|| {
            let taken = failures.take(now);
            now += CLEARING_PACE;
            taken
        })
        .collect()
    }

    /// Holds: B4.
    #[test]
    fn of_a_namespace_the_oldest_go_first_and_one_at_a_time() {
        let (mut failures, team, now) = (failures(2, 100), Arc::from("team"), Instant::now());
        assert_eq!(failures.due(now), None);
        for (n, second) in [30, 10, 40, 20].into_iter().enumerate() {
            failures.keep(None, finished(&team, second, &uid(n)));
        }
        assert_eq!(failures.take(now), Some(uid(1)));
        let next = now + CLEARING_PACE;
        assert_eq!((failures.take(now), failures.due(now)), (None, Some(next)));
        assert_eq!(failures.take(next), Some(uid(3)));
        assert_eq!((failures.take(next), failures.due(next)), (None, None));
        // One that could not be cleared is the oldest again, and one that is gone makes room.
        failures.keep(None, finished(&team, 20, &uid(3)));
        failures.forget(&uid(0));
        assert_eq!(failures.take(next + CLEARING_PACE), None);
        for n in [2, 3] {
            failures.forget(&uid(n));
        }
        assert!(failures.known.is_empty(), "{failures:?}");
        assert!(cleared(&mut failures).is_empty() && failures.clusters.is_empty());
    }

    /// Holds: B4.
    #[test]
    fn where_all_together_are_too_many_the_namespace_with_the_most_gives() {
        let (many, few): (Arc<str>, Arc<str>) = ("many".into(), "few".into());
        let mut failures = failures(50, 12);
        for n in 0..20 {
            failures.keep(None, finished(&many, 100, &uid(n)));
        }
        for n in 20..24 {
            failures.keep(None, finished(&few, 0, &uid(n)));
        }
        let gone = cleared(&mut failures);
        assert_eq!(gone, (0..12).map(uid).collect::<Vec<_>>());
    }

    #[test]
    fn each_cluster_has_room_of_its_own() {
        let (mut failures, team) = (failures(1, 1), Arc::from("team"));
        for (n, cluster) in [None, Some(site("east")), Some(site("west")), Some(site("east"))]
            .into_iter()
            .enumerate()
        {
            failures.keep(cluster, finished(&team, 0, &uid(n)));
        }
        assert_eq!(cleared(&mut failures), [uid(1)]);
        // A task that is kept elsewhere now is counted there.
        failures.keep(None, finished(&team, 9, &uid(3)));
        assert_eq!(cleared(&mut failures), [uid(0)]);
    }

    proptest! {
        /// Holds: B4.
        #[test]
        fn what_is_left_is_within_the_bounds_and_the_newest_of_each(
            ends in prop::collection::vec((0..4_usize, 0..50_i64, any::<bool>()), 0..80),
            per_namespace in 0..10_usize,
            total in 0..30_usize,
        ) {
            let names: Vec<Arc<str>> = ["a", "b", "c", "d"].map(Arc::from).into();
            let mut failures = failures(per_namespace, total);
            let mut left: Vec<BTreeSet<(i64, TaskUid)>> = vec![BTreeSet::new(); 4];
            for (n, (namespace, second, goes)) in ends.iter().enumerate() {
                failures.keep(None, finished(&names[*namespace], *second, &uid(n)));
                if *goes {
                    failures.forget(&uid(n));
                } else {
                    left[*namespace].insert((*second, uid(n)));
                }
            }
            let gone = cleared(&mut failures);
            for all in &mut left {
                let before = all.len();
                while all.first().is_some_and(|(_, oldest)| gone.contains(oldest)) {
                    all.pop_first();
                }
                prop_assert!(all.iter().all(|(_, uid)| !gone.contains(uid)), "not the oldest");
                prop_assert!(all.len() <= per_namespace);
                // Who has less than an equal share loses nothing.
                prop_assert!(before > per_namespace.min(total / 4) || all.len() == before);
            }
            let count: usize = left.iter().map(BTreeSet::len).sum();
            prop_assert!(count <= total);
            prop_assert_eq!((failures.known.len(), failures.due(Instant::now())), (count, None));
        }
    }
}
