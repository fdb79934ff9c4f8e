//! Handles the outcomes of workers and sweeps.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::names::TaskUid;
use crate::base::metrics::event_latency::WaitReason;
use crate::kubernetes::apply::{CallError, ListedObject};
use crate::kubernetes::watch::{JobMetadata, secret_task};
use crate::plan::queue::{FairQueue, QueuedTask};
use crate::plan::task::model::TaskPhase;
use crate::plan::task::orphans::is_orphan;
use crate::plan::task::retention::RemovalState;

use super::super::index::QUEUED_AFTER;
use super::super::outcome::{JobUpdate, ReconcileError, ReconcileOutcome, SecretUpdate};
use super::super::task_record::StartBlocker;
use super::cache_sync::SyncSource;
use super::enqueue::EnqueueReason;
use super::running_work::{TimedOutcome, WorkItem, WorkResult};
use super::{SWEEP_RETRY, TaskController, instant};
use crate::controllers::sweep::unused_copies::{idle_copies, remove_unused_copies};
use crate::controllers::sweep::{
    OrphanJob, OrphanSecret, SweepCandidates, UnwatchedObjects, marked, remove_orphans,
};

impl TaskController {
    /// Handles the outcome of a reconcile. A task that waits for a slot or for the Lease keeps its event latency open; for any
    /// other the event is done.
    pub(super) fn handle_timed_outcome(&mut self, uid: &TaskUid, passed: TimedOutcome) {
        let TimedOutcome {
            started,
            outcome,
            latency,
        } = passed;
        if outcome.error.is_none() && matches!(outcome.job, JobUpdate::None) {
            self.index.put_off_read(uid, started);
        }
        self.handle_outcome(uid, &outcome);
        let now = Instant::now();
        let goes_on = outcome.wants_slot || outcome.lacks_claim();
        if let Some(latency) = latency.filter(|_| goes_on && self.index.task(uid).is_some()) {
            let wait = outcome.wants_slot.then_some(WaitReason::Turn);
            self.latencies.put(uid, latency, wait, now);
        }
        self.end_pass(uid);
    }

    /// Handles what a reconcile found and did.
    pub(super) fn handle_outcome(&mut self, uid: &TaskUid, outcome: &ReconcileOutcome) {
        let error = outcome.error;
        let changes = self.in_flight.get(uid);
        let (is_outdated, job_is_gone) = changes.map_or((false, false), |c| (c.is_outdated, c.is_job_gone));
        if outcome.is_gone {
            self.forget(uid);
            return;
        }
        self.record_objects(uid, outcome, job_is_gone);
        self.handle_site_outcome(uid, outcome);
        self.index.take_status(uid, outcome.status, Instant::now());
        self.take_slot(uid, outcome);
        let wake = outcome.wake.map(instant);
        if let Some(wake) = wake {
            self.queue.later(uid, wake, EnqueueReason::Due);
        }
        let held = outcome.create_blocked.filter(|_| !is_outdated);
        if let Some(retry) = self.index.set_create_blocked(uid, held, wake, Instant::now()) {
            self.queue.later(uid, retry, EnqueueReason::Held);
        }
        match error {
            None => {
                self.queue.succeeded(uid);
                self.await_restore(uid);
                self.finished.retain(&mut self.index, &self.sites, uid);
            }
            // The task did not fail, and no work starts before the hub holds its Lease again.
            Some(ReconcileError::Call(CallError::NoClaim)) => {
                self.queue.ready(uid, EnqueueReason::NoClaim);
            }
            Some(error) => {
                // A removal that failed is queued again after its back-off.
                if let Some(record) = self.index.task_mut(uid) {
                    record.removal = RemovalState::Waits;
                }
                if error == ReconcileError::Call(CallError::Conflict) {
                    // What is remembered is stale; the next reconcile reads.
                    self.index.forget_spec(uid);
                }
                self.fail(uid, error.kind(), error.stage());
            }
        }
    }

    fn record_objects(&mut self, uid: &TaskUid, outcome: &ReconcileOutcome, job_is_gone: bool) {
        if let Some(task) = &outcome.task {
            self.index.changed_task(Arc::clone(task));
        }
        match &outcome.secret {
            SecretUpdate::None => {}
            SecretUpdate::Known(secret) => self.index.keep_secret(uid, secret),
            SecretUpdate::Deleted => self.index.forget_secret(uid),
        }
        match &outcome.job {
            // A Job that went while the worker had its task stays gone.
            JobUpdate::Known(_) | JobUpdate::Read(..) | JobUpdate::Deleted(_) if job_is_gone => {
                self.index.forget_job(uid);
            }
            JobUpdate::Known(job) => self.index.keep_job(job.clone(), Instant::now()),
            // What was read for a reconcile that failed was of no use, so the Job stays to be read.
            JobUpdate::Read(job, asked) if outcome.error.is_some() => {
                self.index.keep_job(job.clone(), *asked);
            }
            JobUpdate::Read(job, asked) => self.index.keep_read_job(job.clone(), *asked),
            JobUpdate::Absent => self.index.forget_job(uid),
            JobUpdate::Deleted(job) => self.index.clear_job(uid, job),
            JobUpdate::None => {}
        }
        self.start_verification(uid, outcome);
        // After every reconcile, whatever its outcome: the wake-up of an earlier one may have started this one. A failed
        // reconcile is repeated after its back-off.
        if let Some(look) = self.index.read_due(uid).filter(|_| outcome.error.is_none()) {
            self.queue.later(uid, look, EnqueueReason::JobSeen);
        }
    }

    fn take_slot(&mut self, uid: &TaskUid, outcome: &ReconcileOutcome) {
        let has_job = self.index.has_job(uid);
        let Some(record) = self.index.task(uid) else {
            return;
        };
        let is_only_verified = self.verifications.frees_slot(uid, record.namespace());
        let is_waiting = record.phase == TaskPhase::Pending && !record.deleting && !has_job;
        let blocked = match outcome.waits_for.as_deref() {
            _ if !is_waiting || outcome.wants_slot => StartBlocker::No,
            Some(namespace) => StartBlocker::ByTenant(self.index.intern(namespace)),
            None => StartBlocker::ByPlatform,
        };
        self.index.block(uid, blocked);
        let Some(record) = self.index.task_mut(uid) else {
            return;
        };
        if outcome.wants_slot {
            let now = Instant::now();
            let due = *record.waits_since.get_or_insert(now) + QUEUED_AFTER;
            if due > now {
                self.queue.later(uid, due, EnqueueReason::StillQueued);
            }
        } else {
            record.waits_since = None;
        }
        // A task of an unreached cluster must not delay others; a reconcile that failed says nothing of the cluster.
        let site = record.remote.site.as_ref();
        let is_reached = record.remote.target.is_none()
            || outcome.remote.was_reached
            || outcome.error.is_some() && site.is_some_and(|site| self.sites.is_reached(site));
        if has_job && !record.phase.is_finished() && is_reached && !is_only_verified {
            let overdue_at = outcome.overdue_at.map(instant);
            hold_slot(&mut self.slots.queue, record.queued(uid), overdue_at);
            // Whatever else the task waits for, its slot is looked at then.
            if let Some(at) = overdue_at.filter(|at| *at > Instant::now()) {
                self.queue.later(uid, at, EnqueueReason::Due);
            }
        } else if outcome.wants_slot {
            self.slots.queue.wait(record.queued(uid));
        } else {
            self.slots.queue.remove(record.namespace(), record.created, uid);
        }
    }

    /// Handles the list of the rendering namespace, and removes the objects of deleted tasks.
    pub(super) fn handle_list(&mut self, listed: Result<UnwatchedObjects, CallError>) {
        let Ok(UnwatchedObjects {
            secrets,
            others_jobs,
            pull_copies,
        }) = listed
        else {
            self.sweeps.due = Some(Instant::now() + SWEEP_RETRY);
            return;
        };
        self.sweeps.due = Some(Instant::now() + self.limits.gc_interval);
        self.sweeps.publish_leftovers(&secrets);
        let candidates = self.adopt_jobs(&None, &others_jobs);
        let own = self.keep_secrets(secrets);
        self.index.prune_secrets();
        self.mark_synced(&SyncSource::Secrets);
        self.remove_orphans(&own, candidates);
        self.remove_idle_copies(&pull_copies);
    }

    /// Keeps the config Secrets of tasks; all that this hub may remove once their task is gone.
    fn keep_secrets(&mut self, secrets: Vec<ObjectMeta>) -> Vec<ObjectMeta> {
        let mut own = Vec::with_capacity(secrets.len());
        for meta in secrets {
            let Some(task) =
                secret_task(&meta).filter(|_| self.adoption.is_of_this_hub(&self.index, &None, &meta))
            else {
                continue;
            };
            if self.index.see_secret(&task, &meta) {
                self.queue.ready(&task, EnqueueReason::SecretSeen);
            }
            own.push(meta);
        }
        own
    }

    fn remove_orphans(&mut self, secrets: &[ObjectMeta], candidates: Vec<JobMetadata>) {
        let phase = |uid: &TaskUid| self.index.task(uid).map(|r| r.phase);
        // Seen by two sweeps: what is younger may belong to a task that the watch has not shown yet.
        let grace = self.limits.gc_interval;
        let (now, hub_id) = (Timestamp::now(), &self.adoption.hub_id);
        let gone = secrets.iter().filter(|meta| {
            let mark = marked(meta, now);
            is_orphan(&mark, grace, mark.task.as_ref().and_then(phase))
        });
        let unassigned = self.index.unassigned_jobs(&None);
        let unassigned = unassigned.map(|job| job.metadata.clone());
        let sweep = SweepCandidates {
            secrets: gone.filter_map(|meta| OrphanSecret::of(hub_id, meta)).collect(),
            jobs: candidates
                .into_iter()
                .chain(unassigned)
                .map(OrphanJob::from)
                .collect(),
            remote_orphans: Vec::new(),
            scopes: Arc::clone(&self.adoption.scopes),
        };
        if sweep.is_empty() {
            return;
        }
        let (context, metrics) = (Arc::clone(&self.context), self.metrics.clone());
        let stop = self.running.stopping.clone();
        self.running.spawn(WorkItem::Removal, async move {
            let objects = context.hub_client.objects();
            remove_orphans(&context.hub_client, objects, &metrics, sweep, &stop).await;
            WorkResult::Removal
        });
    }

    /// Removes those of the copies in the rendering namespace that no Job names.
    fn remove_idle_copies(&mut self, found: &[ListedObject]) {
        let (copies, grace) = (self.context.pull_copies.clone(), self.limits.gc_interval);
        let idle: Vec<_> = idle_copies(&copies, &None, found, grace).collect();
        if idle.is_empty() {
            return;
        }
        let objects = self.context.hub_client.objects().clone();
        let until = tokio::time::Instant::now() + grace;
        let stop = self.running.stopping.clone();
        self.running.spawn(WorkItem::Removal, async move {
            remove_unused_copies(&objects, &copies, &None, idle, until, &stop).await;
            WorkResult::Removal
        });
    }
}

/// A task whose Job runs holds its slot. A cluster that ends no Jobs must not take the slots of all others, one by one.
fn hold_slot(queue: &mut FairQueue, task: QueuedTask<'_>, overdue_at: Option<Instant>) {
    if overdue_at.is_none_or(|at| at > Instant::now()) {
        queue.adopt(task);
    } else if queue.set_overdue(task) {
        tracing::warn!(
            task = %task.uid,
            cluster = task.cluster,
            "a Job on another cluster has not ended five minutes after its deadline, so its slot is free; look whether the controllers \
             of that cluster run"
        );
    }
}
