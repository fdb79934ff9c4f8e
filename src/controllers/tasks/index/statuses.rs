//! Whose word a status is: what a watch or a read shows is believed where the hub said it, and nowhere else.

use std::time::Instant;

use crate::api::RenderTaskStatus;
use crate::api::names::TaskUid;
use crate::kubernetes::watch::Scope;
use crate::plan::task::model::Task;
use crate::plan::task::seal::{LastWord, SealKey};

use super::super::outcome::StatusNews;
use super::super::record::Record;
use super::super::word::Word;
use super::{Index, Sight};

impl Index {
    /// Takes in that the watch shows a task, whatever it shows of it; whether the task is known.
    pub fn touch_task(&mut self, scope: &Scope, uid: &TaskUid) -> bool {
        let epoch = self.epoch(scope);
        let known = self.tasks.get_mut(uid);
        known.map(|known| known.epoch = epoch).is_some()
    }

    /// Takes in a task as the watch showed it. A status that is not the hub's is never believed: what the hub said last
    /// stays in its place.
    pub fn see_task(&mut self, scope: &Scope, mut task: Task, key: &SealKey) -> Sight {
        self.touch_task(scope, &task.id.uid);
        let version = task.resource_version.parse().unwrap_or(u64::MAX);
        let known = self.tasks.get(&task.id.uid);
        if known.is_some_and(|known| version <= known.version) {
            return Sight::Late;
        }
        let is_forged = !key.is_genuine(&task, known.map(|known| known.word.last));
        if is_forged {
            let said = known.map(|known| self.packer.open(&known.word));
            task.set_status(said.unwrap_or_default());
        }
        let uid = task.id.uid.clone();
        self.remember(task.into(), version, self.epoch(scope));
        if let Some(record) = self.tasks.get_mut(&uid) {
            record.is_forged = is_forged;
        }
        if is_forged { Sight::Forged } else { Sight::News }
    }

    /// Takes in what a worker found or made of the status on the object.
    pub fn take_status(&mut self, uid: &TaskUid, news: StatusNews, now: Instant) {
        let Some(record) = self.tasks.get_mut(uid) else {
            return;
        };
        record.is_forged = news.is_forged.unwrap_or(record.is_forged);
        record.word.last.in_doubt = news.in_doubt || (record.word.last.in_doubt && !news.was_written);
        if news.was_restored {
            record.restored = Some(now);
        }
    }

    /// When the status of a task may be put right, where somebody forged it.
    pub fn restore_due(&self, uid: &TaskUid, now: Instant) -> Option<Instant> {
        self.tasks.get(uid).and_then(|record| record.restore_due(now))
    }

    /// What the hub said of a task last, to compare with what is read.
    pub(super) fn said(&self, record: &Record) -> (LastWord, RenderTaskStatus) {
        (record.word.last, self.packer.open(&record.word))
    }

    /// The word that a task carries, packed only where it is a new one.
    pub(super) fn word(&mut self, old: Option<&Record>, task: &Task) -> Word {
        let same = old.filter(|record| record.word.last.digest == task.status_digest);
        same.map_or_else(|| self.packer.word(task), |record| record.word.clone())
    }
}
