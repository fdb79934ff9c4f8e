//! Why a step is the next one, as one of a closed list of labels for the log. Nothing is decided by it.

use crate::api::RenderTaskStatus;
use crate::api::conditions::{ConditionType, Reason, reason_of};

use super::job_state::JobState;
use super::model::TaskPhase;
use super::observed::ObservedTask;
use super::retention::RemovalState;
use super::step::ReconcileStep;

/// Why a step is the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepReason {
    /// The task has no Job yet, and may get one.
    Start,
    /// The hub has not seen the Job that the task should have.
    JobNotSeen,
    /// The Job may have ended.
    JobMayHaveEnded,
    /// The Job takes longer than most.
    JobIsSlow,
    /// The Job reports success, which only the registry can confirm.
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

impl StepReason {
    /// Why the step is the next one for what was observed.
    #[must_use]
    pub fn of(o: &ObservedTask<'_>, step: &ReconcileStep) -> Self {
        match step {
            ReconcileStep::AddFinalizer
            | ReconcileStep::Vouch(_)
            | ReconcileStep::LookUp(_)
            | ReconcileStep::Load(_)
            | ReconcileStep::Create(_) => Self::Start,
            ReconcileStep::ReadJob if matches!(o.job, JobState::Absent) => Self::JobNotSeen,
            ReconcileStep::ReadJob => Self::JobMayHaveEnded,
            ReconcileStep::LookAtPods => Self::JobIsSlow,
            ReconcileStep::Verify(_) => Self::JobComplete,
            ReconcileStep::WriteStatus(status) => said(status).map_or(Self::Nothing, Self::Status),
            ReconcileStep::RestoreStatus => Self::StatusForged,
            ReconcileStep::DeleteJob(_) | ReconcileStep::DeleteSecret(_) => cleared(o),
            ReconcileStep::Abandon => Self::ClusterNotReached,
            ReconcileStep::RemoveFinalizer => Self::Deleted,
            ReconcileStep::DeleteTask if o.removal == RemovalState::Surplus => Self::TooManyFinished,
            ReconcileStep::DeleteTask => Self::TtlExpired,
            ReconcileStep::Rest { wants_slot: true, .. } => Self::NoSlot,
            ReconcileStep::Rest { wants_site: true, .. } => Self::WaitsForCluster,
            ReconcileStep::Rest {
                waits_for: Some(_), ..
            } => Self::WaitsForTenant,
            ReconcileStep::Rest { wake: Some(_), .. } => Self::NotYet,
            ReconcileStep::Rest { .. } => Self::Nothing,
        }
    }

    /// The label in the log.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "Start",
            Self::JobNotSeen => "JobNotSeen",
            Self::JobMayHaveEnded => "JobMayHaveEnded",
            Self::JobIsSlow => "JobIsSlow",
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
    reason_of(&status.conditions, ConditionType::Ready)
}

/// Why the objects of a task go.
fn cleared(o: &ObservedTask<'_>) -> StepReason {
    let is_over = o.now >= o.task.failure_cleanup_due(o.timeouts.kept_at_most);
    match o.task.phase() {
        _ if o.task.deleting => StepReason::Deleted,
        TaskPhase::Succeeded => StepReason::Succeeded,
        TaskPhase::Failed if is_over => StepReason::FailureExpired,
        TaskPhase::Failed => StepReason::FailuresCrowded,
        TaskPhase::Pending | TaskPhase::Running => StepReason::Refused,
    }
}
