//! Whose the objects are that other hubs of the cluster made, or an earlier process of this one.

use std::sync::Arc;

use kube::api::ObjectMeta;

use crate::api::names::HubId;
use crate::kubernetes::watch::TaskWatchScope;
use crate::plan::task::adoption::{AdoptionDecision, ObjectCreator, judge, maker};

use super::super::index::TaskIndex;
use super::super::task_record::JobLocation;
use crate::controllers::sweep::{OwnerTask, is_served, owned_by};

/// By what it is judged whose an object is: this hub, and the tasks that it serves.
pub(super) struct AdoptionRules {
    pub(super) hub_id: HubId,
    pub(super) scopes: Arc<[TaskWatchScope]>,
}

impl AdoptionRules {
    /// What becomes of an object at a place.
    pub(super) fn decide(
        &self,
        index: &TaskIndex,
        origin: &JobLocation,
        meta: &ObjectMeta,
    ) -> AdoptionDecision {
        let OwnerTask::Task(named) = owned_by(meta) else {
            return AdoptionDecision::Leave;
        };
        let serves = is_served(&self.scopes, &named);
        let known = index.task(&named.uid).map(|record| record.id(&named.uid));
        let is_elsewhere = known
            .as_ref()
            .is_some_and(|task| *task != named || !index.is_its_place(origin, &named.uid));
        let hash = index.spec_hash(&named.uid);
        let known = known.as_ref().map(|task| (task, hash));
        judge(&self.hub_id, meta, serves && !is_elsewhere, known)
    }

    /// Whether the config Secret at a place is this hub's own, or of a task that it serves now or does not know.
    pub(super) fn is_of_this_hub(&self, index: &TaskIndex, origin: &JobLocation, meta: &ObjectMeta) -> bool {
        match maker(&self.hub_id, meta) {
            ObjectCreator::Own => true,
            ObjectCreator::Kin => self.decide(index, origin, meta) != AdoptionDecision::Leave,
            ObjectCreator::Foreign => false,
        }
    }
}
