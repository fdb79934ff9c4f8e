//! What a reconcile of a task brought.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::watch::JobMetadata;
use crate::plan::queue::workqueue::ClusterFeedback;
use crate::plan::remote::ledger::OrphanRecord;
use crate::plan::task::CreateBlocked;
use crate::plan::task::model::Task;

use super::verification::PendingVerification;

/// Why a reconcile ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileError {
    /// A call failed.
    #[error("a call to the API server failed")]
    Call(#[from] CallError),
    /// The task's cluster is not connected any more.
    #[error("the cluster is not connected")]
    NotConnected,
    /// The plan did not settle.
    #[error("the plan did not settle")]
    Unsettled,
}

impl ReconcileError {
    /// The error as a metric label.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Call(error) => error.kind(),
            Self::NotConnected => "ClusterNotConnected",
            Self::Unsettled => "Unsettled",
        }
    }

    /// How far the failed call came, where that is known.
    #[must_use]
    pub const fn stage(self) -> Option<&'static str> {
        match self {
            Self::Call(error) => error.stage(),
            Self::NotConnected | Self::Unsettled => None,
        }
    }
}

/// What a reconcile brought of the task's Job.
#[derive(Debug, Default)]
pub enum JobUpdate {
    /// Nothing.
    #[default]
    None,
    /// It was created or found.
    Known(JobMetadata),
    /// It was read with a request of that time: a newer watch event may not be in it.
    Read(JobMetadata, Instant),
    /// The API server has none.
    Absent,
    /// The one with this UID was deleted.
    Deleted(String),
}

/// What a reconcile brought of the task's config Secret.
#[derive(Debug, Default)]
pub enum SecretUpdate {
    /// Nothing.
    #[default]
    None,
    /// The one with this UID was created or found.
    Known(String),
    /// It was deleted.
    Deleted,
}

/// What a reconcile found or wrote as the status of the task's object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusUpdate {
    /// Whether another writer wrote it, where it was read or written.
    pub is_forged: Option<bool>,
    /// Whether the hub wrote it.
    pub was_written: bool,
    /// Whether the hub wrote it in the place of a forged one.
    pub was_restored: bool,
    /// Whether the last write of the hub got no answer that says if it came through.
    pub in_doubt: bool,
}

/// What a reconcile brought of a cluster that is not the hub's.
#[derive(Debug, Default)]
pub struct RemoteUpdate {
    /// Whether the task waits for its cluster.
    pub wants_site: bool,
    /// Whether something was made, or may have been, on a cluster.
    pub was_sent: bool,
    /// Whether this reconcile read all objects on the task's cluster.
    pub was_reached: bool,
    /// What was left behind, and written down.
    pub orphan: Option<Box<OrphanRecord>>,
    /// Tasks of which what was left had to be forgotten for it.
    pub forgotten: Vec<TaskUid>,
}

/// What a reconcile brought, whether it ended early or not.
#[derive(Debug, Default)]
pub struct ReconcileOutcome {
    /// The task as it is now, where it was read or changed.
    pub task: Option<Arc<Task>>,
    /// What became of the status on the object.
    pub status: StatusUpdate,
    /// Whether the task turned out to be gone.
    pub is_gone: bool,
    /// What became of its Job.
    pub job: JobUpdate,
    /// What became of its config Secret.
    pub secret: SecretUpdate,
    /// What keeps the task's objects from being created.
    pub create_blocked: Option<CreateBlocked>,
    /// When to look again by the clock.
    pub wake: Option<Timestamp>,
    /// Whether the task waits for a slot.
    pub wants_slot: bool,
    /// When its Job, which runs on another cluster, is overdue.
    pub overdue_at: Option<Timestamp>,
    /// The namespace whose tenant can start the task.
    pub waits_for: Option<String>,
    /// What became of the cluster it runs on, if that is not the hub's.
    pub remote: RemoteUpdate,
    /// When to ask the registry again about a success of which this reconcile read the Job.
    pub verify_again: Option<Timestamp>,
    /// A success that the registry is to be asked about.
    pub pending_verification: Option<Box<PendingVerification>>,
    /// Why the reconcile ended early.
    pub error: Option<ReconcileError>,
}

impl ReconcileOutcome {
    /// What it shows of the cluster that the task runs on, where that was asked.
    pub fn ended(&self, took: Duration) -> Option<ClusterFeedback> {
        match self.error {
            None if self.remote.was_sent || self.remote.was_reached => Some(ClusterFeedback::Answered(took)),
            None | Some(ReconcileError::NotConnected | ReconcileError::Unsettled) => None,
            Some(ReconcileError::Call(error)) => {
                (error != CallError::NoClaim).then_some(ClusterFeedback::Failed(took))
            }
        }
    }

    /// Whether it ended only because the hub did not hold its Lease.
    pub fn lacks_claim(&self) -> bool {
        self.error == Some(ReconcileError::Call(CallError::NoClaim))
    }
}
