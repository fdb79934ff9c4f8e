//! The copies of pull Secrets that may be in no use any more.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use super::super::task_record::JobLocation;
use super::TaskController;
use super::running_work::{WorkItem, WorkResult};
use crate::controllers::sweep::marked;
use crate::controllers::sweep::unused_copies::{FoundPullCopy, remove_unused_copies};
use crate::kubernetes::apply::ListedObject;
use crate::plan::task::orphans::is_orphan;

impl TaskController {
    /// Those of the copies in a place with which no Job was made since the last sweep.
    pub(super) fn idle_copies<'a>(
        &self,
        place: &JobLocation,
        found: &'a [ListedObject],
    ) -> impl Iterator<Item = FoundPullCopy> + use<'a> {
        let (grace, now, copies) = (
            self.limits.gc_interval,
            Timestamp::now(),
            self.context.pull_copies.clone(),
        );
        let (since, place) = (Instant::now().checked_sub(grace), place.clone());
        found.iter().filter_map(move |object| {
            let copy = FoundPullCopy::of(&object.meta)?;
            let is_used = since.is_none_or(|since| copies.is_used_since(&place, copy.id(), since));
            let is_old = is_orphan(&marked(&object.meta, now), grace, None);
            (is_old && !is_used).then_some(copy)
        })
    }

    /// Removes those of the copies in the rendering namespace that no Job names.
    pub(super) fn remove_idle_copies(&mut self, found: &[ListedObject]) {
        let idle: Vec<_> = self.idle_copies(&None, found).collect();
        if idle.is_empty() {
            return;
        }
        let (copies, objects) = (
            self.context.pull_copies.clone(),
            self.context.hub_client.objects().clone(),
        );
        let until = tokio::time::Instant::now() + self.limits.gc_interval;
        self.running.spawn(WorkItem::Removal, async move {
            remove_unused_copies(&objects, &copies, &None, idle, until).await;
            WorkResult::Removal
        });
    }
}
