//! What the engine takes in of objects that another hub of the cluster made.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::labels::TASK_NAMESPACE;
use crate::api::names::is_uid;
use crate::kubernetes::apply::Found;
use crate::kubernetes::watch::{JobMark, job_mark};
use crate::plan::task::adoption::{Maker, Verdict, judge, maker};

use super::super::record::Origin;
use super::Engine;
use super::running::{Errand, Finished};
use super::wakes::{Wake, later};
use crate::controllers::sweep::adoption::{Takeover, take_over};
use crate::controllers::sweep::walk::Strangers;
use crate::controllers::sweep::{OwnedBy, Stranded, is_served, owned_by};

impl Engine {
    /// Takes in the Jobs of other hubs at a place: those of tasks that this hub serves now are its tasks' Jobs from here on,
    /// and are taken over. Those whose task is not known.
    pub(super) fn meet_jobs(&mut self, origin: &Origin, jobs: &[Found]) -> Vec<JobMark> {
        let (mut unknown, mut takeovers) = (Vec::new(), Vec::new());
        for Found { meta, hint } in jobs {
            let Some(mark) = job_mark(meta).filter(|mark| origin.is_none() || is_uid(&mark.uid)) else {
                continue;
            };
            let mark = JobMark { hint: *hint, ..mark };
            match self.verdict(origin, meta) {
                Verdict::Leave => {}
                Verdict::Orphan => unknown.push(mark),
                Verdict::Adopt => {
                    let takeover = Takeover {
                        task: mark.task.clone(),
                        name: mark.name.clone(),
                        uid: mark.uid.clone(),
                        version: meta.resource_version.clone().unwrap_or_default(),
                    };
                    if let Some(look) = self.index.see_job(origin, mark, Instant::now()) {
                        later(&mut self.queue, &takeover.task, look, Wake::JobSeen);
                        takeovers.push(takeover);
                    }
                }
            }
        }
        self.take_over(origin, takeovers);
        unknown
    }

    /// Whether the config Secret at a place is this hub's own, or of a task that it serves now or does not know.
    pub(super) fn concerns(&self, origin: &Origin, meta: &ObjectMeta) -> bool {
        match maker(&self.context.place.hub_id, meta) {
            Maker::Own => true,
            Maker::Kin => self.verdict(origin, meta) != Verdict::Leave,
            Maker::Foreign => false,
        }
    }

    /// Tells of which namespaces' tasks something is left.
    pub(super) fn show_left(&self, secrets: &[ObjectMeta]) {
        let left: BTreeSet<String> = secrets.iter().filter_map(namespace_of).cloned().collect();
        self.left.send_replace(Arc::new(left));
    }

    /// Jobs at a place that are of no task that runs there: those that the watch shows, and these.
    pub(super) fn with_strays(&self, origin: &Origin, jobs: Vec<JobMark>) -> Vec<Stranded> {
        let strays = self.index.strays(origin).map(|job| job.mark.clone());
        jobs.into_iter().chain(strays).map(Stranded::from).collect()
    }

    /// Takes in those that the watch of a site shows. Of too many each has its turn: they begin at another one each time.
    pub(super) fn meet_strays(&self, origin: &Origin, at: Timestamp, strangers: &mut Strangers) {
        let count = self.index.strays(origin).count();
        let first = usize::try_from(at.as_second()).unwrap_or_default() % count.max(1);
        let all = || self.index.strays(origin);
        for job in all().skip(first).chain(all().take(first)) {
            strangers.add_job(|| Stranded {
                name: job.mark.name.clone(),
                uid: job.mark.uid.clone(),
            });
        }
    }

    fn verdict(&self, origin: &Origin, meta: &ObjectMeta) -> Verdict {
        let OwnedBy::Task(named) = owned_by(meta) else {
            return Verdict::Leave;
        };
        let serves = is_served(&self.all_scopes, &named);
        let known = self.index.task(&named.uid).map(|record| record.id(&named.uid));
        let is_elsewhere = known
            .as_ref()
            .is_some_and(|task| *task != named || !self.index.is_its_place(origin, &named.uid));
        let hash = self.index.spec_hash(&named.uid);
        let known = known.as_ref().map(|task| (task, hash));
        judge(&self.context.place.hub_id, meta, serves && !is_elsewhere, known)
    }

    fn take_over(&mut self, origin: &Origin, jobs: Vec<Takeover>) {
        if jobs.is_empty() {
            return;
        }
        let objects = match origin {
            None => Some(self.context.calls.objects().clone()),
            Some(site) => self.objects_at(site),
        };
        let Some(objects) = objects else { return };
        let errand = match origin {
            None => Errand::Removal,
            Some(site) => Errand::SiteRemoval(Arc::clone(site)),
        };
        let metrics = self.metrics.clone();
        self.running.spawn(errand, async move {
            take_over(&objects, &metrics, jobs).await;
            Finished::Removal
        });
    }
}

/// The namespace of the task that an object was made for, as it says.
fn namespace_of(meta: &ObjectMeta) -> Option<&String> {
    meta.annotations.as_ref()?.get(TASK_NAMESPACE)
}
