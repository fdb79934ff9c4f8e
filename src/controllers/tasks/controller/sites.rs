//! What the controller does with sites: it asks for those that tasks need, lists what is there when one is connected, and
//! wakes its tasks.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::conditions::Reason;
use crate::api::names::TaskUid;
use crate::plan::remote::site::{KnownSite, RemoteTarget, Site, SiteState};
use crate::plan::task::model::TaskPhase;
use crate::remote::SiteRequest;

use super::super::outcome::ReconcileOutcome;
use super::super::sites::SiteTransition;
use super::super::task_record::TaskRecord;
use super::TaskController;
use super::enqueue::EnqueueReason;

/// What a finished task may have left on a cluster is gone this long after it was to be removed, or never will be.
const LEFTOVERS: SignedDuration = SignedDuration::from_hours(1);

impl TaskController {
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

    /// What is known of a task's site, for a reconcile; requests the site if the task has objects there, or has the slot to
    /// create them: a deleted `RenderCluster` closes a site that was not requested, under the Job that was just created.
    pub(super) fn known_site(&mut self, uid: &TaskUid) -> Option<KnownSite> {
        let is_there = needs_site(self.index.task(uid)?) || self.index.has_job(uid);
        let remote = &self.index.task(uid)?.remote;
        let is_own = matches!(remote.target.as_deref(), Some(RemoteTarget::Own(_)));
        if is_own && remote.site.is_none() && !is_there {
            // Nothing is remembered of a cluster that a tenant only named.
            return None;
        }
        let site = self.site_of(uid)?;
        let record = self.index.task(uid)?;
        if is_there || self.slots.queue.is_running(record.namespace(), uid) {
            self.join_site(uid, &site);
            // Before the reconcile begins, so that the cluster controller hears of it before a Job is there.
            self.follow_sites();
        }
        self.sites.get(&site)
    }

    fn join_site(&mut self, uid: &TaskUid, site: &Arc<Site>) {
        self.index.set_site(uid, site);
        self.sites.add_task(site, uid);
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
                self.queue.ready(uid, EnqueueReason::SiteKnown);
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
            self.sites.remove_task(&site, uid);
        }
    }

    /// Passes on what follows from what happened to sites. A closed one is not watched any more.
    pub(super) fn follow_sites(&mut self) {
        for request in std::mem::take(&mut self.sites.requests) {
            if let SiteRequest::Close(site) = &request {
                self.index.forget_unassigned(&Some(Arc::clone(site)));
            }
            // The cluster controller ends only with the process.
            _ = self.site_requests.send(request);
        }
        if let Some(changes) = self.sites.ledger.take() {
            self.write_ledger(Duration::ZERO, changes);
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
            SiteTransition::Connected => self.sweeps.sites.add(&site),
            SiteTransition::Lost => {
                // Before it counts as connected again, all of them are listed again.
                self.index.drop_unassigned_at(&Some(Arc::clone(&site)));
                let tasks = self.sites.tasks(&site);
                if tasks.iter().any(|uid| self.index.has_job(uid)) {
                    self.sites.record_loss(&site);
                }
                self.requeue_unreached(tasks);
            }
            SiteTransition::KeptAway => self.requeue_unreached(self.sites.tasks(&site)),
            SiteTransition::Nothing => {}
        }
    }

    /// Requeues tasks whose site is no longer reached, so that they delay no other task.
    pub(super) fn requeue_unreached(&mut self, tasks: Vec<TaskUid>) {
        for uid in tasks {
            self.give_slot_back(&uid);
            self.queue.ready(&uid, EnqueueReason::SiteLost);
        }
    }

    /// A site is up: its tasks are requeued at once, and those with Jobs there take their slots again.
    pub(super) fn handle_site_up(&mut self, site: &Arc<Site>) {
        for uid in self.sites.tasks(site) {
            if let Some(record) = self.index.task(&uid)
                && self.index.has_job(&uid)
                && !record.phase.is_finished()
            {
                self.slots.queue.adopt(record.queued(&uid));
            }
            self.queue.ready(&uid, EnqueueReason::SiteUp);
        }
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
