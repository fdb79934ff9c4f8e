//! Trusts a status only if the hub wrote it.

use std::time::Instant;

use crate::api::RenderTaskStatus;
use crate::api::names::TaskUid;
use crate::kubernetes::watch::TaskWatchScope;
use crate::plan::task::model::Task;
use crate::plan::task::status_seal::{LastStatusDigest, SealKey};

use super::super::last_status::LastStatus;
use super::super::outcome::StatusUpdate;
use super::super::task_record::{TaskMaker, TaskRecord};
use super::{TaskEventKind, TaskIndex};

impl TaskIndex {
    /// Marks a task as shown by the watch; returns whether it is known.
    pub fn touch_task(&mut self, scope: &TaskWatchScope, uid: &TaskUid) -> bool {
        let mark = self.task_lists.mark(scope);
        let known = self.tasks.get_mut(uid);
        known.map(|known| known.listed = mark).is_some()
    }

    /// Stores a task from a watch event. A status that the hub did not write is ignored: the last one that it wrote stays.
    pub fn see_task(&mut self, scope: &TaskWatchScope, mut task: Task, key: &SealKey) -> TaskEventKind {
        self.touch_task(scope, &task.id.uid);
        let version = task.resource_version.parse().unwrap_or(u64::MAX);
        let known = self.tasks.get(&task.id.uid);
        if known.is_some_and(|known| version <= known.version) {
            return TaskEventKind::Late;
        }
        let is_forged = !key.is_genuine(&task, known.map(|known| known.last_status.last));
        let made_by = known.map_or_else(|| TaskMaker::of(key.referrer(&task)), |known| known.made_by);
        if is_forged {
            let said = known.map(|known| self.last_status(known).1);
            task.set_status(said.unwrap_or_default());
        }
        let uid = task.id.uid.clone();
        self.remember(task.into(), version, self.task_lists.mark(scope));
        if let Some(record) = self.tasks.get_mut(&uid) {
            record.is_forged = is_forged;
            record.made_by = made_by;
        }
        if is_forged {
            TaskEventKind::Forged
        } else {
            TaskEventKind::Changed
        }
    }

    /// Records what a worker found or wrote as the status of the object.
    pub fn take_status(&mut self, uid: &TaskUid, changes: StatusUpdate, now: Instant) {
        let Some(record) = self.tasks.get_mut(uid) else {
            return;
        };
        record.is_forged = changes.is_forged.unwrap_or(record.is_forged);
        record.last_status.last.in_doubt =
            changes.in_doubt || (record.last_status.last.in_doubt && !changes.was_written);
        if changes.was_restored {
            record.restored = Some(now);
        }
    }

    /// When the forged status of a task may be restored.
    pub fn restore_due(&self, uid: &TaskUid, now: Instant) -> Option<Instant> {
        self.tasks.get(uid).and_then(|record| record.restore_due(now))
    }

    /// The last status that the hub wrote, without its seal, to compare with the one that is read.
    pub(super) fn last_status(&self, record: &TaskRecord) -> (LastStatusDigest, RenderTaskStatus) {
        let status = match &record.whole {
            Some(task) => RenderTaskStatus {
                seal: None,
                ..task.status.clone()
            },
            None => self.status_compressor.open(&record.last_status),
        };
        (record.last_status.last, status)
    }

    /// The status of a task, compressed only if it is new and the task is not kept whole.
    pub(super) fn last_status_of(
        &mut self,
        old: Option<&TaskRecord>,
        task: &Task,
        is_whole: bool,
    ) -> LastStatus {
        let same = old.filter(|record| record.last_status.last.digest == task.status_digest);
        let status = match same {
            _ if is_whole => LastStatus::of_whole(task),
            Some(record) if record.whole.is_none() => record.last_status.clone(),
            _ => self.status_compressor.last_status(task),
        };
        let last = same.map_or(status.last, |record| record.last_status.last);
        LastStatus { last, ..status }
    }
}
