//! The summary of each task and of each Job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::names::{TaskKind, TaskUid};
use crate::base::metrics::event_latency::TaskLocation;
use crate::kubernetes::watch::JobMetadata;
use crate::plan::queue::QueuedTask;
use crate::plan::relist::RelistMark;
use crate::plan::remote::site::{RemoteTarget, Site};
use crate::plan::task::job_state::ObservedJob;
use crate::plan::task::model::{Task, TaskId, TaskPhase};
use crate::plan::task::referrer::ReferrerKind;
use crate::plan::task::retention::RemovalState;
use crate::plan::task::{CreateBlocked, JobState};

use super::last_status::LastStatus;

/// Time between two restores of one task's status, which bounds the cost of a writer that forges it over and over.
const RESTORE_PAUSE: Duration = Duration::from_secs(1);
/// Time after which a task is tried again if no watch shows the end of what blocks it.
pub const HELD_RETRY: Duration = Duration::from_secs(300);
/// The same where a quota is used up, which passes by itself.
pub const QUOTA_RETRY: Duration = Duration::from_secs(30);
/// Bytes that are kept of a task beyond which a reconcile of it is one of the large ones, of which there are few at once.
pub const LARGE: usize = 32 << 10;

/// When a task that is held is tried again.
pub const fn retry(held: CreateBlocked) -> Duration {
    match held {
        CreateBlocked::NotAdmitted | CreateBlocked::Forbidden(_) => QUOTA_RETRY,
        CreateBlocked::NameConflict | CreateBlocked::JobRefused => HELD_RETRY,
    }
}

/// Who must change something before a task can start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartBlocker {
    /// Nothing blocks the task.
    #[default]
    No,
    /// The platform.
    ByPlatform,
    /// A tenant of this namespace.
    ByTenant(Arc<str>),
}

/// Where a task runs that does not run on the hub.
#[derive(Clone, Debug, Default)]
pub struct RemotePlacement {
    /// Where it runs, if not on the hub.
    pub target: Option<Arc<RemoteTarget>>,
    /// The namespace there in which its Job was put.
    pub job_namespace: Option<Arc<str>>,
    /// Its site, once that is known.
    pub site: Option<Arc<Site>>,
    /// Whether something of it may be there that was not seen, as after a restart.
    pub may_be_there: bool,
}

/// How much a reconcile of a task holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileSize {
    /// No more than [`LARGE`], and what is made of it.
    Small,
    /// More.
    Large,
}

impl ReconcileSize {
    /// That of a task.
    pub const fn of(task: &Task) -> Self {
        if task.bare_bytes > LARGE {
            Self::Large
        } else {
            Self::Small
        }
    }
}

/// Who made a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskMaker {
    /// A tenant, or a client of one.
    #[default]
    Tenant,
    /// The pipeline, for a Target or for a Release of one, as the hub's seal shows; it removes the task itself.
    Pipeline,
}

impl TaskMaker {
    /// The maker of a task that refers to other namespaces so.
    pub const fn of(referrer: ReferrerKind) -> Self {
        match referrer {
            ReferrerKind::Target => Self::Pipeline,
            ReferrerKind::RenderTask => Self::Tenant,
        }
    }
}

/// What is remembered of a task.
#[derive(Debug)]
pub struct TaskRecord {
    pub(super) kind: TaskKind,
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    /// When the task was made.
    pub created: Timestamp,
    /// Its phase.
    pub phase: TaskPhase,
    /// Whether its deletion was requested.
    pub deleting: bool,
    /// Who must change something before it can start.
    pub blocked: StartBlocker,
    /// Since when it waits for a slot.
    pub waits_since: Option<Instant>,
    /// What keeps its objects from being created, and until when that holds.
    pub(super) create_blocked: Option<(CreateBlocked, Instant)>,
    /// UID of the Job that was deleted after its result was recorded; late events of it are ignored.
    pub(super) cleared_job: Option<Box<str>>,
    /// Whether its config Secret was deleted after its end; late lists of it are ignored.
    pub(super) cleared_secret: bool,
    /// When its Job ended.
    pub(super) ended: Option<Timestamp>,
    /// When a failed task's objects go, and when the task itself goes.
    pub(super) cleanup_due: Option<Timestamp>,
    pub(super) removal_due: Option<Timestamp>,
    /// Who made it.
    pub(super) made_by: TaskMaker,
    /// The state of its removal.
    pub(super) removal: RemovalState,
    /// Resource version of the newest state seen or written; older events are late.
    pub(super) version: u64,
    /// The list that showed it last.
    pub(super) listed: RelistMark,
    /// The last status that the hub wrote.
    pub(super) last_status: LastStatus,
    /// Whether the object has another status.
    pub(super) is_forged: bool,
    /// How much a reconcile of it holds; a spec does not change.
    pub(super) size: ReconcileSize,
    /// When its status was put right last.
    pub(super) restored: Option<Instant>,
    /// Where it runs, if not on the hub.
    pub remote: RemotePlacement,
    /// The whole task, while there is something to do and the budget allows.
    pub(super) whole: Option<Arc<Task>>,
}

impl TaskRecord {
    /// The identity of the task.
    pub fn id(&self, uid: &TaskUid) -> TaskId {
        TaskId {
            kind: self.kind,
            namespace: self.namespace.to_string(),
            name: self.name.to_string(),
            uid: uid.clone(),
        }
    }

    /// When its forged status may be restored.
    pub fn restore_due(&self, now: Instant) -> Option<Instant> {
        let due = self.restored.map_or(now, |at| at + RESTORE_PAUSE);
        self.is_forged.then_some(due)
    }

    /// Whether a forged status may be put right now.
    pub(super) fn may_restore(&self, now: Instant) -> bool {
        self.restored.is_none_or(|at| at + RESTORE_PAUSE <= now)
    }

    /// What keeps its objects from being created, until its time is over.
    pub(super) fn held_at(&self, now: Instant) -> Option<CreateBlocked> {
        let believed = self.create_blocked.filter(|(_, until)| now < *until);
        believed.map(|(held, _)| held)
    }

    /// Where its Job runs, as metrics say it.
    pub fn location(&self) -> TaskLocation {
        let target = self.remote.target.as_ref();
        target.map_or(TaskLocation::Here, |_| TaskLocation::Elsewhere)
    }

    /// The task as the fair queue knows it.
    pub fn queued<'a>(&'a self, uid: &'a TaskUid) -> QueuedTask<'a> {
        QueuedTask {
            namespace: self.namespace(),
            created: self.created,
            uid,
            cluster: self.remote.target.as_ref().and_then(|target| target.platform()),
        }
    }

    /// The tenant's namespace.
    pub fn namespace(&self) -> &Arc<str> {
        &self.namespace
    }
}

/// Where a Job was seen: at a site, or in the rendering namespace.
pub type JobLocation = Option<Arc<Site>>;

/// A Job of a task, and when to read it.
#[derive(Debug)]
pub struct KnownJob {
    /// The Job.
    pub metadata: JobMetadata,
    pub(super) read_due: Instant,
    /// Where it was seen.
    pub origin: JobLocation,
    pub(super) listed: RelistMark,
}

/// A Job of a task with all that is read of one.
#[derive(Clone, Debug)]
pub struct ReadJob {
    /// The Job.
    pub metadata: JobMetadata,
    /// What was read.
    pub report: ObservedJob,
    /// When it was asked for: a watch event since is newer.
    pub asked: Instant,
}

impl KnownJob {
    /// The Job as its watch shows it, if that says that it ended.
    pub(super) fn ended(&self, now: Instant) -> Option<ReadJob> {
        let report = self.metadata.ended.as_deref()?.clone();
        let metadata = self.metadata.clone();
        Some(ReadJob {
            metadata,
            report,
            asked: now,
        })
    }

    /// The Job as the plan sees it.
    pub(super) fn state(&self, now: Instant) -> JobState {
        JobState::Seen {
            uid: self.metadata.uid.clone(),
            spec_hash: self.metadata.spec_hash.clone(),
            chart_url: self.metadata.chart_url.clone(),
            may_have_ended: self.read_due <= now,
        }
    }
}
