//! Where tasks run, of which many have the same.

use std::sync::Arc;

use crate::api::names::TaskUid;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::remote::lost_cluster::TaskTimeouts;
use crate::plan::remote::placement::target;
use crate::plan::remote::site::{RemoteTarget, Site};
use crate::plan::task::model::Task;

use super::super::task_record::StartBlocker;
use super::TaskIndex;

impl TaskIndex {
    /// An index of nothing yet.
    pub fn new(tenancy: TenancyPolicy, timeouts: TaskTimeouts) -> Self {
        Self {
            tenancy,
            timeouts,
            ..Self::default()
        }
    }

    /// The one copy of a task's target; `None` where it runs on the hub, or nowhere.
    pub(super) fn target(&mut self, task: &Task) -> Option<Arc<RemoteTarget>> {
        let target = target(&task.id, task.decoded.spec.as_ref()?, &self.tenancy).ok()??;
        Some(self.targets.intern(target))
    }

    /// The namespace on another cluster in which a task's Job was put.
    pub(super) fn job_namespace(&mut self, task: &Task) -> Option<Arc<str>> {
        let job = task.status.job_ref.as_ref()?;
        job.cluster.as_ref()?;
        let namespace = job.namespace.clone();
        Some(self.intern(&namespace))
    }

    /// Gives back where a task was; what no other task names is forgotten.
    pub(super) fn give_back(&mut self, target: Option<Arc<RemoteTarget>>, job_namespace: Option<Arc<str>>) {
        self.targets.release(target);
        self.namespaces.release(job_namespace);
    }

    /// Records who must change something before a task can start.
    pub fn block(&mut self, uid: &TaskUid, by: StartBlocker) {
        let Some(record) = self.tasks.get_mut(uid) else {
            return;
        };
        if let StartBlocker::ByTenant(namespace) = &by {
            *self.waiting.entry(Arc::clone(namespace)).or_default() += 1;
        }
        if let StartBlocker::ByTenant(namespace) = std::mem::replace(&mut record.blocked, by) {
            if let Some(count) = self.waiting.get_mut(&namespace) {
                *count -= 1;
                if *count == 0 {
                    self.waiting.remove(&namespace);
                }
            }
            self.namespaces.release(Some(namespace));
        }
    }

    /// Records the site of a task.
    pub fn set_site(&mut self, uid: &TaskUid, site: &Arc<Site>) {
        if let Some(record) = self.tasks.get_mut(uid) {
            record.remote.site = Some(Arc::clone(site));
        }
    }

    /// Records that a task is at no site any more.
    pub fn clear_site(&mut self, uid: &TaskUid) {
        if let Some(record) = self.tasks.get_mut(uid) {
            record.remote.site = None;
        }
    }

    /// Whether a task that is known runs at the site.
    pub fn is_at(&self, uid: &TaskUid, site: &Site) -> bool {
        let target = self
            .tasks
            .get(uid)
            .and_then(|record| record.remote.target.as_ref());
        target.is_some_and(|target| target.is_at(site))
    }

    /// Whether a config Secret of the task is known.
    pub fn has_secret(&self, uid: &TaskUid) -> bool {
        self.secrets.contains_key(uid)
    }

    /// Records whether unseen objects of a task may be on its cluster.
    pub fn suspect(&mut self, uid: &TaskUid, may_be_there: bool) {
        if let Some(record) = self.tasks.get_mut(uid) {
            record.remote.may_be_there = may_be_there && record.remote.target.is_some();
        }
    }
}
