//! What the hub remembers of each task: everything while there is something to do, a few words once it is finished.
//!
//! Owned by one loop, so it needs no locks. A finished task keeps its names, its phase, its dates and what the hub said of it
//! last, packed; its spec is read again in the rare case that it is needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::RenderTaskStatus;
use crate::api::names::TaskUid;
use crate::kubernetes::apply::Wire;
use crate::kubernetes::watch::Scope;
use crate::plan::platform::tenancy::Tenancy;
use crate::plan::remote::lost::{Leftovers, Patience};
use crate::plan::remote::placement::Target;
use crate::plan::remote::site::{Site, SiteState};
use crate::plan::task::model::{Phase, Task, TaskId};
use crate::plan::task::retention::Removal;
use crate::plan::task::seal::LastWord;
use crate::plan::task::{Held, JobState};

use super::interned::Interned;
use super::record::{Abroad, Blocked, KnownJob, Origin, Record, Size, retry};
use super::verification::Answer;
use super::word::Packer;

mod jobs;
mod secrets;
mod statuses;
mod targets;

/// A task that waits this long says so; earlier it would cost a write for a state that is already over.
pub const QUEUED_AFTER: Duration = Duration::from_secs(30);
/// Bytes of whole tasks kept in memory while they wait or run; beyond it a task is read when its turn comes.
const KEPT_BUDGET: usize = 32 << 20;

/// Everything the hub remembers.
#[derive(Debug, Default)]
pub struct Index {
    tasks: HashMap<TaskUid, Record>,
    jobs: HashMap<TaskUid, KnownJob>,
    /// Jobs with the hub's mark that are of no task that is known to run there.
    strays: HashMap<TaskUid, Vec<KnownJob>>,
    /// Lists of Jobs begun so far.
    job_epochs: HashMap<Origin, u32>,
    secrets: HashMap<TaskUid, Box<str>>,
    namespaces: Interned<str>,
    /// Bytes of the whole tasks that are kept.
    kept_bytes: usize,
    /// Lists of tasks begun so far.
    epochs: HashMap<Scope, u32>,
    /// Tasks in each phase, in the order of [`PHASES`].
    phases: [usize; PHASES.len()],
    packer: Packer,
    /// Whom tasks without a ServiceAccount act as, which decides how their own kubeconfig is read.
    tenancy: Tenancy,
    /// How long what a failure left stays.
    patience: Patience,
    targets: Interned<Target>,
    /// Tasks that wait for the tenant of each namespace.
    waiting: HashMap<Arc<str>, usize>,
}

/// The phases as metric labels.
const PHASES: [(Phase, &str); 4] = [
    (Phase::Pending, "pending"),
    (Phase::Running, "running"),
    (Phase::Succeeded, "succeeded"),
    (Phase::Failed, "failed"),
];

/// What a worker needs of a task's cluster, where that is not the hub's own.
#[derive(Debug, Default)]
pub struct ViewAbroad {
    /// Whether something of it may be there that was not seen.
    pub may_be_there: bool,
    /// The site that it is at, and how that stands.
    pub site: Option<(Arc<Site>, SiteState)>,
    /// The way there for one pass, where it is connected.
    pub way: Option<Arc<dyn Wire>>,
}

impl ViewAbroad {
    /// What may be there besides what was seen.
    pub const fn leftovers(&self) -> Leftovers {
        if self.may_be_there {
            Leftovers::Possible
        } else {
            Leftovers::None
        }
    }
}

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
    /// Tasks that wait for the tenant of the same namespace.
    pub waiting_beside: usize,
    /// Whether the task itself may be removed now.
    pub removal: Removal,
    /// Where it runs, if not on the hub.
    pub abroad: ViewAbroad,
    /// What is known of the registry's word on it.
    pub answer: Option<Answer>,
}

/// What an event of a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Late: what is remembered is newer.
    Late,
    /// News.
    News,
    /// News, with a status that is not the hub's.
    Forged,
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
        let mut known = old.as_ref().map(|r| r.abroad.clone()).unwrap_or_default();
        let (target, job_namespace) = (known.target.take(), known.job_namespace.take());
        let mut record = Record {
            word: self.word(old.as_ref(), &task),
            is_forged: old.as_ref().is_some_and(|r| r.is_forged),
            size: Size::of(&task),
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
            removal: old.as_ref().map(|r| r.removal).unwrap_or_default(),
            cleared_secret: old.as_ref().is_some_and(|r| r.cleared_secret),
            cleared_job: old.and_then(|r| r.cleared_job),
            ended: task.status.completion_time.as_ref().map(|time| time.0),
            cleanup_due: self.cleanup_due(&task),
            removal_due: task.removal_due().filter(|_| phase.is_finished()),
            version,
            epoch,
            abroad: Abroad {
                target: self.target(&task),
                job_namespace: self.job_namespace(&task),
                ..known
            },
            whole: None,
        };
        record.whole = self.affords(&task).then_some(task);
        self.phases[slot(phase)] += 1;
        self.tasks.insert(uid.clone(), record);
        self.give_back(target, job_namespace);
        self.claim_stray(&uid);
    }

    /// Whether a whole task is kept, which counts as kept then: there is something to do for it, and room.
    fn affords(&mut self, task: &Task) -> bool {
        let is_needed = !task.phase().is_finished() || task.deleting;
        let bytes = self.kept_bytes + task.kept_bytes();
        let is_kept = is_needed && bytes <= KEPT_BUDGET;
        if is_kept {
            self.kept_bytes = bytes;
        }
        is_kept
    }

    /// When what a failure left is removed.
    fn cleanup_due(&self, task: &Task) -> Option<Timestamp> {
        let due = || task.failure_cleanup_due(self.patience.kept_at_most);
        (task.phase() == Phase::Failed).then(due)
    }

    /// Forgets what a task looks like, so that the next pass reads it.
    pub fn forget_spec(&mut self, uid: &TaskUid) {
        if let Some(task) = self.tasks.get_mut(uid).and_then(|r| r.whole.take()) {
            self.kept_bytes -= task.kept_bytes();
        }
    }

    /// Takes in what keeps a task's objects from being created, and until when that is believed, where the plan says; when to
    /// try it again in spite of that.
    pub fn hold(
        &mut self,
        uid: &TaskUid,
        (held, until): (Option<Held>, Option<Instant>),
        now: Instant,
    ) -> Option<Instant> {
        let record = self.tasks.get_mut(uid)?;
        let since_earlier = record
            .held
            .filter(|(known, until)| Some(*known) == held && now < *until);
        record.held = since_earlier.or(held.map(|held| (held, until.unwrap_or(now + retry(held)))));
        record.held.map(|(_, until)| until)
    }

    fn forget_whole(&mut self, uid: &TaskUid) -> Option<Record> {
        let record = self.tasks.remove(uid)?;
        self.phases[slot(record.phase)] -= 1;
        self.kept_bytes -= record.whole.as_ref().map_or(0, |task| task.kept_bytes());
        Some(record)
    }

    /// Forgets a task that is gone; where it waited or ran.
    pub fn forget_task(&mut self, uid: &TaskUid) -> Option<(Arc<str>, Timestamp)> {
        self.block(uid, Blocked::No);
        let Record {
            namespace,
            created,
            abroad,
            ..
        } = self.forget_whole(uid)?;
        if let Some(job) = self.jobs.remove(uid) {
            self.put_stray(job);
        }
        self.give_back(abroad.target, abroad.job_namespace);
        self.namespaces.forget_last(&namespace);
        Some((namespace, created))
    }

    /// A new list of the tasks of a scope begins.
    pub fn restart(&mut self, scope: &Scope) {
        *self.epochs.entry(scope.clone()).or_default() += 1;
    }

    /// Tasks of the scope that the finished list did not show.
    pub fn vanished_tasks(&self, scope: &Scope) -> Vec<TaskUid> {
        let epoch = self.epoch(scope);
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

    fn epoch(&self, scope: &Scope) -> u32 {
        self.epochs.get(scope).copied().unwrap_or_default()
    }

    /// The one copy of a namespace's name.
    pub fn intern(&mut self, namespace: &str) -> Arc<str> {
        self.namespaces.one(namespace)
    }

    // === work ===

    /// Whether nothing of a task is left but itself.
    pub fn is_clear(&self, uid: &TaskUid) -> bool {
        let is_nowhere = |record: &Record| !record.abroad.may_be_there;
        !self.jobs.contains_key(uid) && !self.has_secret(uid) && self.tasks.get(uid).is_some_and(is_nowhere)
    }

    /// What a worker needs; `None` where nothing is to be done before the time that is returned beside it.
    pub fn view(&self, uid: &TaskUid, clock: Timestamp, now: Instant) -> (Option<View>, Option<Timestamp>) {
        let Some(record) = self.tasks.get(uid) else {
            return (None, None);
        };
        let job = self.jobs.get(uid);
        let may_restore = record.may_restore(now);
        let has_turn = record.removal != Removal::Waits || (record.is_forged && may_restore);
        if record.phase.is_finished() && !record.deleting && !has_turn {
            let due = if self.is_clear(uid) {
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
            held: record.held_at(now),
            has_waited: record
                .waits_since
                .is_some_and(|since| now - since >= QUEUED_AFTER),
            waiting_beside: self.waiting.get(&record.namespace).copied().unwrap_or_default(),
            removal: record.removal,
            abroad: ViewAbroad {
                may_be_there: record.abroad.may_be_there,
                ..ViewAbroad::default()
            },
            answer: None,
        };
        (Some(view), None)
    }
}

/// Where a phase is counted.
fn slot(phase: Phase) -> usize {
    PHASES.iter().position(|(p, _)| *p == phase).unwrap_or_default()
}

#[cfg(test)]
mod tests;
