//! What can be done next for a task.

use k8s_openapi::jiff::Timestamp;

use super::tenant::{ReadIdentity, TenantReference};
use super::verification::VerifyRequest;
use crate::api::RenderTaskStatus;
use crate::plan::platform::catalog::{CopyRequest, ResolvedTask};

/// The next thing to do for a task.
#[derive(Clone, Debug)]
pub enum ReconcileStep {
    /// Put the hub's finalizer on the task.
    AddFinalizer,
    /// Check whether the hub may act as the identity that the task names.
    Vouch(ReadIdentity),
    /// Read what the task names, as the identity that it names.
    LookUp(Box<TenantReference>),
    /// Read the platform's credentials that are copied to another cluster.
    Load(CopyRequest),
    /// Create the config Secret and the Job.
    Create(Box<ResolvedTask>),
    /// Read the Job, to see whether it ended or is really gone.
    ReadJob,
    /// Read the pods of the Job, to see whether they wait for an image.
    LookAtPods,
    /// Ask the registry whether it holds what the Job reports as pushed.
    Verify(Box<VerifyRequest>),
    /// Write the status.
    WriteStatus(Box<RenderTaskStatus>),
    /// Write the status that the task has over the one of another writer.
    RestoreStatus,
    /// Delete the Job with this UID, and its pods.
    DeleteJob(String),
    /// Delete the config Secret with this UID.
    DeleteSecret(String),
    /// Write down what may be left on a cluster that is not reached.
    Abandon,
    /// Take the hub's finalizer off the task.
    RemoveFinalizer,
    /// Delete the task itself: its time to live is over.
    DeleteTask,
    /// Nothing until something changes.
    Rest {
        /// When to look again by the clock.
        wake: Option<Timestamp>,
        /// Whether the task only waits for a slot.
        wants_slot: bool,
        /// The namespace whose tenant can start the task, where the platform operator cannot.
        waits_for: Option<String>,
        /// Whether the task only waits for its cluster.
        wants_site: bool,
    },
}

impl ReconcileStep {
    /// Nothing until something changes.
    pub(super) const REST: Self = Self::rest(None);

    /// Waits until then.
    pub(super) const fn rest(wake: Option<Timestamp>) -> Self {
        Self::Rest {
            wake,
            wants_slot: false,
            waits_for: None,
            wants_site: false,
        }
    }

    /// Waits for the site, and until then at the longest.
    pub(super) const fn wait_for_site(wake: Option<Timestamp>) -> Self {
        Self::Rest {
            wake,
            wants_slot: false,
            waits_for: None,
            wants_site: true,
        }
    }

    /// The step as a log has it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::AddFinalizer => "AddFinalizer",
            Self::Vouch(_) => "Vouch",
            Self::LookUp(_) => "LookUp",
            Self::Load(_) => "Load",
            Self::Create(_) => "Create",
            Self::ReadJob => "ReadJob",
            Self::LookAtPods => "LookAtPods",
            Self::Verify(_) => "Verify",
            Self::WriteStatus(_) => "WriteStatus",
            Self::RestoreStatus => "RestoreStatus",
            Self::DeleteJob(_) => "DeleteJob",
            Self::DeleteSecret(_) => "DeleteSecret",
            Self::Abandon => "Abandon",
            Self::RemoveFinalizer => "RemoveFinalizer",
            Self::DeleteTask => "DeleteTask",
            Self::Rest { .. } => "Rest",
        }
    }

    /// When the task is reconciled again without an event.
    #[must_use]
    pub const fn wake(&self) -> Option<Timestamp> {
        match self {
            Self::Rest { wake, .. } => *wake,
            _ => None,
        }
    }
}
