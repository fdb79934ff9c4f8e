//! One call of a link: what is sent, what is wanted of the answer, and what came of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

use super::fare::Fare;
use super::watching::Watching;
use crate::kubernetes::apply::{CallError, Extent, Stage};

/// A request that cannot be made, or an answer to another question.
pub(super) const INTERNAL: CallError = CallError::Transport(Stage::Internal);

/// A request as often as it is sent.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// What pays for it.
    pub(super) fare: Option<Arc<Fare>>,
    /// Whether it was sent, and not only waited.
    pub(super) was_sent: AtomicBool,
}

/// What is wanted of an answer.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Want {
    /// Its body, as far as that.
    Body(Extent),
    /// Its lines, as they come.
    Lines,
}

/// What an answer brought.
pub(super) enum Got {
    Body(Bytes),
    Lines(Watching),
}

/// Why one attempt failed, whether another one may do better, and when the server wants it.
pub(super) struct Failed {
    pub(super) error: CallError,
    pub(super) is_passing: bool,
    pub(super) asked: Option<Duration>,
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self {
            error,
            is_passing: matches!(error, CallError::Transport(_) | CallError::Crowded),
            asked: None,
        }
    }
}
