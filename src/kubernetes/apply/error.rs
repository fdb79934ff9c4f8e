//! Why a call failed, without any text of the server's.

use super::transport_stage::TransportStage;
use crate::kubernetes::write_fence;
use crate::plan::task::admission_rejection::AdmissionRejection;

/// Why a call failed. Holds no text of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The object does not exist.
    #[error("the object does not exist")]
    NotFound,
    /// The object exists already.
    #[error("the object exists already")]
    AlreadyExists,
    /// The object changed meanwhile, or is another than the one meant.
    #[error("the object changed meanwhile")]
    Conflict,
    /// The server finds the object invalid.
    #[error("the API server finds the object invalid")]
    Invalid,
    /// The hub may not do this, or a quota forbids it.
    #[error("the API server forbids it")]
    Forbidden,
    /// The server does not recognise the caller.
    #[error("the API server does not know who asks")]
    Unauthorized,
    /// The answer is larger than is read.
    #[error("the answer of the API server is too large")]
    TooLarge,
    /// The answers of all other clusters together leave no room for this one.
    #[error("the answers of other clusters leave no room for this one")]
    Crowded,
    /// No answer came in time.
    #[error("the API server did not answer in time")]
    Timeout,
    /// Any other answer.
    #[error("the API server answered with code {0}")]
    Code(u16),
    /// The connection failed, or the answer could not be read: at this stage.
    #[error("the call to the API server failed at the stage {0}")]
    Transport(TransportStage),
    /// The hub does not connect to the address; nothing was sent.
    #[error("the hub does not connect to this address")]
    Barred,
    /// The hub may not write, because it does not hold its Lease: the write was not sent, or was cancelled in flight.
    #[error("the hub has no current claim on its Lease")]
    NoClaim,
}

impl CallError {
    /// The HTTP status for the error in a metric, 0 where none came.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Invalid => 422,
            Self::Forbidden => 403,
            Self::Unauthorized => 401,
            Self::Code(code) => code,
            Self::TooLarge
            | Self::Crowded
            | Self::Timeout
            | Self::Transport(_)
            | Self::Barred
            | Self::NoClaim => 0,
        }
    }

    /// Whether a write that failed so may have come through all the same.
    #[must_use]
    pub const fn is_ambiguous(self) -> bool {
        matches!(
            self,
            Self::TooLarge
                | Self::Crowded
                | Self::Timeout
                | Self::Code(_)
                | Self::Transport(_)
                | Self::NoClaim
        )
    }

    /// What the status of an answer that is no success means; of the reason only whether it is `AlreadyExists` counts.
    #[must_use]
    pub fn of_status(code: u16, reason: &str) -> Self {
        match code {
            404 => Self::NotFound,
            409 if reason == "AlreadyExists" => Self::AlreadyExists,
            409 => Self::Conflict,
            400 | 413 | 422 => Self::Invalid,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            code => Self::Code(code),
        }
    }

    /// The error as a metric label.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Invalid => "Invalid",
            Self::Forbidden => "Forbidden",
            Self::Unauthorized => "Unauthorized",
            Self::TooLarge => "TooLarge",
            Self::Crowded => "Crowded",
            Self::Timeout => "Timeout",
            Self::Code(_) => "Code",
            Self::Transport(_) => "Transport",
            Self::Barred => "Barred",
            Self::NoClaim => "NoClaim",
        }
    }

    /// How far the call came, as a log and a metric label have it; `None` where the error itself says all that is known.
    #[must_use]
    pub const fn stage(self) -> Option<&'static str> {
        match self {
            Self::Transport(stage) => Some(stage.as_str()),
            Self::NotFound
            | Self::AlreadyExists
            | Self::Conflict
            | Self::Invalid
            | Self::Forbidden
            | Self::Unauthorized
            | Self::TooLarge
            | Self::Crowded
            | Self::Timeout
            | Self::Code(_)
            | Self::Barred
            | Self::NoClaim => None,
        }
    }
}

/// Why an object was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateError {
    /// What the answer means.
    pub error: CallError,
    /// What the hub's own API server names as the cause. Other servers are not asked for one.
    pub rejection: Option<AdmissionRejection>,
}

impl From<CallError> for CreateError {
    fn from(error: CallError) -> Self {
        Self {
            error,
            rejection: None,
        }
    }
}

pub(super) fn classify(error: &kube::Error) -> CallError {
    match error {
        kube::Error::Api(status) => CallError::of_status(status.code, &status.reason),
        error if write_fence::is_closed(error) => CallError::NoClaim,
        error => CallError::Transport(TransportStage::of(error)),
    }
}

/// A thing that is not there is done with.
#[allow(
    clippy::needless_pass_by_value,
    reason = "an answer is used up by looking at it"
)]
pub(crate) fn done<T>(answer: Result<T, CallError>) -> Result<(), CallError> {
    match answer {
        Ok(_) | Err(CallError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Like [`done`]; a failed precondition means that another object has the name, and the hub's is gone.
pub(super) fn gone<T>(answer: Result<T, CallError>) -> Result<(), CallError> {
    match done(answer) {
        Err(CallError::Conflict) => Ok(()),
        other => other,
    }
}

/// The answer to a change of something that is named by its place, which is invalid where it is somewhere else by now.
pub(super) fn in_place<T>(answer: Result<T, CallError>) -> Result<T, CallError> {
    answer.map_err(|error| match error {
        CallError::Invalid => CallError::Conflict,
        error => error,
    })
}

pub(crate) fn found<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(CallError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
