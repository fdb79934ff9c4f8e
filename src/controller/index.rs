//! What the hub remembers of each task: everything while there is something to do, a few words once it is finished.
//!
//! Owned by one loop, so it needs no locks. A finished task keeps its names, its phase, its dates and what the hub said of it
//! last, packed; its spec is read again in the rare case that it is needed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::RenderTaskStatus;
use crate::names::TaskUid;
use crate::plan::outcome::EndHint;
use crate::plan::seal::LastWord;
use crate::plan::task::{Phase, Task, TaskId};
use crate::plan::{Held, JobState};
use crate::watch::{JobMark, Scope};

use super::record::{KnownJob, Record, retry};
use super::word::Packer;

mod secrets;
mod statuses;

pub use statuses::Sight;

/// A task that waits this long says so; earlier it would cost a write for a state that is already over.
pub const QUEUED_AFTER: Duration = Duration::from_secs(30);
/// Bytes of specs kept in memory for tasks that wait or run; beyond it a task is read when its turn comes.
const SPEC_BUDGET: usize = 32 << 20;
/// Time from the first sign of an end to its verdict; the Job controller writes both within moments.
const SOON: Duration = Duration::from_secs(1);
/// Time between looks at a Job that shows signs of an end.
const LINGER: Duration = Duration::from_secs(5);
/// Time after which a quiet Job is looked at, as a net for a lost event; beyond the default deadline of a Job.
const QUIET: Duration = Duration::from_secs(660);

/// Everything the hub remembers.
#[derive(Debug, Default)]
pub struct Index {
    tasks: HashMap<TaskUid, Record>,
    jobs: HashMap<TaskUid, KnownJob>,
    secrets: HashMap<TaskUid, Box<str>>,
    namespaces: HashSet<Arc<str>>,
    spec_bytes: usize,
    /// Lists begun so far by scope; those of Jobs under `None`.
    epochs: HashMap<Option<Scope>, u32>,
    /// Tasks in each phase, in the order of [`PHASES`].
    phases: [usize; PHASES.len()],
    packer: Packer,
}

/// The phases as metric labels.
const PHASES: [(Phase, &str); 4] = [
    (Phase::Pending, "pending"),
    (Phase::Running, "running"),
    (Phase::Succeeded, "succeeded"),
    (Phase::Failed, "failed"),
];

/// What a worker needs of a task.
#[derive(Debug)]
pub struct View {
    /// Who the task is.
    pub id: TaskId,
    /// The whole task, unless it must be read.
    pub task: Option<Arc<Task>>,
    /// What the hub said of it last, where the task must be read.
    pub said: Option<(LastWord, RenderTaskStatus)>,
    /// Whether something else stands on the object, as far as is known.
    pub is_forged: bool,
    /// Whether it is time to put that right.
    pub may_restore: bool,
    /// Its Job.
    pub job: JobState,
    /// UID of its config Secret.
    pub secret: Option<String>,
    /// What keeps its objects from being created.
    pub held: Option<Held>,
    /// Whether it has waited for a slot long enough to say so.
    pub has_waited: bool,
}

impl Index {
    // === tasks ===

    /// What is remembered of a task.
    pub fn task(&self, uid: &TaskUid) -> Option<&Record> {
        self.tasks.get(uid)
    }

    /// The same, to be changed.
    pub fn task_mut(&mut self, uid: &TaskUid) -> Option<&mut Record> {
        self.tasks.get_mut(uid)
    }

    /// All tasks.
    pub fn tasks(&self) -> impl Iterator<Item = (&TaskUid, &Record)> {
        self.tasks.iter()
    }

    /// Takes in a task as the hub itself changed it.
    pub fn changed_task(&mut self, task: Arc<Task>) {
        let Some(known) = self.tasks.get(&task.id.uid) else {
            return;
        };
        let version = task.resource_version.parse().unwrap_or(known.version);
        if version >= known.version {
            let epoch = known.epoch;
            self.remember(task, version, epoch);
        }
    }

    fn remember(&mut self, task: Arc<Task>, version: u64, epoch: u32) {
        let uid = task.id.uid.clone();
        let phase = task.phase();
        let old = self.forget_whole(&uid);
        let mut record = Record {
            word: self.word(old.as_ref(), &task),
            is_forged: old.as_ref().is_some_and(|r| r.is_forged),
            restored: old.as_ref().and_then(|r| r.restored),
            kind: task.id.kind,
            namespace: self.intern(&task.id.namespace),
            name: task.id.name.as_str().into(),
            created: task.created,
            phase,
            deleting: task.deleting,
            blocked: old.as_ref().map(|r| r.blocked.clone()).unwrap_or_default(),
            waits_since: old.as_ref().and_then(|r| r.waits_since),
            held: old.as_ref().and_then(|r| r.held),
            cleared_secret: old.as_ref().is_some_and(|r| r.cleared_secret),
            cleared_job: old.and_then(|r| r.cleared_job),
            cleanup_due: (phase == Phase::Failed).then(|| task.failure_cleanup_due()),
            removal_due: task.removal_due().filter(|_| phase.is_finished()),
            version,
            epoch,
            whole: None,
        };
        let is_needed = !phase.is_finished() || task.deleting;
        if is_needed && self.spec_bytes + task.spec_bytes <= SPEC_BUDGET {
            self.spec_bytes += task.spec_bytes;
            record.whole = Some(task);
        }
        self.phases[slot(phase)] += 1;
        self.tasks.insert(uid, record);
    }

    /// Forgets what a task looks like, so that the next pass reads it.
    pub fn forget_spec(&mut self, uid: &TaskUid) {
        if let Some(task) = self.tasks.get_mut(uid).and_then(|r| r.whole.take()) {
            self.spec_bytes -= task.spec_bytes;
        }
    }

    /// Takes in what keeps a task's objects from being created; when to try it again in spite of that.
    pub fn hold(&mut self, uid: &TaskUid, held: Option<Held>, now: Instant) -> Option<Instant> {
        let record = self.tasks.get_mut(uid)?;
        let since_earlier = record
            .held
            .filter(|(known, until)| Some(*known) == held && now < *until);
        record.held = since_earlier.or(held.map(|held| (held, now + retry(held))));
        record.held.map(|(_, until)| until)
    }

    fn forget_whole(&mut self, uid: &TaskUid) -> Option<Record> {
        let record = self.tasks.remove(uid)?;
        self.phases[slot(record.phase)] -= 1;
        self.spec_bytes -= record.whole.as_ref().map_or(0, |t| t.spec_bytes);
        Some(record)
    }

    /// Forgets a task that is gone; where it waited or ran.
    pub fn forget_task(&mut self, uid: &TaskUid) -> Option<(Arc<str>, Timestamp)> {
        let record = self.forget_whole(uid)?;
        Some((record.namespace, record.created))
    }

    /// A new list begins: of the tasks of a scope, or of Jobs.
    pub fn restart(&mut self, scope: Option<&Scope>) {
        *self.epochs.entry(scope.cloned()).or_default() += 1;
    }

    /// Tasks of the scope that the finished list did not show.
    pub fn vanished_tasks(&self, scope: &Scope) -> Vec<TaskUid> {
        let epoch = self.epoch(Some(scope));
        let stale = self
            .tasks
            .iter()
            .filter(|(_, r)| scope.covers(r.kind, &r.namespace) && r.epoch != epoch);
        stale.map(|(uid, _)| uid.clone()).collect()
    }

    /// Tasks in each phase, by label.
    pub fn phases(&self) -> impl Iterator<Item = (&'static str, usize)> {
        PHASES.iter().map(|(_, label)| *label).zip(self.phases)
    }

    fn epoch(&self, scope: Option<&Scope>) -> u32 {
        self.epochs.get(&scope.cloned()).copied().unwrap_or_default()
    }

    /// The one copy of a namespace's name.
    pub fn intern(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.namespaces.get(namespace) {
            return Arc::clone(known);
        }
        let namespace: Arc<str> = namespace.into();
        self.namespaces.insert(Arc::clone(&namespace));
        namespace
    }

    // === Jobs ===

    /// Takes in a Job as the watch showed it; when to look at its task.
    pub fn see_job(&mut self, mark: JobMark, now: Instant) -> Option<Instant> {
        let epoch = self.epoch(None);
        let cleared = self.tasks.get(&mark.task).and_then(|r| r.cleared_job.as_deref());
        if cleared == Some(mark.uid.as_str()) {
            return None;
        }
        let read_due = first_look(mark.hint, now);
        let is_new = self
            .jobs
            .get(&mark.task)
            .is_none_or(|known| known.mark.uid != mark.uid);
        let look = if is_new { now } else { read_due };
        self.jobs.insert(
            mark.task.clone(),
            KnownJob {
                mark,
                read_due,
                epoch,
            },
        );
        Some(look)
    }

    /// Takes in a Job that a worker created or found. What a watch said of it meanwhile is newer, and still to be read.
    pub fn keep_job(&mut self, mark: JobMark, now: Instant) {
        let (epoch, read_due) = (self.epoch(None), first_look(mark.hint, now));
        self.jobs.entry(mark.task.clone()).or_insert(KnownJob {
            mark,
            read_due,
            epoch,
        });
    }

    /// Takes in a Job that a worker read, and had asked for at `asked`: what a watch said since is still to be read.
    pub fn keep_read_job(&mut self, mark: JobMark, asked: Instant) {
        let epoch = self.epoch(None);
        let known = self.jobs.entry(mark.task.clone()).or_insert(KnownJob {
            mark,
            read_due: asked,
            epoch,
        });
        let pause = if known.mark.hint == EndHint::No {
            QUIET
        } else {
            LINGER
        };
        if known.read_due <= asked {
            known.read_due = asked + pause;
        }
    }

    /// When the Job of an unfinished task is to be read.
    pub fn read_due(&self, task: &TaskUid) -> Option<Instant> {
        let is_open = self.tasks.get(task).is_some_and(|r| !r.phase.is_finished());
        self.jobs.get(task).filter(|_| is_open).map(|job| job.read_due)
    }

    /// Forgets a Job that is gone; nothing more is said of it.
    pub fn forget_job(&mut self, task: &TaskUid) {
        self.jobs.remove(task);
        if let Some(record) = self.tasks.get_mut(task) {
            record.cleared_job = None;
        }
    }

    /// Forgets a Job that a worker deleted, and ignores what is still said of it.
    pub fn clear_job(&mut self, task: &TaskUid, job_uid: &str) {
        self.jobs.remove(task);
        if let Some(record) = self.tasks.get_mut(task) {
            record.cleared_job = Some(job_uid.into());
        }
    }

    /// Jobs that the finished list did not show.
    pub fn vanished_jobs(&self) -> Vec<TaskUid> {
        let epoch = self.epoch(None);
        self.jobs
            .iter()
            .filter(|(_, j)| j.epoch != epoch)
            .map(|(task, _)| task.clone())
            .collect()
    }

    /// Whether a Job of the task is known.
    pub fn has_job(&self, task: &TaskUid) -> bool {
        self.jobs.contains_key(task)
    }

    /// All Jobs by task.
    pub fn jobs(&self) -> impl Iterator<Item = (&TaskUid, &KnownJob)> {
        self.jobs.iter()
    }

    // === work ===

    /// What a worker needs; `None` where nothing is to be done before the time that is returned beside it.
    pub fn view(&self, uid: &TaskUid, clock: Timestamp, now: Instant) -> (Option<View>, Option<Timestamp>) {
        let Some(record) = self.tasks.get(uid) else {
            return (None, None);
        };
        let job = self.jobs.get(uid);
        let may_restore = record.may_restore(now);
        if record.phase.is_finished() && !record.deleting && !(record.is_forged && may_restore) {
            let is_clear = job.is_none() && !self.secrets.contains_key(uid);
            let due = if is_clear {
                record.removal_due
            } else {
                record.cleanup_due.or(Some(clock))
            };
            let due = due.into_iter().chain(record.removal_due).min();
            if due.is_none_or(|due| clock < due) {
                return (None, due);
            }
        }
        let view = View {
            id: record.id(uid),
            task: record.whole.clone(),
            said: record.whole.is_none().then(|| self.said(record)),
            is_forged: record.is_forged,
            may_restore,
            job: job.map_or(JobState::Absent, |j| j.state(now)),
            secret: self.secrets.get(uid).map(ToString::to_string),
            held: record
                .held
                .filter(|(_, until)| now < *until)
                .map(|(held, _)| held),
            has_waited: record
                .waits_since
                .is_some_and(|since| now - since >= QUEUED_AFTER),
        };
        (Some(view), None)
    }
}

/// When a Job that nobody read yet is to be read.
fn first_look(hint: EndHint, now: Instant) -> Instant {
    match hint {
        EndHint::Now => now,
        EndHint::Soon => now + SOON,
        EndHint::No => now + QUIET,
    }
}

/// Where a phase is counted.
fn slot(phase: Phase) -> usize {
    PHASES.iter().position(|(p, _)| *p == phase).unwrap_or_default()
}

#[cfg(test)]
mod tests;
