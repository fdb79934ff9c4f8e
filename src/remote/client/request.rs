//! One call of a link: what is sent, what is wanted of the answer, and what came of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

use super::call_reservation::CallReservation;
use super::watch_stream::WatchStream;
use crate::kubernetes::apply::{CallError, ResponseLimit, TransportStage};

/// A request that cannot be made, or an answer to another question.
pub(super) const INTERNAL: CallError = CallError::Transport(TransportStage::Internal);

/// A request as often as it is sent.
pub(super) struct RemoteRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// What pays for it.
    pub(super) fare: Option<Arc<CallReservation>>,
    /// Whether it was sent, and not only waited.
    pub(super) was_sent: AtomicBool,
}

/// What is wanted of an answer.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ResponseMode {
    /// Its body, as far as that.
    Body(ResponseLimit),
    /// Its lines, as they come.
    Lines,
}

/// What an answer brought.
pub(super) enum ResponseContent {
    Body(Bytes),
    Lines(WatchStream),
}

/// Why one attempt failed, whether another one may do better, and when the server wants it.
pub(super) struct AttemptError {
    pub(super) error: CallError,
    pub(super) is_passing: bool,
    pub(super) asked: Option<Duration>,
}

impl From<CallError> for AttemptError {
    fn from(error: CallError) -> Self {
        Self {
            error,
            is_passing: matches!(error, CallError::Transport(_) | CallError::Crowded),
            asked: None,
        }
    }
}
