//! How long events are with the engine before a request leaves for them, and what they wait for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::api::names::TaskUid;
use crate::base::metrics::journey::{Journey, Runs, Wait};
use crate::plan::queue::workqueue::Pool;

/// The events of tasks that no request left for yet.
#[derive(Debug, Default)]
pub(super) struct Journeys {
    of: HashMap<TaskUid, Leg>,
    /// How long the hub was without a claim, and since when it is.
    fenced: Duration,
    fenced_since: Option<Instant>,
}

/// A part of a journey that is not over.
#[derive(Debug)]
struct Leg {
    journey: Journey,
    /// `None` for a worker: which pool it waits for is known at the end.
    wait: Option<Wait>,
    since: Instant,
    /// How long the hub had been without a claim by then.
    fenced: Duration,
}

impl Journeys {
    /// Takes in whether the hub has a claim now.
    pub(super) fn fence(&mut self, is_fenced: bool, now: Instant) {
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
            self.put(uid, Journey::new(arrived), None, arrived);
        }
    }

    /// A task waits for something, or for a worker.
    pub(super) fn put(&mut self, uid: &TaskUid, journey: Journey, wait: Option<Wait>, since: Instant) {
        let leg = Leg {
            journey,
            wait,
            since,
            fenced: self.fenced(since),
        };
        self.of.insert(uid.clone(), leg);
    }

    /// The wait of a task is over.
    fn take(&mut self, uid: &TaskUid, worker: Wait, now: Instant) -> Option<Journey> {
        let fenced = self.fenced(now);
        let mut leg = self.of.remove(uid)?;
        let waited = now.saturating_duration_since(leg.since);
        let without_claim = fenced.saturating_sub(leg.fenced).min(waited);
        leg.journey.waited(Wait::Lease, without_claim);
        leg.journey
            .waited(leg.wait.unwrap_or(worker), waited.saturating_sub(without_claim));
        Some(leg.journey)
    }

    /// A task has its slot, and waits for a worker again.
    pub(super) fn has_turn(&mut self, uid: &TaskUid, now: Instant) {
        if let Some(journey) = self.take(uid, Wait::Turn, now) {
            self.put(uid, journey, None, now);
        }
    }

    /// A task waits until its cluster may be asked again.
    pub(super) fn has_to_wait(&mut self, uid: &TaskUid, waited_for: Option<&Pool>, now: Instant) {
        if let Some(journey) = self.take(uid, worker(waited_for), now) {
            self.put(uid, journey, Some(Wait::Pace), now);
        }
    }

    /// A worker has the task.
    pub(super) fn depart(
        &mut self,
        uid: &TaskUid,
        waited_for: Option<&Pool>,
        runs: Runs,
        now: Instant,
    ) -> Option<Journey> {
        let mut journey = self.take(uid, worker(waited_for), now)?;
        journey.set_runs(runs);
        Some(journey)
    }

    /// A pass of the task ended: what arrived meanwhile waited for that pass, and waits for a worker from now on.
    pub(super) fn pass_ended(&mut self, uid: &TaskUid, now: Instant) {
        if self.of.get(uid).is_some_and(|leg| leg.wait.is_none())
            && let Some(journey) = self.take(uid, Wait::Pass, now)
        {
            self.put(uid, journey, None, now);
        }
    }

    /// Nothing is to be done for the events of a task.
    pub(super) fn forget(&mut self, uid: &TaskUid) {
        self.of.remove(uid);
    }
}

/// What a task waited for whose owner had to wait for this pool last.
fn worker(waited_for: Option<&Pool>) -> Wait {
    match waited_for {
        None | Some(Pool::Here | Pool::Elsewhere) => Wait::Worker,
        Some(Pool::Namespace(_)) => Wait::Namespace,
        Some(Pool::Cluster(_) | Pool::OwnClusters(_)) => Wait::Cluster,
        Some(Pool::Large(pool)) => worker(Some(pool.as_ref())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds: B24.
    #[test]
    fn what_a_task_waits_for_is_told_apart_and_the_earliest_event_counts() {
        let (uid, begin) = (TaskUid::new("task"), Instant::now());
        let at = |second| begin + Duration::from_secs(second);
        let mut journeys = Journeys::default();
        journeys.begin(&uid, at(0));
        journeys.begin(&uid, at(1));
        journeys.fence(true, at(2));
        journeys.fence(true, at(3));
        journeys.fence(false, at(6));
        let full = Pool::Cluster("west".into());
        journeys.has_to_wait(&uid, Some(&full), at(10));
        let journey = journeys
            .depart(&uid, Some(&full), Runs::Elsewhere, at(30))
            .unwrap();
        assert!(journeys.of.is_empty());
        journeys.put(&uid, journey, Some(Wait::Turn), at(31));
        journeys.has_turn(&uid, at(71));
        let journey = journeys
            .depart(&uid, Some(&Pool::Here), Runs::Elsewhere, at(72))
            .unwrap();
        let mut expected = Journey::new(at(0));
        expected.set_runs(Runs::Elsewhere);
        for (wait, seconds) in [
            (Wait::Lease, 4),
            (Wait::Cluster, 6),
            (Wait::Pace, 20),
            (Wait::Turn, 40),
            (Wait::Worker, 1),
        ] {
            expected.waited(wait, Duration::from_secs(seconds));
        }
        assert_eq!(journey, expected);
        assert!(journeys.depart(&uid, None, Runs::Here, at(73)).is_none());
    }

    /// Holds: B24.
    #[test]
    fn what_arrives_during_a_pass_of_its_task_waits_for_that_pass_first() {
        let (uid, begin) = (TaskUid::new("task"), Instant::now());
        let at = |second| begin + Duration::from_secs(second);
        let mut journeys = Journeys::default();
        journeys.pass_ended(&uid, at(0));
        journeys.begin(&uid, at(1));
        journeys.pass_ended(&uid, at(6));
        let journey = journeys.depart(&uid, None, Runs::Here, at(8)).unwrap();
        let mut expected = Journey::new(at(1));
        expected.waited(Wait::Pass, Duration::from_secs(5));
        expected.waited(Wait::Worker, Duration::from_secs(2));
        assert_eq!(journey, expected);
        // What the pass itself left to wait for a slot goes on waiting for it.
        journeys.put(&uid, journey, Some(Wait::Turn), at(9));
        journeys.pass_ended(&uid, at(10));
        journeys.has_turn(&uid, at(19));
        let journey = journeys.depart(&uid, None, Runs::Here, at(19)).unwrap();
        expected.waited(Wait::Turn, Duration::from_secs(10));
        assert_eq!(journey, expected);
    }
}
