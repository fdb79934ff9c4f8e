//! The slots in which Jobs run: who waits for one, and what is shown of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

use crate::base::metrics::{Metrics, QueueSample};
use crate::plan::platform::catalog::Catalog;
use crate::plan::queue::{ConcurrencyLimits, FairQueue};

/// Time between two updates of the metrics by namespace, each of which costs a step for each namespace.
const LOOK: Duration = Duration::from_secs(1);

/// The fair queue, and what others are told of it.
pub(super) struct JobSlots {
    pub(super) queue: FairQueue,
    /// How many Jobs run on each of the platform's clusters.
    active: watch::Sender<Arc<BTreeMap<String, usize>>>,
    /// When the metrics by namespace are next updated; `None` while no task waits.
    pub(super) look_due: Option<Instant>,
}

impl JobSlots {
    /// No task waits or runs.
    pub(super) fn new(caps: ConcurrencyLimits, active: watch::Sender<Arc<BTreeMap<String, usize>>>) -> Self {
        Self {
            queue: FairQueue::new(caps),
            active,
            look_due: None,
        }
    }

    /// Updates the caps of clusters and the weights of namespaces from the catalog.
    pub(super) fn update_limits(&mut self, catalog: &Catalog) {
        self.queue.set_weights(Arc::clone(&catalog.weights));
        let capped = self.queue.capped();
        let gone: Vec<_> = capped
            .filter(|name| !catalog.clusters.contains_key(&***name))
            .map(Arc::clone)
            .collect();
        for name in gone {
            self.queue.set_cap(&name, None);
        }
        for (name, cluster) in &catalog.clusters {
            let cap = cluster.spec.max_active_jobs;
            self.queue
                .set_cap(name, cap.map(|cap| usize::try_from(cap).unwrap_or(0)));
        }
    }

    /// Says how many Jobs run on each cluster, where that changed, and how many tasks wait.
    pub(super) fn publish(&mut self, metrics: &Metrics, now: Instant) {
        let running = self.queue.running_on();
        let running: BTreeMap<_, _> = running.map(|(name, n)| (name.to_string(), n)).collect();
        self.active.send_if_modified(|known| {
            let is_new = **known != running;
            if is_new {
                *known = Arc::new(running);
            }
            is_new
        });
        let (waiting, _) = self.queue.len();
        metrics
            .waiting_tasks
            .set(i64::try_from(waiting).unwrap_or(i64::MAX));
        // No age grows while no task waits.
        if self.look_due.map_or(waiting > 0, |due| due <= now) {
            let clock = Timestamp::now();
            let rows = self.queue.depths().map(|(namespace, depth)| QueueSample {
                namespace,
                tasks: depth.tasks,
                oldest: Duration::try_from(clock.duration_since(depth.oldest)).unwrap_or_default(),
            });
            metrics.queue.set_samples(rows);
            self.look_due = (waiting > 0).then_some(now + LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::TaskUid;
    use crate::plan::queue::QueuedTask;

    #[test]
    fn what_runs_on_a_cluster_is_told_once_and_who_waits_is_looked_at_while_there_is_one() {
        let (total, per_namespace) = (1, 1);
        let (active, mut told) = watch::channel(Arc::default());
        let mut slots = JobSlots::new(ConcurrencyLimits { total, per_namespace }, active);
        let (metrics, now) = (Metrics::new().0, Instant::now());
        slots.publish(&metrics, now);
        assert!(!told.has_changed().unwrap() && slots.look_due.is_none());
        let (uids, created) = (["a", "b"].map(TaskUid::new), Timestamp::UNIX_EPOCH);
        let (namespace, cluster) = ("team-a", Some("east"));
        for uid in &uids {
            slots.queue.wait(QueuedTask {
                namespace,
                created,
                uid,
                cluster,
            });
        }
        slots.queue.grant();
        slots.publish(&metrics, now);
        assert_eq!(told.borrow_and_update().get("east"), Some(&1));
        assert_eq!(
            (metrics.waiting_tasks.get(), slots.look_due),
            (1, Some(now + LOOK))
        );
        for uid in &uids {
            slots.queue.remove(namespace, created, uid);
        }
        slots.publish(&metrics, now + LOOK);
        assert_eq!((metrics.waiting_tasks.get(), slots.look_due), (0, None));
        assert!(told.borrow_and_update().is_empty());
        slots.publish(&metrics, now + LOOK);
        assert!(!told.has_changed().unwrap(), "nothing changed");
    }
}
