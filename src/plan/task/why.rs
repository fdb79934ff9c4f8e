//! A step and why it is the next one, each in a word of a closed list, for a log. Nothing is decided by either.

use k8s_openapi::jiff::Timestamp;

use crate::api::RenderTaskStatus;
use crate::api::conditions::{ConditionType, Reason};

use super::retention::Removal;
use super::{JobState, Observed, Step};
use crate::plan::task::model::Phase;

/// Why a step is the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The task has no Job yet, and may get one.
    Start,
    /// The hub has not seen the Job that the task should have.
    JobNotSeen,
    /// The Job may have ended.
    JobMayHaveEnded,
    /// The Job is said to have succeeded, which only the registry can tell.
    JobComplete,
    /// The task's status is about to say so.
    Status(Reason),
    /// Another writer's status is on the task.
    StatusForged,
    /// A user asked for the deletion of the task.
    Deleted,
    /// The task has succeeded, so its objects are of no use any more.
    Succeeded,
    /// The time is over for which what a failed task left is kept.
    FailureExpired,
    /// What a failed task left makes room for that of newer failures.
    FailuresCrowded,
    /// The task was refused, so what an earlier attempt made for it goes.
    Refused,
    /// The task's own time to live is over.
    TtlExpired,
    /// Enough newer finished tasks are kept.
    TooManyFinished,
    /// The cluster was not reached for longer than a deletion waits.
    ClusterNotReached,
    /// The task waits for a slot.
    NoSlot,
    /// The task waits for its cluster.
    WaitsForCluster,
    /// The task waits for something that a tenant has to change.
    WaitsForTenant,
    /// Nothing is to be done before a certain time.
    NotYet,
    /// Nothing is to be done until something changes.
    Nothing,
}

impl Why {
    /// Why the step is the next one for what was observed.
    #[must_use]
    pub fn of(o: &Observed<'_>, step: &Step) -> Self {
        match step {
            Step::AddFinalizer | Step::Vouch(_) | Step::LookUp(_) | Step::Load(_) | Step::Create(_) => {
                Self::Start
            }
            Step::ReadJob if matches!(o.job, JobState::Absent) => Self::JobNotSeen,
            Step::ReadJob => Self::JobMayHaveEnded,
            Step::Verify(_) => Self::JobComplete,
            Step::WriteStatus(status) => said(status).map_or(Self::Nothing, Self::Status),
            Step::RestoreStatus => Self::StatusForged,
            Step::DeleteJob(_) | Step::DeleteSecret(_) => cleared(o),
            Step::Abandon => Self::ClusterNotReached,
            Step::RemoveFinalizer => Self::Deleted,
            Step::DeleteTask if o.removal == Removal::Surplus => Self::TooManyFinished,
            Step::DeleteTask => Self::TtlExpired,
            Step::Rest { wants_slot: true, .. } => Self::NoSlot,
            Step::Rest { wants_site: true, .. } => Self::WaitsForCluster,
            Step::Rest {
                waits_for: Some(_), ..
            } => Self::WaitsForTenant,
            Step::Rest { wake: Some(_), .. } => Self::NotYet,
            Step::Rest { .. } => Self::Nothing,
        }
    }

    /// The word as a log has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "Start",
            Self::JobNotSeen => "JobNotSeen",
            Self::JobMayHaveEnded => "JobMayHaveEnded",
            Self::JobComplete => "JobComplete",
            Self::Status(reason) => reason.as_str(),
            Self::StatusForged => "StatusForged",
            Self::Deleted => "Deleted",
            Self::Succeeded => "Succeeded",
            Self::FailureExpired => "FailureExpired",
            Self::FailuresCrowded => "FailuresCrowded",
            Self::Refused => "Refused",
            Self::TtlExpired => "TtlExpired",
            Self::TooManyFinished => "TooManyFinished",
            Self::ClusterNotReached => "ClusterNotReached",
            Self::NoSlot => "NoSlot",
            Self::WaitsForCluster => "WaitsForCluster",
            Self::WaitsForTenant => "WaitsForTenant",
            Self::NotYet => "NotYet",
            Self::Nothing => "Nothing",
        }
    }
}

/// What a status says in the condition that it always has.
fn said(status: &RenderTaskStatus) -> Option<Reason> {
    let ready = ConditionType::Ready.as_str();
    let mut conditions = status.conditions.iter();
    Reason::parse(&conditions.find(|c| c.type_ == ready)?.reason)
}

/// Why the objects of a task go.
fn cleared(o: &Observed<'_>) -> Why {
    let is_over = o.now >= o.task.failure_cleanup_due(o.patience.kept_at_most);
    match o.task.phase() {
        _ if o.task.deleting => Why::Deleted,
        Phase::Succeeded => Why::Succeeded,
        Phase::Failed if is_over => Why::FailureExpired,
        Phase::Failed => Why::FailuresCrowded,
        Phase::Pending | Phase::Running => Why::Refused,
    }
}

impl Step {
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

    /// When the task is looked at again by the clock, if it rests until then.
    #[must_use]
    pub const fn wake(&self) -> Option<Timestamp> {
        match self {
            Self::Rest { wake, .. } => *wake,
            _ => None,
        }
    }
}
