//! What the controller shows of itself in metrics.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;
use crate::base::metrics::{PhaseLabel, QueueSample};

use super::TaskController;

/// Time between two updates of the metrics by namespace, each of which costs a step for each namespace.
const LOOK: Duration = Duration::from_secs(1);

impl TaskController {
    pub(super) fn publish_metrics(&mut self, now: Instant) {
        let depth = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.work_queue_depth.set(depth(self.queue.len()));
        self.metrics.waiting_tasks.set(depth(self.fair.len().0));
        self.publish_active_jobs();
        for (phase, count) in self.index.phases() {
            self.metrics
                .tasks
                .get_or_create(&PhaseLabel { phase })
                .set(depth(count));
        }
        // No age grows while no task waits.
        let waits = self.fair.len().0 > 0;
        if self.look_due.map_or(waits, |due| due <= now) {
            self.publish_queue();
            self.look_due = waits.then_some(now + LOOK);
        }
    }

    fn publish_queue(&mut self) {
        let clock = Timestamp::now();
        let rows = self.fair.depths().map(|(namespace, depth)| QueueSample {
            namespace,
            tasks: depth.tasks,
            oldest: Duration::try_from(clock.duration_since(depth.oldest)).unwrap_or_default(),
        });
        self.metrics.queue.set_samples(rows);
    }

    /// Records how long a task waited for its slot.
    pub(super) fn publish_wait(&self, uid: &TaskUid, now: Instant) {
        let since = self.index.task(uid).and_then(|record| record.waits_since);
        self.metrics
            .queue
            .waited(since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)));
    }
}
