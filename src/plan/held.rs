//! What keeps a task's objects from being created, and what its tenant is told of it.

use crate::api::conditions::Reason;

use super::catalog::Refusal;

/// What keeps a task's objects from being created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A foreign object has the name of the Job or the config Secret.
    NameConflict,
    /// The API server finds the Job of the class invalid.
    JobRefused,
    /// The rendering namespace takes nothing: a quota is used up, or it is gone.
    NotAdmitted,
}

impl Held {
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Self::NameConflict => Refusal::new(
                Reason::NameConflict,
                "an object that is not the hub's has the name of this task's Job or Secret; ask the platform operator",
            ),
            Self::NotAdmitted => Refusal::new(
                Reason::Queued,
                "the rendering namespace takes no more Jobs now; if this stays, ask the platform operator",
            ),
            Self::JobRefused => Refusal::new(
                Reason::InvalidSpec,
                "the API server does not accept the Job of this renderer class; ask the platform operator",
            ),
        }
    }
}
