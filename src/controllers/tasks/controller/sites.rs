//! What the controller does with sites: it asks for those that tasks need, lists what is there when one is connected, and
//! wakes its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::conditions::Reason;
use crate::api::names::TaskUid;
use crate::kubernetes::apply::TaskObjectClient;
use crate::plan::queue::QueuedTask;
use crate::plan::remote::ledger;
use crate::plan::remote::site::{RemoteTarget, Site, SiteState};
use crate::plan::task::model::TaskPhase;
use crate::remote::SiteRequest;

use super::super::outcome::ReconcileOutcome;
use super::super::sites::{SiteTransition, UnusedSite};
use super::super::task_record::TaskRecord;
use super::TaskController;
use super::enqueue::{EnqueueReason, ready};

/// What a finished task may have left on a cluster is gone this long after it was to be removed, or never will be.
const LEFTOVERS: SignedDuration = SignedDuration::from_hours(1);

impl TaskController {
    pub(super) fn request_site(&mut self, site: &Arc<Site>) {
        if self.sites.request_for_orphans(site) {
            self.send_site_request(SiteRequest::Open(Arc::clone(site)));
        }
    }

    fn send_site_request(&self, want: SiteRequest) {
        // The cluster controller ends only with the process.
        _ = self.wants.send(want);
    }

    /// The site of a task, if it is known.
    fn site_of(&mut self, uid: &TaskUid) -> Option<Arc<Site>> {
        let record = self.index.task(uid)?;
        if let Some(site) = &record.remote.site {
            return Some(Arc::clone(site));
        }
        let target = Arc::clone(record.remote.target.as_ref()?);
        let there = record.remote.job_namespace.clone();
        let catalog = self.offers.catalog();
        let site = target.site(there.as_deref(), &catalog)?;
        Some(self.sites.intern(site, Timestamp::now()))
    }

    /// The site of a task and its state, for a reconcile; requests the site if the task has objects there.
    pub(super) fn site_and_state(&mut self, uid: &TaskUid) -> Option<(Arc<Site>, SiteState)> {
        let is_there = needs_site(self.index.task(uid)?) || self.index.has_job(uid);
        let abroad = &self.index.task(uid)?.remote;
        let is_own = matches!(abroad.target.as_deref(), Some(RemoteTarget::Own(_)));
        if is_own && abroad.site.is_none() && !is_there {
            // Nothing is remembered of a cluster that a tenant only named.
            return None;
        }
        let site = self.site_of(uid)?;
        if is_there {
            self.join_site(uid, &site);
        }
        let state = self.sites.state(&site)?;
        Some((site, state))
    }

    fn join_site(&mut self, uid: &TaskUid, site: &Arc<Site>) {
        self.index.set_site(uid, site);
        if self.sites.add_task(site, uid) {
            self.send_site_request(SiteRequest::Open(Arc::clone(site)));
        }
    }

    /// A task's plan waits for its cluster.
    pub(super) fn wait_for_site(&mut self, uid: &TaskUid) {
        let is_new = self
            .index
            .task(uid)
            .is_some_and(|record| record.remote.site.is_none());
        if let Some(site) = self.site_of(uid) {
            self.join_site(uid, &site);
            if is_new {
                // The next reconcile sees the state of the site.
                ready(&mut self.queue, uid, EnqueueReason::SiteKnown);
            }
        }
    }

    /// Handles what a reconcile found of a task's cluster: the task joins or leaves the site.
    pub(super) fn handle_site_outcome(&mut self, uid: &TaskUid, outcome: &ReconcileOutcome) {
        if outcome.remote.was_sent {
            self.index.suspect(uid, true);
        }
        if outcome.remote.was_reached && outcome.error.is_none() {
            self.index.suspect(uid, false);
        }
        self.handle_leftovers(&outcome.remote);
        let Some(record) = self
            .index
            .task(uid)
            .filter(|record| record.remote.target.is_some())
        else {
            return;
        };
        let is_there = needs_site(record) || self.index.has_job(uid) || self.index.has_secret(uid);
        // A task that waits for a slot, or is retried, keeps its site.
        let goes_on = outcome.wants_slot || outcome.error.is_some();
        if outcome.remote.wants_site || is_there {
            self.wait_for_site(uid);
        } else if let Some(site) = record.remote.site.clone().filter(|_| !goes_on) {
            self.index.clear_site(uid);
            self.leave_site(uid, &site);
        }
    }

    pub(super) fn leave_site(&mut self, uid: &TaskUid, site: &Arc<Site>) {
        if let Some(unused) = self.sites.remove_task(site, uid) {
            self.release_site(site, &unused);
        }
    }

    pub(super) fn release_site(&mut self, site: &Arc<Site>, unused: &UnusedSite) {
        if unused.was_recorded {
            self.change_ledger(ledger::forget_loss(site));
        }
        if unused.was_asked {
            self.index.forget_strays(&Some(Arc::clone(site)));
            self.send_site_request(SiteRequest::Close(Arc::clone(site)));
        }
    }

    /// An earlier process may have left objects of the task that no watch has shown.
    pub(super) fn suspect(&mut self, uid: &TaskUid) {
        if self.sync.is_complete() {
            return;
        }
        let now = Timestamp::now();
        let may_be = self.index.task(uid).is_some_and(|record| {
            let ended = record.cleanup_due.or(record.ended);
            !record.phase.is_finished() || record.deleting || ended.is_none_or(|at| now < later(at))
        });
        self.index.suspect(uid, may_be);
    }

    pub(super) fn handle_site_event(&mut self, site: &Site, state: SiteState) {
        tracing::debug!(
            cluster = %site.cluster,
            namespace = site.namespace,
            state = state.as_str(),
            reason = state.reason().map(Reason::as_str),
            "the state of a site changes"
        );
        let turn = self.sites.transition(site, state, Timestamp::now());
        let Some(site) = self.sites.known(site).cloned() else {
            return;
        };
        match turn {
            SiteTransition::Connected => self.sweeps.list_site_at(&site, Instant::now()),
            SiteTransition::Lost => {
                // Before it counts as connected again, all of them are listed again.
                self.index.drop_strays_at(&Some(Arc::clone(&site)));
                let tasks = self.sites.tasks(&site);
                if tasks.iter().any(|uid| self.index.has_job(uid))
                    && let Some(since) = self.sites.record_loss(&site)
                {
                    self.change_ledger(ledger::record_loss(&site, since));
                }
                self.requeue_unreached(tasks);
            }
            SiteTransition::KeptAway { was_recorded } => {
                if was_recorded {
                    self.change_ledger(ledger::forget_loss(&site));
                }
                self.requeue_unreached(self.sites.tasks(&site));
            }
            SiteTransition::Nothing => {}
        }
    }

    /// Requeues tasks whose site is no longer reached, so that they delay no other task.
    pub(super) fn requeue_unreached(&mut self, tasks: Vec<TaskUid>) {
        for uid in tasks {
            self.give_slot_back(&uid);
            ready(&mut self.queue, &uid, EnqueueReason::SiteLost);
        }
    }
    pub(super) fn objects_at(&self, site: &Site) -> Option<TaskObjectClient> {
        let wire = self.context.site_clients.client(site)?;
        let hub_id = self.context.hub_placement.hub_id.clone();
        Some(TaskObjectClient::new(wire, None, site.namespace.clone(), hub_id))
    }

    /// A site is up: its tasks are requeued at once, and those with Jobs there take their slots again.
    pub(super) fn handle_site_up(&mut self, site: &Arc<Site>) {
        for uid in self.sites.tasks(site) {
            self.take_slot_again(&uid);
            ready(&mut self.queue, &uid, EnqueueReason::SiteUp);
        }
    }

    fn take_slot_again(&mut self, uid: &TaskUid) {
        let has_job = self.index.has_job(uid);
        if let Some(record) = self.index.task(uid)
            && has_job
            && !record.phase.is_finished()
        {
            self.fair.adopt(queued_task(record, uid));
        }
    }

    /// What was left behind is gone.
    pub(super) fn forget_orphans(&mut self, site: &Arc<Site>, tasks: Vec<TaskUid>) {
        for task in tasks {
            self.change_ledger(ledger::forget_orphan(&task));
            if let Some(unused) = self.sites.remove_orphan(site, &task) {
                self.release_site(site, &unused);
            }
        }
    }

    /// Says how many Jobs run on each cluster, where that changed.
    pub(super) fn publish_active_jobs(&mut self) {
        let running = self.fair.running_on();
        let running: BTreeMap<_, _> = running.map(|(name, n)| (name.to_string(), n)).collect();
        self.active.send_if_modified(|known| {
            let is_new = **known != running;
            if is_new {
                *known = Arc::new(running);
            }
            is_new
        });
    }

    /// Updates the caps of clusters and the weights of namespaces from the catalog.
    pub(super) fn update_queue_limits(&mut self) {
        let catalog = self.offers.catalog();
        self.fair.set_weights(Arc::clone(&catalog.weights));
        let gone: Vec<_> = self
            .fair
            .capped()
            .filter(|name| !catalog.clusters.contains_key(&***name))
            .map(Arc::clone)
            .collect();
        for name in gone {
            self.fair.set_cap(&name, None);
        }
        for (name, cluster) in &catalog.clusters {
            let cap = cluster.spec.max_active_jobs;
            self.fair
                .set_cap(name, cap.map(|cap| usize::try_from(cap).unwrap_or(0)));
        }
    }
}

/// A task as the fair queue knows it.
pub(super) fn queued_task<'a>(record: &'a TaskRecord, uid: &'a TaskUid) -> QueuedTask<'a> {
    QueuedTask {
        namespace: record.namespace(),
        created: record.created,
        uid,
        cluster: record.remote.target.as_ref().and_then(|target| target.platform()),
    }
}

/// Whether a task has something on its cluster, or may have.
fn needs_site(record: &TaskRecord) -> bool {
    record.remote.target.is_some() && (record.phase == TaskPhase::Running || record.remote.may_be_there)
}

fn later(at: Timestamp) -> Timestamp {
    at.checked_add(LEFTOVERS).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_finished_task_left_is_looked_for_as_long_as_is_said() {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(later(at).duration_since(at), LEFTOVERS);
        assert_eq!(later(Timestamp::MAX), Timestamp::MAX);
    }
}
