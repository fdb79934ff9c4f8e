//! Adopts objects that another hub of the cluster made.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::labels::TASK_NAMESPACE;
use crate::kubernetes::apply::ListedObject;
use crate::kubernetes::watch::{JobMetadata, job_metadata};
use crate::plan::task::adoption::{AdoptionDecision, ObjectCreator, judge, maker};

use super::super::task_record::JobLocation;
use super::TaskController;
use super::enqueue::{EnqueueReason, later};
use super::running_work::{WorkItem, WorkResult};
use crate::controllers::sweep::adoption::{JobAdoption, take_over};
use crate::controllers::sweep::paged_sweep::OrphanBatch;
use crate::controllers::sweep::{OrphanJob, OwnerTask, is_served, owned_by};

impl TaskController {
    /// Adopts the Jobs of other hubs at a site whose tasks this hub serves now; returns the Jobs whose task the hub does not
    /// know.
    pub(super) fn adopt_jobs(&mut self, origin: &JobLocation, jobs: &[ListedObject]) -> Vec<JobMetadata> {
        let (mut unknown, mut takeovers) = (Vec::new(), Vec::new());
        for ListedObject { meta, hint } in jobs {
            let Some(mark) = job_metadata(meta) else {
                continue;
            };
            let mark = JobMetadata { hint: *hint, ..mark };
            match self.verdict(origin, meta) {
                AdoptionDecision::Leave => {}
                AdoptionDecision::Orphan => unknown.push(mark),
                AdoptionDecision::Adopt => {
                    let takeover = JobAdoption {
                        task: mark.task.clone(),
                        name: mark.name.clone(),
                        uid: mark.uid.clone(),
                        version: meta.resource_version.clone().unwrap_or_default(),
                    };
                    if let Some(look) = self.index.see_job(origin, mark, Instant::now()) {
                        later(&mut self.queue, &takeover.task, look, EnqueueReason::JobSeen);
                        takeovers.push(takeover);
                    }
                }
            }
        }
        self.take_over(origin, takeovers);
        unknown
    }

    /// Whether the config Secret at a place is this hub's own, or of a task that it serves now or does not know.
    pub(super) fn is_of_this_hub(&self, origin: &JobLocation, meta: &ObjectMeta) -> bool {
        match maker(&self.context.hub_placement.hub_id, meta) {
            ObjectCreator::Own => true,
            ObjectCreator::Kin => self.verdict(origin, meta) != AdoptionDecision::Leave,
            ObjectCreator::Foreign => false,
        }
    }

    /// Publishes the namespaces of the tasks that left objects.
    pub(super) fn publish_leftovers(&self, secrets: &[ObjectMeta]) {
        let left: BTreeSet<String> = secrets.iter().filter_map(namespace_of).cloned().collect();
        self.left.send_replace(Arc::new(left));
    }

    /// Jobs at a place that are of no task that runs there: those that the watch shows, and these.
    pub(super) fn with_strays(&self, origin: &JobLocation, jobs: Vec<JobMetadata>) -> Vec<OrphanJob> {
        let strays = self.index.unassigned_jobs(origin).map(|job| job.metadata.clone());
        jobs.into_iter().chain(strays).map(OrphanJob::from).collect()
    }

    /// Collects the stray Jobs that the watch of a site shows. Where there are too many, each call starts at another one.
    pub(super) fn collect_strays(&self, origin: &JobLocation, at: Timestamp, strangers: &mut OrphanBatch) {
        let count = self.index.unassigned_jobs(origin).count();
        let first = usize::try_from(at.as_second()).unwrap_or_default() % count.max(1);
        let all = || self.index.unassigned_jobs(origin);
        for job in all().skip(first).chain(all().take(first)) {
            strangers.add_job(|| OrphanJob {
                name: job.metadata.name.clone(),
                uid: job.metadata.uid.clone(),
            });
        }
    }

    fn verdict(&self, origin: &JobLocation, meta: &ObjectMeta) -> AdoptionDecision {
        let OwnerTask::Task(named) = owned_by(meta) else {
            return AdoptionDecision::Leave;
        };
        let serves = is_served(&self.all_scopes, &named);
        let known = self.index.task(&named.uid).map(|record| record.id(&named.uid));
        let is_elsewhere = known
            .as_ref()
            .is_some_and(|task| *task != named || !self.index.is_its_place(origin, &named.uid));
        let hash = self.index.spec_hash(&named.uid);
        let known = known.as_ref().map(|task| (task, hash));
        judge(
            &self.context.hub_placement.hub_id,
            meta,
            serves && !is_elsewhere,
            known,
        )
    }

    fn take_over(&mut self, origin: &JobLocation, jobs: Vec<JobAdoption>) {
        if jobs.is_empty() {
            return;
        }
        let objects = match origin {
            None => Some(self.context.hub_client.objects().clone()),
            Some(site) => self.objects_at(site),
        };
        let Some(objects) = objects else { return };
        let errand = match origin {
            None => WorkItem::Removal,
            Some(site) => WorkItem::SiteRemoval(Arc::clone(site)),
        };
        let metrics = self.metrics.clone();
        self.running.spawn(errand, async move {
            take_over(&objects, &metrics, jobs).await;
            WorkResult::Removal
        });
    }
}

/// The namespace of the task that an object was made for, as it says.
fn namespace_of(meta: &ObjectMeta) -> Option<&String> {
    meta.annotations.as_ref()?.get(TASK_NAMESPACE)
}
