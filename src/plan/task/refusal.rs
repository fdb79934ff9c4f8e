//! Why a task cannot start.

use crate::api::conditions::Reason;

/// Why a task cannot start, for its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The enumerated reason.
    pub reason: Reason,
    /// What is wrong and what to do; the hub's own text and the tenant's own names only.
    pub message: String,
}

impl Refusal {
    /// A refusal with its message.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}
