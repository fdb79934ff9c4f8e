//! Which finished tasks are removed, and how fast: those whose own time to live is over, and those beyond the newest of their
//! namespace that are kept. And which failed Jobs are removed before their time.
//!
//! Removals have a rate of their own, shared by all namespaces in turn: tasks that ended while no hub ran are removed no faster
//! than those that end now. Pure, with the clock passed in; a step costs O(log n) of the tasks in it, which are the newest of
//! each namespace and those that wait for their removal.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;
use crate::plan::remote::site::Site;

mod failed_jobs;
mod finished;

use failed_jobs::FailedJobs;
pub use failed_jobs::{
    CLEARING_PACE, FailedJobLimits, KEPT_AT_MOST, KEPT_FAILURES, KEPT_FAILURES_OF_NAMESPACE,
};
pub use finished::FinishedTask;

/// Time between two removals. Each is a read, a delete and a patch: 20 in a second are a small part of what an API server does,
/// and 1.7 million in a day.
pub const PACE: Duration = Duration::from_millis(50);

/// Whether a finished task may be removed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemovalState {
    /// Not yet: whatever is due, others are before it.
    #[default]
    Waits,
    /// If its own time to live is over.
    Expired,
    /// Whatever its time to live is: enough newer ones are kept.
    Surplus,
    /// Not the task, but what it left when it failed: enough newer failures are kept.
    Crowded,
}

/// Finished tasks of one namespace, oldest first.
#[derive(Debug, Default)]
struct NamespaceHistory {
    /// Those that count among the kept.
    kept: BTreeSet<(Timestamp, TaskUid)>,
    /// Those whose time to live is over.
    expired: BTreeSet<(Timestamp, TaskUid)>,
    is_in_round: bool,
}

/// Finished tasks that are kept, and those that wait for their removal.
#[derive(Debug)]
pub struct Retention {
    /// How many of a namespace are kept; `None` is all.
    keep: Option<usize>,
    lanes: HashMap<Arc<str>, NamespaceHistory>,
    /// Namespaces with tasks to remove, in order of service.
    round: VecDeque<Arc<str>>,
    next: Option<Instant>,
    failures: FailedJobs,
}

impl Retention {
    /// Nothing finished yet.
    #[must_use]
    pub fn new(keep: Option<usize>, failures: FailedJobLimits) -> Self {
        Self {
            failures: FailedJobs::new(failures),
            keep,
            lanes: HashMap::new(),
            round: VecDeque::new(),
            next: None,
        }
    }

    /// A task is finished, and nothing of it is left but itself.
    pub fn keep(&mut self, task: FinishedTask<'_>) {
        self.failures.forget(task.uid);
        if self.keep.is_some() {
            self.history(task.namespace).kept.insert(task.key());
            self.enqueue_namespace(task.namespace);
        }
    }

    /// A task failed, and its Job or its config Secret is kept on a cluster from which it can be removed; `None` is the hub's.
    pub fn keep_failure(&mut self, cluster: Option<Arc<Site>>, task: FinishedTask<'_>) {
        self.forget(task);
        self.failures.keep(cluster, task);
    }

    /// The time to live of a task is over.
    pub fn expire(&mut self, task: FinishedTask<'_>) {
        self.history(task.namespace).expired.insert(task.key());
        self.enqueue_namespace(task.namespace);
    }

    /// A task is gone, or not to be removed from here.
    pub fn forget(&mut self, task: FinishedTask<'_>) {
        self.failures.forget(task.uid);
        let Some(lane) = self.lanes.get_mut(&**task.namespace) else {
            return;
        };
        lane.kept.remove(&task.key());
        lane.expired.remove(&task.key());
        self.remove_if_empty(task.namespace);
    }

    /// When something may be removed next; `None` where nothing is to be.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let removal = (!self.round.is_empty()).then(|| self.next.unwrap_or(now));
        removal.into_iter().chain(self.failures.due(now)).min()
    }

    /// The next task to be removed, and why; it is not known here any more. Who cannot be removed comes back in its place.
    pub fn take(&mut self, now: Instant) -> Option<(TaskUid, RemovalState)> {
        let crowded = self.failures.take(now).map(|uid| (uid, RemovalState::Crowded));
        crowded.or_else(|| self.take_task(now))
    }

    fn take_task(&mut self, now: Instant) -> Option<(TaskUid, RemovalState)> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        while let Some(namespace) = self.round.pop_front() {
            let (Some(lane), most) = (self.lanes.get_mut(&namespace), self.keep) else {
                continue;
            };
            lane.is_in_round = false;
            let taken = lane.take(most);
            self.enqueue_namespace(&namespace);
            self.remove_if_empty(&namespace);
            if taken.is_some() {
                self.next = Some(now + PACE);
                return taken;
            }
        }
        None
    }

    fn history(&mut self, namespace: &Arc<str>) -> &mut NamespaceHistory {
        self.lanes.entry(Arc::clone(namespace)).or_default()
    }

    /// Puts a namespace with something to remove at the end of the round.
    fn enqueue_namespace(&mut self, namespace: &Arc<str>) {
        let most = self.keep;
        if let Some(lane) = self.lanes.get_mut(namespace)
            && lane.has_work(most)
            && !lane.is_in_round
        {
            lane.is_in_round = true;
            self.round.push_back(Arc::clone(namespace));
        }
    }

    fn remove_if_empty(&mut self, namespace: &Arc<str>) {
        let is_idle =
            |lane: &NamespaceHistory| lane.kept.is_empty() && lane.expired.is_empty() && !lane.is_in_round;
        if self.lanes.get(namespace).is_some_and(is_idle) {
            self.lanes.remove(namespace);
        }
    }
}

impl NamespaceHistory {
    fn has_too_many(&self, most: Option<usize>) -> bool {
        most.is_some_and(|most| self.kept.len() > most)
    }

    fn has_work(&self, most: Option<usize>) -> bool {
        !self.expired.is_empty() || self.has_too_many(most)
    }

    fn take(&mut self, most: Option<usize>) -> Option<(TaskUid, RemovalState)> {
        if let Some(key) = self.expired.pop_first() {
            self.kept.remove(&key);
            return Some((key.1, RemovalState::Expired));
        }
        if !self.has_too_many(most) {
            return None;
        }
        let (_, uid) = self.kept.pop_first()?;
        Some((uid, RemovalState::Surplus))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn retention(keep: Option<usize>) -> Retention {
        Retention::new(keep, FailedJobLimits::default())
    }

    fn finished<'a>(namespace: &'a Arc<str>, second: i64, uid: &'a TaskUid) -> FinishedTask<'a> {
        FinishedTask {
            namespace,
            ended: Timestamp::from_second(second).unwrap(),
            uid,
        }
    }

    fn uid(n: usize) -> TaskUid {
        TaskUid::new(&format!("u{n:04}"))
    }

    /// Everything that is removed within so many paces.
    fn taken(retention: &mut Retention, mut now: Instant, paces: u32) -> Vec<(TaskUid, RemovalState)> {
        let mut all = Vec::new();
        for _ in 0..paces {
            all.extend(retention.take(now));
            now += PACE;
        }
        all
    }

    #[test]
    fn the_oldest_beyond_the_kept_go_and_one_at_a_time() {
        let (mut retention, team, now) = (retention(Some(2)), "team".into(), Instant::now());
        assert_eq!(retention.due(now), None);
        for (n, second) in [30, 10, 40, 20].into_iter().enumerate() {
            retention.keep(finished(&team, second, &uid(n)));
        }
        assert_eq!(retention.due(now), Some(now));
        assert_eq!(retention.take(now), Some((uid(1), RemovalState::Surplus)));
        assert_eq!(
            (retention.take(now), retention.due(now)),
            (None, Some(now + PACE))
        );
        assert_eq!(retention.take(now + PACE), Some((uid(3), RemovalState::Surplus)));
        assert_eq!((retention.take(now + PACE * 9), retention.due(now)), (None, None));
        // One that could not be removed is the oldest again.
        retention.keep(finished(&team, 20, &uid(3)));
        assert_eq!(
            retention.take(now + PACE * 9),
            Some((uid(3), RemovalState::Surplus))
        );
        // One of the kept goes by itself, and another takes its place.
        retention.forget(finished(&team, 30, &uid(0)));
        retention.keep(finished(&team, 50, &uid(5)));
        assert_eq!(retention.take(now + PACE * 19), None);
    }

    #[test]
    fn a_namespace_with_many_does_not_keep_another_waiting() {
        let (mut retention, now) = (retention(Some(0)), Instant::now());
        let (many, few): (Arc<str>, Arc<str>) = ("many".into(), "few".into());
        for n in 0..1000 {
            retention.keep(finished(&many, 0, &uid(n)));
        }
        retention.expire(finished(&few, 9, &uid(5000)));
        let first = taken(&mut retention, now, 2);
        assert!(first.contains(&(uid(5000), RemovalState::Expired)), "{first:?}");
    }

    #[test]
    fn without_a_number_only_those_go_whose_time_to_live_is_over() {
        let (mut retention, team, now) = (retention(None), "team".into(), Instant::now());
        for n in 0..100 {
            retention.keep(finished(&team, 0, &uid(n)));
        }
        assert!(retention.lanes.is_empty() && retention.due(now).is_none());
        retention.expire(finished(&team, 0, &uid(7)));
        assert_eq!(taken(&mut retention, now, 9), [(uid(7), RemovalState::Expired)]);
        assert!(retention.lanes.is_empty(), "nothing is remembered of what went");
    }

    #[test]
    fn what_a_failed_task_left_is_counted_apart_from_the_tasks() {
        let most = FailedJobLimits {
            per_namespace: 1,
            total: 9,
        };
        let (mut retention, team, now) = (Retention::new(Some(1), most), "team".into(), Instant::now());
        retention.keep_failure(None, finished(&team, 10, &uid(1)));
        retention.keep_failure(None, finished(&team, 20, &uid(2)));
        retention.keep(finished(&team, 5, &uid(3)));
        assert_eq!(retention.due(now), Some(now));
        assert_eq!(retention.take(now), Some((uid(1), RemovalState::Crowded)));
        assert_eq!(retention.due(now), None);
        // Once it is cleared it is one of the finished tasks.
        retention.keep(finished(&team, 10, &uid(1)));
        assert_eq!(taken(&mut retention, now, 9), [(uid(3), RemovalState::Surplus)]);
    }

    proptest! {
        #[test]
        fn exactly_the_newest_are_left(
            ends in prop::collection::vec((0..3_usize, 0..50_i64), 0..80),
            most in 0..10_usize,
        ) {
            let names: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
            let mut retention = retention(Some(most));
            let mut left: Vec<BTreeSet<(i64, TaskUid)>> = vec![BTreeSet::new(); 3];
            for (n, (namespace, second)) in ends.iter().enumerate() {
                retention.keep(finished(&names[*namespace], *second, &uid(n)));
                left[*namespace].insert((*second, uid(n)));
            }
            let gone = taken(&mut retention, Instant::now(), 100);
            for mut all in left {
                let surplus = all.len().saturating_sub(most);
                for _ in 0..surplus {
                    let (_, oldest) = all.pop_first().unwrap();
                    prop_assert!(gone.contains(&(oldest, RemovalState::Surplus)));
                }
                prop_assert!(all.iter().all(|(_, uid)| gone.iter().all(|(gone, _)| gone != uid)));
            }
        }
    }
}
