//! What the controller does with what is at a site, or in the rendering namespace, besides what the watch shows: it takes it in page by
//! page, and has removed what is of no task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::names::is_uid;
use crate::kubernetes::apply::{CallError, ListKind, ListedObject};
use crate::kubernetes::watch::{JobMetadata, job_metadata, secret_task};
use crate::plan::remote::site::{ClusterName, Site};
use crate::plan::task::adoption::AdoptionDecision;
use crate::plan::task::orphans::is_orphan;

use super::super::index::TaskIndex;
use super::super::task_record::{JobLocation, TaskRecord};
use super::enqueue::EnqueueReason;
use super::running_work::{STOPPED, WorkItem, WorkResult};
use super::{SWEEP_RETRY, TaskController};
use crate::controllers::sweep::adoption::{JobAdoption, take_over};
use crate::controllers::sweep::paged_sweep::{OrphanBatch, PagedSweep, PagedSweepStep};
use crate::controllers::sweep::unused_copies::{idle_copies, remove_unused_copies};
use crate::controllers::sweep::{
    OrphanJob, OrphanSecret, SweepCandidates, marked, remove_given_up, remove_orphans,
};

impl TaskController {
    /// Lists the objects at the sites that are due.
    pub(super) fn start_lists(&mut self, now: Instant) {
        while self.sync.may_sweep()
            && let Some(site) = self.sweeps.start_site(now)
        {
            let Some(objects) = self.context.objects_at(&site) else {
                self.sweeps.sites.done(&site);
                continue;
            };
            let is_platforms = matches!(site.cluster, ClusterName::Platform(_));
            self.list_next_page(site, Box::new(PagedSweep::new(objects, is_platforms)));
        }
    }

    /// Asks for the next page of what is at a site.
    fn list_next_page(&mut self, site: Arc<Site>, mut sweep: Box<PagedSweep>) {
        let (item, stop) = (
            WorkItem::SiteList(Arc::clone(&site)),
            self.running.stopping.clone(),
        );
        self.running.spawn(item, async move {
            let page = stop.run_until_cancelled(sweep.step()).await;
            WorkResult::SiteList(site, sweep, page.unwrap_or(Err(STOPPED)))
        });
    }

    /// Handles a page of a site's list; the last one completes it.
    pub(super) fn handle_page(
        &mut self,
        site: &Arc<Site>,
        mut sweep: Box<PagedSweep>,
        page: Result<PagedSweepStep, CallError>,
    ) {
        let page = match page {
            Ok(page) => page,
            Err(error) => return self.handle_list_error(site, error),
        };
        self.record_page(site, &page, &mut sweep.candidates);
        if !page.is_last {
            return self.list_next_page(Arc::clone(site), sweep);
        }
        if self.sites.is_reached(site) {
            self.finish_list(site, sweep);
        } else {
            self.remove_given_up_first(site, sweep);
        }
    }

    /// Handles a failed list. A missing right is logged once, or with each sweep, because it lasts.
    fn handle_list_error(&mut self, site: &Arc<Site>, error: CallError) {
        let (is_forbidden, is_sweep) = (error == CallError::Forbidden, self.sites.is_reached(site));
        if is_forbidden && (is_sweep || self.sites.forbidden(site)) {
            tracing::warn!(
                cluster = %site.cluster,
                "a cluster forbids the hub to list Jobs or Secrets in its namespace there; give its user the documented Role"
            );
            if !is_sweep {
                self.requeue_unreached(self.sites.tasks(site));
            }
        }
        let pause = if is_forbidden && is_sweep {
            self.limits.gc_interval
        } else {
            SWEEP_RETRY
        };
        self.end_list(site, pause);
    }

    /// Removes what was given up while a site was not reached, and what deleted tasks left there, before anything else of it goes
    /// on: a Job whose task has ended could still push.
    fn remove_given_up_first(&mut self, site: &Arc<Site>, sweep: Box<PagedSweep>) {
        let (jobs, left) = (given_up(&self.index, site), self.sites.orphans(site));
        let objects = self.context.objects_at(site);
        let Some(objects) = objects.filter(|_| !jobs.is_empty() || !left.is_empty()) else {
            return self.finish_list(site, sweep);
        };
        let (metrics, site) = (self.metrics.clone(), Arc::clone(site));
        let (item, stop) = (
            WorkItem::SiteList(Arc::clone(&site)),
            self.running.stopping.clone(),
        );
        self.running.spawn(item, async move {
            let settled = remove_given_up(&objects, &metrics, jobs, left, sweep.until(), &stop).await;
            WorkResult::SiteCleared(site, sweep, settled)
        });
    }

    /// Everything there is at a site is known.
    pub(super) fn finish_list(&mut self, site: &Arc<Site>, sweep: Box<PagedSweep>) {
        self.end_list(site, self.limits.gc_interval);
        let was_reached = self.sites.is_reached(site);
        if !self.sites.listed(site) {
            return;
        }
        if !was_reached {
            self.handle_site_up(site);
        }
        self.sweep_site(site, sweep.candidates);
    }

    /// Gives the place of a list back; the next one is after a pause.
    pub(super) fn end_list(&mut self, site: &Arc<Site>, pause: Duration) {
        self.sweeps.sites.done(site);
        if self.sites.known(site).is_some() {
            self.sweeps.sites.add_at(site, Instant::now() + pause);
        }
    }

    fn record_page(&mut self, site: &Arc<Site>, page: &PagedSweepStep, candidates: &mut OrphanBatch) {
        let origin = Some(Arc::clone(site));
        match page.listing {
            ListKind::OthersJobs => {
                for mark in self.adopt_jobs(&origin, &page.items) {
                    candidates.add_job(|| mark.into());
                }
            }
            ListKind::Secrets => {
                let metas = page.items.iter().map(|found| &found.meta);
                self.keep_site_secrets(site, metas, candidates);
            }
            ListKind::PullCopies => {
                for copy in idle_copies(
                    &self.context.pull_copies,
                    &origin,
                    &page.items,
                    self.limits.gc_interval,
                ) {
                    candidates.add_pull_copy(copy);
                }
            }
        }
    }

    /// Records the Secrets of tasks that run there, and collects the others that are old enough to be orphans.
    fn keep_site_secrets<'a>(
        &mut self,
        site: &Arc<Site>,
        secrets: impl Iterator<Item = &'a ObjectMeta>,
        candidates: &mut OrphanBatch,
    ) {
        let (origin, now) = (Some(Arc::clone(site)), Timestamp::now());
        for meta in secrets {
            let Some(task) =
                secret_task(meta).filter(|_| self.adoption.is_of_this_hub(&self.index, &origin, meta))
            else {
                continue;
            };
            if self.index.is_at(&task, site) {
                if meta.uid.as_deref().is_some_and(is_uid) && self.index.see_secret(&task, meta) {
                    self.queue.ready(&task, EnqueueReason::SecretSeen);
                }
            } else if is_orphan(&marked(meta, now), self.limits.gc_interval, None)
                && let Some(secret) = OrphanSecret::of(&self.adoption.hub_id, meta)
            {
                candidates.add_secret(secret);
            }
        }
    }

    /// Adopts the Jobs of other hubs at a site whose tasks this hub serves now; returns the Jobs whose task the hub does not
    /// know.
    pub(super) fn adopt_jobs(&mut self, origin: &JobLocation, jobs: &[ListedObject]) -> Vec<JobMetadata> {
        let (mut unknown, mut takeovers) = (Vec::new(), Vec::new());
        for ListedObject { meta, hint } in jobs {
            let Some(mark) = job_metadata(meta, *hint).filter(|mark| origin.is_none() || is_uid(&mark.uid))
            else {
                continue;
            };
            match self.adoption.decide(&self.index, origin, meta) {
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
                        self.queue.later(&takeover.task, look, EnqueueReason::JobSeen);
                        takeovers.push(takeover);
                    }
                }
            }
        }
        self.take_over(origin, takeovers);
        unknown
    }

    fn take_over(&mut self, origin: &JobLocation, jobs: Vec<JobAdoption>) {
        if jobs.is_empty() {
            return;
        }
        let objects = match origin {
            None => Some(self.context.hub_client.objects().clone()),
            Some(site) => self.context.objects_at(site),
        };
        let Some(objects) = objects else { return };
        let item = match origin {
            None => WorkItem::Removal,
            Some(site) => WorkItem::SiteRemoval(Arc::clone(site)),
        };
        let (metrics, stop) = (self.metrics.clone(), self.running.stopping.clone());
        self.running.spawn(item, async move {
            take_over(&objects, &metrics, jobs, &stop).await;
            WorkResult::Removal
        });
    }

    /// Removes what is of no task any more, and what deleted tasks left behind.
    fn sweep_site(&mut self, site: &Arc<Site>, mut candidates: OrphanBatch) {
        let Some(objects) = self.context.objects_at(site) else {
            return;
        };
        collect_unassigned(&self.index, site, &mut candidates);
        let (left_out, illegible) = (candidates.left_out, candidates.illegible);
        if left_out + illegible > 0 {
            // What a cluster calls them is not repeated.
            tracing::warn!(cluster = %site.cluster, left_out, illegible, "a cluster shows more than one sweep removes");
        }
        let sweep = SweepCandidates {
            secrets: candidates.secrets,
            jobs: candidates.jobs,
            remote_orphans: self.sites.orphans(site),
            scopes: Arc::clone(&self.adoption.scopes),
        };
        let copies = candidates.pull_copies;
        if sweep.is_empty() && copies.is_empty() {
            return;
        }
        let Some(place) = self.sites.removals.take() else {
            tracing::warn!(cluster = %site.cluster, "too many clusters are swept at once; this one is swept later");
            return;
        };
        let (context, metrics, site) = (Arc::clone(&self.context), self.metrics.clone(), Arc::clone(site));
        let item = WorkItem::SiteRemoval(Arc::clone(&site));
        let until = tokio::time::Instant::now() + self.limits.gc_interval;
        let stop = self.running.stopping.clone();
        self.running.spawn(item, async move {
            let settled = remove_orphans(&context.hub_client, &objects, &metrics, sweep, &stop).await;
            let origin = Some(Arc::clone(&site));
            remove_unused_copies(&objects, &context.pull_copies, &origin, copies, until, &stop).await;
            drop(place);
            WorkResult::SiteRemoval(site, settled)
        });
    }
}

/// Jobs at a site whose tasks ended without them, or are deleted.
fn given_up(index: &TaskIndex, site: &Arc<Site>) -> Vec<OrphanJob> {
    let clock = Timestamp::now();
    let is_over = |record: &TaskRecord| record.deleting || record.cleanup_due.is_some_and(|due| due <= clock);
    let there = index.jobs().filter(|(_, job)| job.origin.as_ref() == Some(site));
    there
        .filter(|(task, _)| index.task(task).is_some_and(is_over))
        .map(|(_, job)| job.metadata.clone().into())
        .collect()
}

/// Collects the unassigned Jobs that the watch of a site shows. Where there are too many, each call starts at another one.
fn collect_unassigned(index: &TaskIndex, site: &Arc<Site>, candidates: &mut OrphanBatch) {
    let origin = Some(Arc::clone(site));
    let all = || index.unassigned_jobs(&origin);
    let count = all().count();
    let first = usize::try_from(Timestamp::now().as_second()).unwrap_or_default() % count.max(1);
    for job in all().skip(first).chain(all().take(first)) {
        candidates.add_job(|| OrphanJob {
            name: job.metadata.name.clone(),
            uid: job.metadata.uid.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::future::BoxFuture;

    use crate::kubernetes::apply::{ApiTransport, ResponseLimit};
    use crate::remote::SiteClients;
    use crate::remote::memory_budget::MEMORY_BUDGET;

    use super::super::sweep_schedule::LISTS;
    use super::super::tests::controller;
    use super::*;
    use crate::controllers::sweep::paged_sweep::{CANDIDATES, REMOVALS};

    /// The chart's memory limit.
    const CHART: usize = 256 << 20;
    /// Objects on a page of a list, and bytes of one at most: its texts have less than 5 KiB.
    const PAGE_BYTES: usize = 500 * (8 << 10);
    /// Bytes of an object that is to be removed: names, and UIDs.
    const CANDIDATE_BYTES: usize = 1 << 10;

    /// Holds: B9.
    #[test]
    fn what_all_clusters_make_the_hub_hold_is_at_most_half_of_the_charts_limit() {
        let sum = MEMORY_BUDGET + LISTS * PAGE_BYTES + (LISTS + REMOVALS) * CANDIDATES * CANDIDATE_BYTES;
        assert!(sum <= CHART / 2, "{} MiB", sum >> 20);
    }

    /// Every cluster is there, and answers nothing.
    #[derive(Debug)]
    struct Silent;

    impl ApiTransport for Silent {
        fn send(
            &self,
            _: http::Request<Vec<u8>>,
            _: ResponseLimit,
        ) -> BoxFuture<'_, Result<Bytes, CallError>> {
            Box::pin(std::future::pending())
        }
    }

    impl SiteClients for Silent {
        fn client(&self, _: &Site) -> Option<Arc<dyn ApiTransport>> {
            Some(Arc::new(Self))
        }

        fn reserve(&self, _: &Site) -> Result<Option<Arc<dyn ApiTransport>>, Instant> {
            Ok(None)
        }
    }

    /// Holds: B2.
    #[tokio::test]
    async fn no_more_sites_are_listed_at_once_than_the_bound() {
        let mut controller = controller();
        Arc::get_mut(&mut controller.context).unwrap().site_clients = Arc::new(Silent);
        controller.sync.unsynced.clear();
        for number in 0..2 * LISTS {
            let cluster = ClusterName::Platform(format!("cluster-{number}"));
            let namespace = "jobs".to_owned();
            let site = Arc::new(Site { cluster, namespace });
            controller.sweeps.sites.add(&site);
        }
        controller.start_lists(Instant::now());
        assert_eq!(controller.running.items.len(), LISTS);
    }
}
