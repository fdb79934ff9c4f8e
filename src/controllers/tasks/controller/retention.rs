//! When finished tasks are removed: after their own time to live, or when enough newer ones of their namespace are kept. And
//! when what they left as they failed is cleared before its time.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;
use crate::plan::task::retention::{FinishedTask, RemovalState};

use super::super::task_record::{JobLocation, TaskMaker, TaskRecord};
use super::TaskController;
use super::enqueue::{EnqueueReason, ready};

impl TaskController {
    /// Gives the tasks that are due for removal to workers.
    pub(super) fn start_removals(&mut self, now: Instant) {
        while let Some((uid, removal)) = self.retention.take(now) {
            if let Some(record) = self.index.task_mut(&uid) {
                record.removal = removal;
                ready(&mut self.queue, &uid, EnqueueReason::Removal);
            }
        }
    }

    /// Whether only the removal of a task is left to do, and it is not due yet.
    pub(super) fn awaits_removal(&mut self, uid: &TaskUid) -> bool {
        let is_clear = self.index.has_no_objects(uid);
        let Some(record) = self.index.task(uid).filter(|record| is_over(record)) else {
            return false;
        };
        let clock = Timestamp::now();
        let is_left_alone = is_clear || record.cleanup_due.is_some_and(|due| clock < due);
        let is_due = record.removal_due.is_some_and(|due| due <= clock);
        if record.removal != RemovalState::Waits || !is_due || !is_left_alone {
            return false;
        }
        self.retention.expire(finished(record, uid));
        true
    }

    /// Updates whether a task counts as kept, after a reconcile or without one.
    pub(super) fn retain(&mut self, uid: &TaskUid) {
        let is_clear = self.index.has_no_objects(uid);
        let cluster = self.kept_at(uid);
        let Some(record) = self.index.task_mut(uid) else {
            return;
        };
        let had_turn = std::mem::replace(&mut record.removal, RemovalState::Waits) == RemovalState::Crowded;
        // The objects of a failed task stay for people to read; until they are removed, the task does not count as kept.
        if is_clear && self.limits.has_pipeline && record.made_by == TaskMaker::Pipeline {
            // It says that a chart is pushed; without it the pipeline would have the chart rendered again.
            self.retention.forget(finished(record, uid));
        } else if is_over(record) && is_clear {
            self.retention.keep(finished(record, uid));
        } else if let Some(cluster) = cluster.filter(|_| !had_turn) {
            self.retention.keep_failure(cluster, finished(record, uid));
        } else if record.phase.is_finished() {
            self.retention.forget(finished(record, uid));
        }
        self.awaits_removal(uid);
    }

    /// The cluster on which something of a failed task is kept and can be removed; the next sweep shows it again where that did
    /// not work.
    fn kept_at(&self, uid: &TaskUid) -> Option<JobLocation> {
        let record = self.index.task(uid).filter(|record| is_over(record))?;
        let is_kept = record.cleanup_due.is_some_and(|due| Timestamp::now() < due);
        if !is_kept || !(self.index.has_job(uid) || self.index.has_secret(uid)) {
            return None;
        }
        if record.remote.target.is_none() {
            return Some(None);
        }
        let site = record.remote.site.as_ref()?;
        self.sites.is_reached(site).then(|| Some(Arc::clone(site)))
    }

    /// A removal failed: the task is queued again after its back-off.
    pub(super) fn give_removal_back(&mut self, uid: &TaskUid) {
        if let Some(record) = self.index.task_mut(uid) {
            record.removal = RemovalState::Waits;
        }
    }

    /// A task is gone.
    pub(super) fn forget_finished(&mut self, uid: &TaskUid) {
        if let Some(record) = self.index.task(uid) {
            self.retention.forget(finished(record, uid));
        }
    }
}

/// Whether a task is finished and not being deleted.
fn is_over(record: &TaskRecord) -> bool {
    record.phase.is_finished() && !record.deleting && !record.is_forged
}

fn finished<'a>(record: &'a TaskRecord, uid: &'a TaskUid) -> FinishedTask<'a> {
    FinishedTask {
        namespace: record.namespace(),
        ended: record.ended.unwrap_or(record.created),
        uid,
    }
}
