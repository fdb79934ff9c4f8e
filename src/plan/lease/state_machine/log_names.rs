//! Calls, results and ends as labels of closed lists, for the log.

use super::{LeaseExit, LeaseRequest, LeaseRequestError, LeaseResponse};

impl LeaseRequest {
    /// The verb as RBAC knows it.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get(_) => "get",
            Self::Create(_) => "create",
            Self::Replace(_) => "update",
        }
    }
}

impl LeaseResponse {
    /// Why the call failed, where it did.
    #[must_use]
    pub const fn failure(&self) -> Option<LeaseRequestError> {
        match self {
            Self::Listed(_) | Self::Lease(_) => None,
            Self::Failed(failure) => Some(*failure),
        }
    }
}

impl LeaseExit {
    /// The cause as a label, for the log.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "Conflict",
            Self::Forbidden(_) => "Forbidden",
            Self::Lost => "Lost",
            Self::Stopped => "Stopped",
        }
    }
}
