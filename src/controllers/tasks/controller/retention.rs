//! When finished tasks are removed: after their own time to live, or when enough newer ones of their namespace are kept. And
//! when what they left as they failed is cleared before its time.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;
use crate::plan::task::retention::{FinishedTask, RemovalState, Retention};

use super::super::index::TaskIndex;
use super::super::sites::SiteIndex;
use super::super::task_record::{JobLocation, TaskMaker, TaskRecord};

/// The finished tasks that are kept, and those that wait for their removal.
pub(super) struct FinishedTasks {
    pub(super) retention: Retention,
    /// Whether the pipeline makes tasks: it removes those itself.
    pub(super) has_pipeline: bool,
}

impl FinishedTasks {
    /// The next task that is due for removal, which a worker may remove now.
    pub(super) fn take(&mut self, index: &mut TaskIndex, now: Instant) -> Option<TaskUid> {
        loop {
            let (uid, removal) = self.retention.take(now)?;
            if let Some(record) = index.task_mut(&uid) {
                record.removal = removal;
                return Some(uid);
            }
        }
    }

    /// Whether only the removal of a task is left to do, and it is not due yet.
    pub(super) fn awaits_removal(&mut self, index: &TaskIndex, uid: &TaskUid) -> bool {
        let is_clear = index.has_no_objects(uid);
        let Some(record) = index.task(uid).filter(|record| is_over(record)) else {
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
    pub(super) fn retain(&mut self, index: &mut TaskIndex, sites: &SiteIndex, uid: &TaskUid) {
        let is_clear = index.has_no_objects(uid);
        let cluster = kept_at(index, sites, uid);
        let Some(record) = index.task_mut(uid) else {
            return;
        };
        let had_turn = std::mem::replace(&mut record.removal, RemovalState::Waits) == RemovalState::Crowded;
        // The objects of a failed task stay for people to read; until they are removed, the task does not count as kept.
        if is_clear && self.has_pipeline && record.made_by == TaskMaker::Pipeline {
            // It says that a chart is pushed; without it the pipeline would have the chart rendered again.
            self.retention.forget(finished(record, uid));
        } else if is_over(record) && is_clear {
            self.retention.keep(finished(record, uid));
        } else if let Some(cluster) = cluster.filter(|_| !had_turn) {
            self.retention.keep_failure(cluster, finished(record, uid));
        } else if record.phase.is_finished() {
            self.retention.forget(finished(record, uid));
        }
        self.awaits_removal(index, uid);
    }

    /// A task is gone.
    pub(super) fn forget(&mut self, index: &TaskIndex, uid: &TaskUid) {
        if let Some(record) = index.task(uid) {
            self.retention.forget(finished(record, uid));
        }
    }
}

/// The cluster on which something of a failed task is kept and can be removed; the next sweep shows it again where that did not
/// work.
fn kept_at(index: &TaskIndex, sites: &SiteIndex, uid: &TaskUid) -> Option<JobLocation> {
    let record = index.task(uid).filter(|record| is_over(record))?;
    let is_kept = record.cleanup_due.is_some_and(|due| Timestamp::now() < due);
    if !is_kept || !(index.has_job(uid) || index.has_secret(uid)) {
        return None;
    }
    if record.remote.target.is_none() {
        return Some(None);
    }
    let site = record.remote.site.as_ref()?;
    sites.is_reached(site).then(|| Some(Arc::clone(site)))
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::TaskKind;
    use crate::kubernetes::watch::TaskWatchScope;
    use crate::plan::task::model::Task;
    use crate::plan::task::retention::FailedJobLimits;
    use crate::plan::task::status_seal::SealKey;

    fn task(version: &str, status: Value) -> Task {
        let meta = json!({
            "name": "shop", "namespace": "team-a", "uid": "task", "resourceVersion": version, "generation": 1,
        });
        let meta = serde_json::from_value(meta).unwrap();
        Task::new(TaskKind::RenderTask, &meta, json!({}), status).unwrap()
    }

    /// An index of one task that ended.
    fn index() -> TaskIndex {
        let scope = TaskWatchScope {
            kind: TaskKind::RenderTask,
            namespace: None,
        };
        let (mut index, at) = (TaskIndex::default(), Timestamp::UNIX_EPOCH);
        index.see_task(&scope, task("1", Value::Null), &SealKey::new([7; 32], at));
        let ready = json!({
            "type": "JobSucceeded", "status": "True", "reason": "JobSucceeded", "message": "", "lastTransitionTime": at.to_string(),
        });
        let ended = json!({"conditions": [ready], "completionTime": at.to_string()});
        index.changed_task(Arc::new(task("2", ended)));
        index
    }

    #[test]
    fn a_finished_task_is_removed_as_surplus_unless_something_of_it_is_left_or_the_pipeline_removes_it() {
        let (uid, now) = (TaskUid::new("task"), Instant::now());
        for (has_secret, maker, is_removed) in [
            (false, TaskMaker::Tenant, true),
            (true, TaskMaker::Tenant, false),
            (false, TaskMaker::Pipeline, false),
        ] {
            let mut index = index();
            if has_secret {
                index.keep_secret(&uid, "secret");
            }
            index.task_mut(&uid).unwrap().made_by = maker;
            let mut finished = FinishedTasks {
                retention: Retention::new(Some(0), FailedJobLimits::default()),
                has_pipeline: true,
            };
            finished.retain(&mut index, &SiteIndex::default(), &uid);
            let taken = finished.take(&mut index, now);
            assert_eq!(taken, is_removed.then(|| uid.clone()));
            if is_removed {
                assert_eq!(index.task(&uid).unwrap().removal, RemovalState::Surplus);
            }
            finished.retain(&mut index, &SiteIndex::default(), &uid);
            finished.forget(&index, &uid);
            let later = now + crate::plan::task::retention::PACE;
            assert_eq!(finished.take(&mut index, later), None, "it is gone");
        }
    }
}
