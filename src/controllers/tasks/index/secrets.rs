//! Which config Secrets exist, as far as is known between two sweeps.

use kube::api::ObjectMeta;

use crate::api::labels::SPEC_HASH;
use crate::api::names::TaskUid;

use super::TaskIndex;

impl TaskIndex {
    /// Stores a config Secret.
    pub fn keep_secret(&mut self, task: &TaskUid, secret_uid: &str) {
        self.secrets.insert(task.clone(), secret_uid.into());
    }

    /// Stores the config Secret that a list shows, unless it is another's or was deleted since; returns whether it is stored.
    pub fn see_secret(&mut self, task: &TaskUid, meta: &ObjectMeta) -> bool {
        let hash = meta.annotations.as_ref().and_then(|a| a.get(SPEC_HASH));
        let is_its = self.is_made_from(task, hash.map(String::as_str)) && !self.is_secret_cleared(task);
        let uid = meta.uid.as_ref().filter(|_| is_its);
        uid.map(|uid| self.keep_secret(task, uid)).is_some()
    }

    /// Whether a config Secret with this hash was made from the task's spec, as far as that is remembered.
    pub fn is_made_from(&self, task: &TaskUid, spec_hash: Option<&str>) -> bool {
        self.spec_hash(task).is_none_or(|known| spec_hash == Some(known))
    }

    /// Hash of the task's spec, as far as that is remembered.
    pub fn spec_hash(&self, task: &TaskUid) -> Option<&str> {
        let whole = self.tasks.get(task)?.whole.as_ref()?;
        Some(&whole.decoded.spec_hash)
    }

    /// Forgets the config Secrets of tasks that do not exist; a sweep removes them.
    pub fn prune_secrets(&mut self) {
        self.secrets.retain(|task, _| self.tasks.contains_key(task));
    }

    /// Whether a list that shows a Secret of the task is late: the hub deleted it after the task's end.
    pub fn is_secret_cleared(&self, task: &TaskUid) -> bool {
        self.tasks.get(task).is_some_and(|r| r.cleared_secret)
    }

    /// Forgets a config Secret that a worker deleted.
    pub fn forget_secret(&mut self, task: &TaskUid) {
        self.secrets.remove(task);
        if let Some(record) = self.tasks.get_mut(task) {
            record.cleared_secret = record.phase.is_finished();
        }
    }
}
