//! What the engine takes in from its workers and its sweeps.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::labels::SPEC_HASH;
use crate::api::names::TaskUid;
use crate::base::metrics::journey::Wait;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::watch::{JobMark, secret_task};
use crate::plan::task::gc::is_orphan;
use crate::plan::task::model::Phase;

use super::super::index::QUEUED_AFTER;
use super::super::outcome::{JobNews, Outcome, SecretNews, WorkError};
use super::super::record::Blocked;
use super::running::{Errand, Finished, Passed};
use super::sites::ticket;
use super::sources::Source;
use super::wakes::{Wake, later, ready};
use super::{Engine, SWEEP_RETRY, instant};
use crate::controllers::sweep::{Listed, Stranger, Sweep, marked, remove_orphans};

impl Engine {
    /// Takes in what a pass brought. The event of one that waits for a slot, or for the hub's claim, is still on its way; for
    /// that of any other nothing was to be done.
    pub(super) fn end_journey(&mut self, uid: &TaskUid, passed: Passed) {
        let Passed { outcome, journey, .. } = passed;
        self.take_outcome(uid, &outcome);
        let now = Instant::now();
        let goes_on = outcome.wants_slot || outcome.lacks_claim();
        if let Some(journey) = journey.filter(|_| goes_on && self.index.task(uid).is_some()) {
            let wait = outcome.wants_slot.then_some(Wait::Turn);
            self.journeys.put(uid, journey, wait, now);
        }
        self.end_pass(uid);
    }

    /// Takes in what a pass found and did.
    pub(super) fn take_outcome(&mut self, uid: &TaskUid, outcome: &Outcome) {
        let error = outcome.error;
        let is_outdated = self.outdated.remove(uid);
        let job_is_gone = self.jobs_gone.remove(uid);
        if outcome.is_gone {
            self.forget(uid);
            return;
        }
        self.take_objects(uid, outcome, job_is_gone);
        self.take_site(uid, outcome);
        self.index.take_status(uid, outcome.status, Instant::now());
        self.take_slot(uid, outcome);
        let wake = outcome.wake.map(instant);
        if let Some(wake) = wake {
            later(&mut self.queue, uid, wake, Wake::Due);
        }
        let held = outcome.held.filter(|_| !is_outdated);
        if let Some(retry) = self.index.hold(uid, (held, wake), Instant::now()) {
            later(&mut self.queue, uid, retry, Wake::Held);
        }
        match error {
            None => {
                self.backoff.clear(uid);
                self.await_restore(uid);
                self.retain(uid);
            }
            // No failure of the task's, and nothing is begun before there is a claim again.
            Some(WorkError::Call(CallError::NoClaim)) => ready(&mut self.queue, uid, Wake::NoClaim),
            Some(error) => {
                self.give_removal_back(uid);
                if error == WorkError::Call(CallError::Conflict) {
                    // What is remembered is stale; the next pass reads.
                    self.index.forget_spec(uid);
                }
                self.fail(uid, error.kind(), error.stage());
            }
        }
    }

    fn take_objects(&mut self, uid: &TaskUid, outcome: &Outcome, job_is_gone: bool) {
        if let Some(task) = &outcome.task {
            self.index.changed_task(Arc::clone(task));
        }
        match &outcome.secret {
            SecretNews::None => {}
            SecretNews::Known(secret) => self.index.keep_secret(uid, secret),
            SecretNews::Deleted => self.index.forget_secret(uid),
        }
        match &outcome.job {
            // A Job that went while the worker had its task stays gone.
            JobNews::Known(_) | JobNews::Read(..) | JobNews::Deleted(_) if job_is_gone => {
                self.index.forget_job(uid);
            }
            JobNews::Known(job) => self.index.keep_job(job.clone(), Instant::now()),
            // What was read for a pass that failed was of no use, so the Job stays to be read.
            JobNews::Read(job, asked) if outcome.error.is_some() => self.index.keep_job(job.clone(), *asked),
            JobNews::Read(job, asked) => self.index.keep_read_job(job.clone(), *asked),
            JobNews::Absent => self.index.forget_job(uid),
            JobNews::Deleted(job) => self.index.clear_job(uid, job),
            JobNews::None => {}
        }
        self.take_question(uid, outcome);
        // After every pass, whatever it brought: the wake-up of an earlier one may be what started this one. A pass that
        // failed is repeated when its back-off says so.
        if let Some(look) = self.index.read_due(uid).filter(|_| outcome.error.is_none()) {
            later(&mut self.queue, uid, look, Wake::JobSeen);
        }
    }

    fn take_slot(&mut self, uid: &TaskUid, outcome: &Outcome) {
        let has_job = self.index.has_job(uid);
        let is_only_asked_for = self.questions.is_required(uid);
        let Some(record) = self.index.task(uid) else {
            return;
        };
        let is_waiting = record.phase == Phase::Pending && !record.deleting && !has_job;
        let blocked = match outcome.waits_for.as_deref() {
            _ if !is_waiting || outcome.wants_slot => Blocked::No,
            Some(namespace) => Blocked::ByTenant(self.index.intern(namespace)),
            None => Blocked::ByPlatform,
        };
        self.index.block(uid, blocked);
        let Some(record) = self.index.task_mut(uid) else {
            return;
        };
        if outcome.wants_slot {
            let now = Instant::now();
            let due = *record.waits_since.get_or_insert(now) + QUEUED_AFTER;
            if due > now {
                later(&mut self.queue, uid, due, Wake::StillQueued);
            }
        } else {
            record.waits_since = None;
        }
        // What runs on a cluster that is not reached holds up nobody else.
        let is_reached = record.abroad.target.is_none() || outcome.abroad.was_reached;
        if has_job && !record.phase.is_finished() && is_reached && !is_only_asked_for {
            self.fair.adopt(ticket(record, uid));
        } else if outcome.wants_slot {
            self.fair.wait(ticket(record, uid));
        } else {
            self.fair.leave(record.namespace(), record.created, uid);
        }
    }

    /// Takes in what is in the rendering namespace, and removes what belongs to no task any more.
    pub(super) fn take_list(&mut self, listed: Result<Listed, CallError>) {
        self.is_sweeping = false;
        let Ok(Listed { secrets, others_jobs }) = listed else {
            self.sweep_due = Instant::now() + SWEEP_RETRY;
            return;
        };
        self.sweep_due = Instant::now() + self.limits.gc_interval;
        self.show_left(&secrets);
        let strangers = self.meet_jobs(&None, &others_jobs);
        let own = self.keep_secrets(secrets);
        self.index.prune_secrets();
        self.saw(&Source::Secrets);
        self.remove_orphans(&own, strangers);
    }

    /// Keeps the config Secrets of tasks; all that this hub may remove once their task is gone.
    fn keep_secrets(&mut self, secrets: Vec<ObjectMeta>) -> Vec<ObjectMeta> {
        let mut own = Vec::with_capacity(secrets.len());
        for meta in secrets {
            let Some(task) = secret_task(&meta).filter(|_| self.concerns(&None, &meta)) else {
                continue;
            };
            let hash = meta.annotations.as_ref().and_then(|a| a.get(SPEC_HASH));
            if let Some(uid) = &meta.uid
                && self.index.is_made_from(&task, hash.map(String::as_str))
                && !self.index.is_secret_cleared(&task)
            {
                self.index.keep_secret(&task, uid);
                ready(&mut self.queue, &task, Wake::SecretSeen);
            }
            own.push(meta);
        }
        own
    }

    fn remove_orphans(&mut self, secrets: &[ObjectMeta], strangers: Vec<JobMark>) {
        let phase = |uid: &TaskUid| self.index.task(uid).map(|r| r.phase);
        // Seen by two sweeps: what is younger may belong to a task that the watch has not shown yet.
        let grace = self.limits.gc_interval;
        let (now, hub_id) = (Timestamp::now(), &self.context.place.hub_id);
        let gone = secrets.iter().filter(|meta| {
            let mark = marked(meta, now);
            is_orphan(&mark, grace, mark.task.as_ref().and_then(phase))
        });
        let sweep = Sweep {
            secrets: gone.filter_map(|meta| Stranger::of(hub_id, meta)).collect(),
            jobs: self.with_strays(&None, strangers),
            left: Vec::new(),
            scopes: Arc::clone(&self.all_scopes),
        };
        if sweep.is_empty() {
            return;
        }
        let (context, metrics) = (Arc::clone(&self.context), self.metrics.clone());
        self.running.spawn(Errand::Removal, async move {
            remove_orphans(&context.calls, context.calls.objects(), &metrics, sweep).await;
            Finished::Removal
        });
    }
}
