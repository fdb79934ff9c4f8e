//! What keeps a task's objects from being created, and what its tenant is told of it.

use crate::api::conditions::Reason;

use super::catalog::Refusal;

/// What keeps a task's objects from being created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A foreign object has the name of the Job or the config Secret.
    NameConflict,
    /// The API server does not accept the Job of the class: a field of it is not valid, or an admission policy or webhook denies it.
    JobRefused,
    /// The rendering namespace takes nothing: a quota is used up, or it is gone.
    NotAdmitted,
}

impl Held {
    /// What the tenant is told; `is_elsewhere` where the Job is for another cluster.
    pub(super) fn refusal(self, is_elsewhere: bool) -> Refusal {
        match self {
            Self::NameConflict => Refusal::new(
                Reason::NameConflict,
                "an object that is not the hub's has the name of this task's Job or Secret; ask the platform operator",
            ),
            Self::NotAdmitted => Refusal::new(
                Reason::Queued,
                "the rendering namespace takes no more Jobs now; if this stays, ask the platform operator",
            ),
            Self::JobRefused if is_elsewhere => Refusal::new(
                Reason::JobRefused,
                "the cluster's API server does not accept the Job of the task's renderer class; look at the cluster's admission \
                 policies and webhooks, or ask the platform operator to look at the class; the task is tried again by itself",
            ),
            Self::JobRefused => Refusal::new(
                Reason::JobRefused,
                "the API server does not accept the Job of the task's renderer class; ask the platform operator, who finds the \
                 cause in the hub's log and in the class's Ready condition; the task is tried again by itself",
            ),
        }
    }
}
