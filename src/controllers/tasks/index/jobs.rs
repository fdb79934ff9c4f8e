//! Which Jobs exist, where, and when each is read.

use std::time::{Duration, Instant};

use crate::api::names::{TaskUid, job_name};
use crate::kubernetes::watch::JobMetadata;
use crate::plan::task::job_state::CompletionHint;

use super::super::task_record::{JobLocation, KnownJob};
use super::TaskIndex;

/// Time from the first sign of an end to its verdict; the Job controller writes both within moments.
pub(super) const SOON: Duration = Duration::from_secs(1);
/// Time between reads of a Job that shows signs of an end.
pub(super) const LINGER: Duration = Duration::from_secs(5);
/// Time after which a Job without events is read, in case an event was lost; beyond the default deadline of a Job.
pub(super) const QUIET: Duration = Duration::from_secs(660);

impl TaskIndex {
    /// A new list of Jobs begins.
    pub fn restart_jobs(&mut self, origin: &JobLocation) {
        self.job_lists.begin(origin.clone());
    }

    /// Stores a Job from a watch event; returns when to reconcile its task. A Job elsewhere than where the task runs is not the
    /// task's, although its labels say so.
    pub fn see_job(&mut self, origin: &JobLocation, mark: JobMetadata, now: Instant) -> Option<Instant> {
        let listed = self.job_lists.mark(origin);
        if !self.is_its_place(origin, &mark.task) {
            let known = KnownJob {
                read_due: first_look(mark.hint, now),
                origin: origin.clone(),
                metadata: mark,
                listed,
            };
            self.put_unassigned(known);
            return None;
        }
        if !self.has_its_name(&mark) {
            return None;
        }
        let cleared = self.tasks.get(&mark.task).and_then(|r| r.cleared_job.as_deref());
        if cleared == Some(mark.uid.as_str()) {
            return None;
        }
        let read_due = first_look(mark.hint, now);
        let is_new = self
            .jobs
            .get(&mark.task)
            .is_none_or(|known| known.metadata.uid != mark.uid);
        let look = if is_new { now } else { read_due };
        self.jobs.insert(
            mark.task.clone(),
            KnownJob {
                metadata: mark,
                read_due,
                origin: origin.clone(),
                listed,
            },
        );
        Some(look)
    }

    /// Whether a Job has the name of its task's: another writer's copy of it has the same labels.
    fn has_its_name(&self, mark: &JobMetadata) -> bool {
        let record = self.tasks.get(&mark.task);
        record.is_some_and(|record| job_name(&record.name, &mark.task) == mark.name)
    }

    /// Stores a Job that a worker created or found. A watch event since is newer, and the Job is still to be read.
    pub fn keep_job(&mut self, mark: JobMetadata, now: Instant) {
        let origin = self.origin(&mark.task);
        let (listed, read_due) = (self.job_lists.mark(&origin), first_look(mark.hint, now));
        self.jobs.entry(mark.task.clone()).or_insert(KnownJob {
            metadata: mark,
            read_due,
            origin,
            listed,
        });
    }

    /// Stores a Job that a worker read with a request of the time `asked`: after a newer watch event it is still to be read.
    pub fn keep_read_job(&mut self, mark: JobMetadata, asked: Instant) {
        let origin = self.origin(&mark.task);
        let listed = self.job_lists.mark(&origin);
        let known = self.jobs.entry(mark.task.clone()).or_insert(KnownJob {
            metadata: mark,
            read_due: asked,
            origin,
            listed,
        });
        let pause = if known.metadata.hint == CompletionHint::No {
            QUIET
        } else {
            LINGER
        };
        if known.read_due <= asked {
            known.read_due = asked + pause;
        }
    }

    /// A Job that was due when a reconcile began which did not read it is due again in a while: what was decided rests on something else.
    pub fn put_off_read(&mut self, task: &TaskUid, began: Instant) {
        if let Some(known) = self.jobs.get_mut(task).filter(|known| known.read_due <= began) {
            known.read_due = began + LINGER;
        }
    }

    /// Sets when a Job is read next, unless a watch says something of it before.
    pub fn read_job_at(&mut self, task: &TaskUid, at: Instant) {
        if let Some(known) = self.jobs.get_mut(task) {
            known.read_due = at;
        }
    }

    /// When the Job of an unfinished task is to be read.
    pub fn read_due(&self, task: &TaskUid) -> Option<Instant> {
        let is_open = self.tasks.get(task).is_some_and(|r| !r.phase.is_finished());
        let job = self.jobs.get(task).filter(|_| is_open)?;
        // Of another cluster nothing is read before its watch says something.
        let is_quiet = job.origin.is_some() && job.metadata.hint == CompletionHint::No;
        (!is_quiet).then_some(job.read_due)
    }

    /// Removes a Job that a watch shows as deleted; returns whether it was the Job of a task.
    pub fn remove_job(&mut self, origin: &JobLocation, task: &TaskUid) -> bool {
        self.drop_unassigned(task, |job| job.origin == *origin);
        if !self.is_its_place(origin, task) {
            return false;
        }
        self.forget_job(task);
        true
    }

    /// Forgets a deleted Job.
    pub fn forget_job(&mut self, task: &TaskUid) {
        self.jobs.remove(task);
        if let Some(record) = self.tasks.get_mut(task) {
            record.cleared_job = None;
        }
    }

    /// Forgets a Job that a worker deleted, and ignores late events of it.
    pub fn clear_job(&mut self, task: &TaskUid, job_uid: &str) {
        self.jobs.remove(task);
        if let Some(record) = self.tasks.get_mut(task) {
            record.cleared_job = Some(job_uid.into());
        }
    }

    /// Tasks of which the finished list did not show a Job that was known.
    pub fn vanished_jobs(&self, origin: &JobLocation) -> Vec<TaskUid> {
        let listed = self.job_lists.mark(origin);
        let is_stale = |job: &KnownJob| job.origin == *origin && job.listed != listed;
        let known = self.jobs.iter().filter(|(_, job)| is_stale(job));
        let unassigned = self
            .unassigned
            .iter()
            .filter(|(_, jobs)| jobs.iter().any(is_stale));
        known
            .map(|(task, _)| task.clone())
            .chain(unassigned.map(|(task, _)| task.clone()))
            .collect()
    }

    /// Forgets all unassigned Jobs at a site that no task uses.
    pub fn forget_unassigned(&mut self, origin: &JobLocation) {
        self.drop_unassigned_at(origin);
        self.job_lists.forget(origin);
    }

    /// Forgets all unassigned Jobs at a site that is lost: a cluster that shows others each time it is connected fills no memory.
    pub fn drop_unassigned_at(&mut self, origin: &JobLocation) {
        self.unassigned.retain(|_, jobs| {
            jobs.retain(|job| job.origin != *origin);
            !jobs.is_empty()
        });
    }

    /// Whether a Job of the task is known.
    pub fn has_job(&self, task: &TaskUid) -> bool {
        self.jobs.contains_key(task)
    }

    /// All Jobs of tasks.
    pub fn jobs(&self) -> impl Iterator<Item = (&TaskUid, &KnownJob)> {
        self.jobs.iter()
    }

    /// Jobs that are of no task that runs there.
    pub fn unassigned_jobs(&self, origin: &JobLocation) -> impl Iterator<Item = &KnownJob> {
        self.unassigned
            .values()
            .flatten()
            .filter(move |job| job.origin == *origin)
    }

    pub(super) fn put_unassigned(&mut self, job: KnownJob) {
        let known = self.unassigned.entry(job.metadata.task.clone()).or_default();
        known.retain(|other| other.origin != job.origin);
        known.push(job);
    }

    fn drop_unassigned(&mut self, task: &TaskUid, is_one: impl Fn(&KnownJob) -> bool) {
        if let Some(known) = self.unassigned.get_mut(task) {
            known.retain(|job| !is_one(job));
            if known.is_empty() {
                self.unassigned.remove(task);
            }
        }
    }

    /// A Job that was seen before its task is the task's, if it is where the task runs.
    pub(super) fn claim_unassigned(&mut self, uid: &TaskUid) {
        let Some(known) = self.unassigned.remove(uid) else {
            return;
        };
        for job in known {
            if self.is_its_place(&job.origin, uid) && !self.has_its_name(&job.metadata) {
                continue;
            }
            if self.is_its_place(&job.origin, uid) {
                self.jobs.entry(uid.clone()).or_insert(job);
            } else {
                self.put_unassigned(job);
            }
        }
    }

    /// Whether a task that is known runs there.
    pub fn is_its_place(&self, origin: &JobLocation, task: &TaskUid) -> bool {
        let Some(record) = self.tasks.get(task) else {
            return false;
        };
        match (&record.remote.target, origin) {
            (None, None) => true,
            (Some(target), Some(site)) => target.is_at(site),
            _ => false,
        }
    }

    /// Where a task's Job is.
    fn origin(&self, task: &TaskUid) -> JobLocation {
        self.tasks.get(task).and_then(|record| record.remote.site.clone())
    }
}

/// When a Job that was not read yet is to be read.
fn first_look(hint: CompletionHint, now: Instant) -> Instant {
    match hint {
        CompletionHint::Now => now,
        CompletionHint::Soon => now + SOON,
        CompletionHint::No => now + QUIET,
    }
}
