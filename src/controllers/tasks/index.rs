//! The index: what the hub remembers of each task, everything while there is work, a summary once it is finished.
//!
//! One loop owns it, so it needs no locks. A finished task keeps its names, phase, dates and last status, compressed; its spec is
//! read again in the rare case that it is needed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::RenderTaskStatus;
use crate::api::names::TaskUid;
use crate::kubernetes::apply::ApiTransport;
use crate::kubernetes::watch::TaskWatchScope;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::relist::{RelistMark, Relists};
use crate::plan::remote::lost_cluster::{RemoteLeftovers, TaskTimeouts};
use crate::plan::remote::site::{KnownSite, RemoteTarget};
use crate::plan::task::model::{Task, TaskId, TaskPhase};
use crate::plan::task::retention::RemovalState;
use crate::plan::task::status_seal::LastStatusDigest;
use crate::plan::task::{CreateBlocked, JobState};

use super::interned::Interned;
use super::last_status::{LastStatus, StatusCompressor};
use super::task_record::{
    JobLocation, KnownJob, ReadJob, ReconcileSize, RemotePlacement, StartBlocker, TaskRecord, retry,
};
use super::verification::VerificationReply;

mod jobs;
mod secrets;
mod statuses;
mod targets;

/// A task that waits this long says so; earlier it would cost a write for a state that is already over.
pub const QUEUED_AFTER: Duration = Duration::from_secs(30);
/// Bytes of whole tasks kept in memory while they wait or run; beyond it a task is read when it is reconciled.
const KEPT_BUDGET: usize = 32 << 20;

/// Everything the hub remembers.
#[derive(Debug, Default)]
pub struct TaskIndex {
    tasks: HashMap<TaskUid, TaskRecord>,
    jobs: HashMap<TaskUid, KnownJob>,
    /// Jobs with the hub's mark that are of no task that is known to run there.
    unassigned: HashMap<TaskUid, Vec<KnownJob>>,
    /// The lists of Jobs of each site.
    job_lists: Relists<JobLocation>,
    secrets: HashMap<TaskUid, Box<str>>,
    namespaces: Interned<str>,
    /// Bytes of the whole tasks that are kept.
    kept_bytes: usize,
    /// The lists of tasks of each scope.
    task_lists: Relists<TaskWatchScope>,
    /// Tasks in each phase, in the order of [`PHASES`].
    phases: [usize; PHASES.len()],
    status_compressor: StatusCompressor,
    /// The account of tasks that name none, which decides how their own kubeconfig is read.
    tenancy: TenancyPolicy,
    /// How long what a failure left stays.
    timeouts: TaskTimeouts,
    targets: Interned<RemoteTarget>,
    /// Tasks that wait for the tenant of each namespace.
    waiting: HashMap<Arc<str>, usize>,
}

/// The phases as metric labels.
const PHASES: [(TaskPhase, &str); 4] = [
    (TaskPhase::Pending, "pending"),
    (TaskPhase::Running, "running"),
    (TaskPhase::Succeeded, "succeeded"),
    (TaskPhase::Failed, "failed"),
];

/// What a worker needs of a task's cluster, where that is not the hub's own.
#[derive(Default)]
pub struct RemoteTaskView {
    /// Whether something of it may be there that was not seen.
    pub may_be_there: bool,
    /// Its site.
    pub site: Option<KnownSite>,
    /// The way there for one reconcile, where it is connected.
    pub way: Option<Arc<dyn ApiTransport>>,
}

impl RemoteTaskView {
    /// What may be there besides what was seen.
    pub const fn leftovers(&self) -> RemoteLeftovers {
        if self.may_be_there {
            RemoteLeftovers::Possible
        } else {
            RemoteLeftovers::None
        }
    }
}

/// What a worker needs of a task.
pub struct TaskView {
    /// The identity of the task.
    pub id: TaskId,
    /// The whole task, unless it must be read.
    pub task: Option<Arc<Task>>,
    /// The last status that the hub wrote, where the task must be read.
    pub last_written: Option<(LastStatusDigest, RenderTaskStatus)>,
    /// Whether the object has another status, as far as is known.
    pub is_forged: bool,
    /// Whether it is time to put that right.
    pub may_restore: bool,
    /// Its Job.
    pub job: JobState,
    /// The same Job as read, where its watch shows that it ended.
    pub ended_job: Option<ReadJob>,
    /// UID of its config Secret.
    pub secret: Option<String>,
    /// What keeps its objects from being created.
    pub create_blocked: Option<CreateBlocked>,
    /// Whether it has waited for a slot long enough to say so.
    pub has_waited: bool,
    /// Tasks that wait for the tenant of the same namespace.
    pub waiting_beside: usize,
    /// Whether the task itself may be removed now.
    pub removal: RemovalState,
    /// Where it runs, if not on the hub.
    pub remote: RemoteTaskView,
    /// The reply of its verification.
    pub verification_reply: Option<VerificationReply>,
}

/// What an event of a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEventKind {
    /// Late: what is remembered is newer.
    Late,
    /// A new state of the task.
    Changed,
    /// A new state of the task, with a status that the hub did not write.
    Forged,
}

impl TaskIndex {
    // === tasks ===

    /// What is remembered of a task.
    pub fn task(&self, uid: &TaskUid) -> Option<&TaskRecord> {
        self.tasks.get(uid)
    }

    /// The same, to be changed.
    pub fn task_mut(&mut self, uid: &TaskUid) -> Option<&mut TaskRecord> {
        self.tasks.get_mut(uid)
    }

    /// The tasks of which this is so.
    pub fn tasks_where(&self, is_so: impl Fn(&TaskRecord) -> bool) -> Vec<TaskUid> {
        let found = self.tasks.iter().filter(|(_, record)| is_so(record));
        found.map(|(uid, _)| uid.clone()).collect()
    }

    /// All tasks.
    pub fn tasks(&self) -> impl Iterator<Item = (&TaskUid, &TaskRecord)> {
        self.tasks.iter()
    }

    /// Stores a task as the hub itself changed it.
    pub fn changed_task(&mut self, task: Arc<Task>) {
        let Some(known) = self.tasks.get(&task.id.uid) else {
            return;
        };
        let version = task.resource_version.parse().unwrap_or(known.version);
        if version >= known.version {
            let listed = known.listed;
            self.remember(task, version, listed);
        }
    }

    fn remember(&mut self, task: Arc<Task>, version: u64, listed: RelistMark) {
        let uid = task.id.uid.clone();
        let phase = task.phase();
        let old = self.forget_whole(&uid);
        let mut known = old.as_ref().map(|r| r.remote.clone()).unwrap_or_default();
        let (target, job_namespace) = (known.target.take(), known.job_namespace.take());
        let is_whole = self.keep_whole(&task);
        let record = TaskRecord {
            last_status: self.last_status_of(old.as_ref(), &task, is_whole),
            is_forged: old.as_ref().is_some_and(|r| r.is_forged),
            size: ReconcileSize::of(&task),
            restored: old.as_ref().and_then(|r| r.restored),
            kind: task.id.kind,
            namespace: self.intern(&task.id.namespace),
            name: task.id.name.as_str().into(),
            created: task.created,
            phase,
            deleting: task.deleting,
            made_by: old.as_ref().map(|r| r.made_by).unwrap_or_default(),
            blocked: old.as_ref().map(|r| r.blocked.clone()).unwrap_or_default(),
            waits_since: old.as_ref().and_then(|r| r.waits_since),
            create_blocked: old.as_ref().and_then(|r| r.create_blocked),
            removal: old.as_ref().map(|r| r.removal).unwrap_or_default(),
            cleared_secret: old.as_ref().is_some_and(|r| r.cleared_secret),
            cleared_job: old.and_then(|r| r.cleared_job),
            ended: task.status.completion_time.as_ref().map(|time| time.0),
            cleanup_due: self.cleanup_due(&task),
            removal_due: task.removal_due().filter(|_| phase.is_finished()),
            version,
            listed,
            remote: RemotePlacement {
                target: self.target(&task),
                job_namespace: self.job_namespace(&task),
                ..known
            },
            whole: is_whole.then_some(task),
        };
        self.phases[slot(phase)] += 1;
        self.tasks.insert(uid.clone(), record);
        self.give_back(target, job_namespace);
        self.claim_unassigned(&uid);
    }

    /// Whether a whole task is kept, which counts as kept then: there is something to do for it, and room.
    fn keep_whole(&mut self, task: &Task) -> bool {
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
        let due = || task.failure_cleanup_due(self.timeouts.kept_at_most);
        (task.phase() == TaskPhase::Failed).then(due)
    }

    /// Forgets what a task looks like, so that the next reconcile reads it.
    pub fn forget_spec(&mut self, uid: &TaskUid) {
        let Some(record) = self.tasks.get_mut(uid) else {
            return;
        };
        if let Some(task) = record.whole.take() {
            self.kept_bytes -= task.kept_bytes();
            record.last_status = LastStatus {
                last: record.last_status.last,
                ..self.status_compressor.last_status(&task)
            };
        }
    }

    /// Records what keeps the API server from creating a task's objects, and until when, where the plan says so; returns when to
    /// try again.
    pub fn set_create_blocked(
        &mut self,
        uid: &TaskUid,
        blocked: Option<CreateBlocked>,
        until: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        let record = self.tasks.get_mut(uid)?;
        let since_earlier = record
            .create_blocked
            .filter(|(known, until)| Some(*known) == blocked && now < *until);
        record.create_blocked =
            since_earlier.or(blocked.map(|cause| (cause, until.unwrap_or(now + retry(cause)))));
        record.create_blocked.map(|(_, until)| until)
    }

    fn forget_whole(&mut self, uid: &TaskUid) -> Option<TaskRecord> {
        let record = self.tasks.remove(uid)?;
        self.phases[slot(record.phase)] -= 1;
        self.kept_bytes -= record.whole.as_ref().map_or(0, |task| task.kept_bytes());
        Some(record)
    }

    /// Forgets a task that is gone; where it waited or ran.
    pub fn forget_task(&mut self, uid: &TaskUid) -> Option<(Arc<str>, Timestamp)> {
        self.block(uid, StartBlocker::No);
        let TaskRecord {
            namespace,
            created,
            remote,
            ..
        } = self.forget_whole(uid)?;
        if let Some(job) = self.jobs.remove(uid) {
            self.put_unassigned(job);
        }
        self.give_back(remote.target, remote.job_namespace);
        self.namespaces.remove_last(&namespace);
        Some((namespace, created))
    }

    /// A new list of the tasks of a scope begins.
    pub fn restart(&mut self, scope: &TaskWatchScope) {
        self.task_lists.begin(scope.clone());
    }

    /// Tasks of the scope that the finished list did not show.
    pub fn vanished_tasks(&self, scope: &TaskWatchScope) -> Vec<TaskUid> {
        let mark = self.task_lists.mark(scope);
        let stale = self
            .tasks
            .iter()
            .filter(|(_, r)| scope.covers(r.kind, &r.namespace) && r.listed != mark);
        stale.map(|(uid, _)| uid.clone()).collect()
    }

    /// Tasks in each phase, by label.
    pub fn phases(&self) -> impl Iterator<Item = (&'static str, usize)> {
        PHASES.iter().map(|(_, label)| *label).zip(self.phases)
    }

    /// The one copy of a namespace's name.
    pub fn intern(&mut self, namespace: &str) -> Arc<str> {
        self.namespaces.intern(namespace)
    }

    // === work ===

    /// Whether nothing of a task is left but itself.
    pub fn has_no_objects(&self, uid: &TaskUid) -> bool {
        let is_nowhere = |record: &TaskRecord| !record.remote.may_be_there;
        !self.jobs.contains_key(uid) && !self.has_secret(uid) && self.tasks.get(uid).is_some_and(is_nowhere)
    }

    /// The view of a task for a worker; `None` where nothing is to be done before the time that is returned with it.
    pub fn view(
        &self,
        uid: &TaskUid,
        clock: Timestamp,
        now: Instant,
    ) -> (Option<TaskView>, Option<Timestamp>) {
        let Some(record) = self.tasks.get(uid) else {
            return (None, None);
        };
        let job = self.jobs.get(uid);
        let may_restore = record.may_restore(now);
        let has_turn = record.removal != RemovalState::Waits || (record.is_forged && may_restore);
        if record.phase.is_finished() && !record.deleting && !has_turn {
            let due = if self.has_no_objects(uid) {
                record.removal_due
            } else {
                record.cleanup_due.or(Some(clock))
            };
            let due = due.into_iter().chain(record.removal_due).min();
            if due.is_none_or(|due| clock < due) {
                return (None, due);
            }
        }
        let view = TaskView {
            id: record.id(uid),
            task: record.whole.clone(),
            last_written: record.whole.is_none().then(|| self.last_status(record)),
            is_forged: record.is_forged,
            may_restore,
            job: job.map_or(JobState::Absent, |j| j.state(now)),
            ended_job: job.and_then(|j| j.ended(now)),
            secret: self.secrets.get(uid).map(ToString::to_string),
            create_blocked: record.held_at(now),
            has_waited: record
                .waits_since
                .is_some_and(|since| now - since >= QUEUED_AFTER),
            waiting_beside: self.waiting.get(&record.namespace).copied().unwrap_or_default(),
            removal: record.removal,
            remote: RemoteTaskView {
                may_be_there: record.remote.may_be_there,
                ..RemoteTaskView::default()
            },
            verification_reply: None,
        };
        (Some(view), None)
    }
}

/// Where a phase is counted.
fn slot(phase: TaskPhase) -> usize {
    PHASES.iter().position(|(p, _)| *p == phase).unwrap_or_default()
}

#[cfg(test)]
mod tests;
