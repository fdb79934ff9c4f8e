//! How long events are with the controller before a request leaves for them, and what they wait for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::api::names::TaskUid;
use crate::base::metrics::event_latency::{EventLatency, TaskLocation, WaitReason};
use crate::plan::queue::workqueue::ConcurrencyPool;

/// The events of tasks that no request left for yet.
#[derive(Debug, Default)]
pub(super) struct EventLatencies {
    of: HashMap<TaskUid, OpenEventLatency>,
    /// How long the hub was without its Lease, and since when it is.
    fenced: Duration,
    fenced_since: Option<Instant>,
}

/// A part of an event latency that is not over.
#[derive(Debug)]
struct OpenEventLatency {
    latency: EventLatency,
    /// `None` for a worker: which pool it waits for is known at the end.
    wait: Option<WaitReason>,
    since: Instant,
    /// How long the hub had been without its Lease by then.
    fenced: Duration,
}

impl EventLatencies {
    /// Records whether the hub holds its Lease now.
    pub(super) fn set_fenced(&mut self, is_fenced: bool, now: Instant) {
        if is_fenced {
            self.fenced_since.get_or_insert(now);
        } else {
            self.fenced = self.fenced(now);
            self.fenced_since = None;
        }
    }

    fn fenced(&self, now: Instant) -> Duration {
        let since = self
            .fenced_since
            .map(|since| now.saturating_duration_since(since));
        self.fenced + since.unwrap_or_default()
    }

    /// An event makes a task wait for a worker; the earliest one counts.
    pub(super) fn begin(&mut self, uid: &TaskUid, arrived: Instant) {
        if !self.of.contains_key(uid) {
            self.put(uid, EventLatency::new(arrived), None, arrived);
        }
    }

    /// A task waits for something, or for a worker.
    pub(super) fn put(
        &mut self,
        uid: &TaskUid,
        latency: EventLatency,
        wait: Option<WaitReason>,
        since: Instant,
    ) {
        let leg = OpenEventLatency {
            latency,
            wait,
            since,
            fenced: self.fenced(since),
        };
        self.of.insert(uid.clone(), leg);
    }

    /// The wait of a task is over.
    fn take(&mut self, uid: &TaskUid, worker: WaitReason, now: Instant) -> Option<EventLatency> {
        let fenced = self.fenced(now);
        let mut leg = self.of.remove(uid)?;
        let waited = now.saturating_duration_since(leg.since);
        let without_claim = fenced.saturating_sub(leg.fenced).min(waited);
        leg.latency.waited(WaitReason::Lease, without_claim);
        leg.latency
            .waited(leg.wait.unwrap_or(worker), waited.saturating_sub(without_claim));
        Some(leg.latency)
    }

    /// A task has its slot, and waits for a worker again.
    pub(super) fn got_slot(&mut self, uid: &TaskUid, now: Instant) {
        if let Some(latency) = self.take(uid, WaitReason::Turn, now) {
            self.put(uid, latency, None, now);
        }
    }

    /// A task waits until its cluster may be asked again.
    pub(super) fn wait_for_cluster(
        &mut self,
        uid: &TaskUid,
        waited_for: Option<&ConcurrencyPool>,
        now: Instant,
    ) {
        if let Some(latency) = self.take(uid, worker(waited_for), now) {
            self.put(uid, latency, Some(WaitReason::Pace), now);
        }
    }

    /// A worker has the task.
    pub(super) fn started(
        &mut self,
        uid: &TaskUid,
        waited_for: Option<&ConcurrencyPool>,
        runs: TaskLocation,
        now: Instant,
    ) -> Option<EventLatency> {
        let mut latency = self.take(uid, worker(waited_for), now)?;
        latency.set_runs(runs);
        Some(latency)
    }

    /// A reconcile of the task ended: what arrived meanwhile waited for that reconcile, and waits for a worker from now on.
    pub(super) fn pass_ended(&mut self, uid: &TaskUid, now: Instant) {
        if self.of.get(uid).is_some_and(|leg| leg.wait.is_none())
            && let Some(latency) = self.take(uid, WaitReason::Pass, now)
        {
            self.put(uid, latency, None, now);
        }
    }

    /// Nothing is to be done for the events of a task.
    pub(super) fn forget(&mut self, uid: &TaskUid) {
        self.of.remove(uid);
    }
}

/// What a task waited for whose owner had to wait for this pool last.
fn worker(waited_for: Option<&ConcurrencyPool>) -> WaitReason {
    match waited_for {
        None | Some(ConcurrencyPool::Here | ConcurrencyPool::Elsewhere) => WaitReason::Worker,
        Some(ConcurrencyPool::Namespace(_)) => WaitReason::Namespace,
        Some(ConcurrencyPool::Cluster(_) | ConcurrencyPool::OwnClusters(_)) => WaitReason::Cluster,
        Some(ConcurrencyPool::Large(pool)) => worker(Some(pool.as_ref())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds: B24.
    #[test]
    fn the_waits_of_a_task_are_distinguished_and_the_earliest_event_counts() {
        let (uid, begin) = (TaskUid::new("task"), Instant::now());
        let at = |second| begin + Duration::from_secs(second);
        let mut waits = EventLatencies::default();
        waits.begin(&uid, at(0));
        waits.begin(&uid, at(1));
        waits.set_fenced(true, at(2));
        waits.set_fenced(true, at(3));
        waits.set_fenced(false, at(6));
        let full = ConcurrencyPool::Cluster("west".into());
        waits.wait_for_cluster(&uid, Some(&full), at(10));
        let latency = waits
            .started(&uid, Some(&full), TaskLocation::Elsewhere, at(30))
            .unwrap();
        assert!(waits.of.is_empty());
        waits.put(&uid, latency, Some(WaitReason::Turn), at(31));
        waits.got_slot(&uid, at(71));
        let latency = waits
            .started(
                &uid,
                Some(&ConcurrencyPool::Here),
                TaskLocation::Elsewhere,
                at(72),
            )
            .unwrap();
        let mut expected = EventLatency::new(at(0));
        expected.set_runs(TaskLocation::Elsewhere);
        for (wait, seconds) in [
            (WaitReason::Lease, 4),
            (WaitReason::Cluster, 6),
            (WaitReason::Pace, 20),
            (WaitReason::Turn, 40),
            (WaitReason::Worker, 1),
        ] {
            expected.waited(wait, Duration::from_secs(seconds));
        }
        assert_eq!(latency, expected);
        assert!(waits.started(&uid, None, TaskLocation::Here, at(73)).is_none());
    }

    /// Holds: B24.
    #[test]
    fn what_arrives_during_a_pass_of_its_task_waits_for_that_pass_first() {
        let (uid, begin) = (TaskUid::new("task"), Instant::now());
        let at = |second| begin + Duration::from_secs(second);
        let mut waits = EventLatencies::default();
        waits.pass_ended(&uid, at(0));
        waits.begin(&uid, at(1));
        waits.pass_ended(&uid, at(6));
        let latency = waits.started(&uid, None, TaskLocation::Here, at(8)).unwrap();
        let mut expected = EventLatency::new(at(1));
        expected.waited(WaitReason::Pass, Duration::from_secs(5));
        expected.waited(WaitReason::Worker, Duration::from_secs(2));
        assert_eq!(latency, expected);
        // What the reconcile itself left to wait for a slot goes on waiting for it.
        waits.put(&uid, latency, Some(WaitReason::Turn), at(9));
        waits.pass_ended(&uid, at(10));
        waits.got_slot(&uid, at(19));
        let latency = waits.started(&uid, None, TaskLocation::Here, at(19)).unwrap();
        expected.waited(WaitReason::Turn, Duration::from_secs(10));
        assert_eq!(latency, expected);
    }
}
