//! One call of a remote client: the request, the expected form of the response, and the error of an attempt.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};

use super::call_reservation::CallReservation;
use super::watch_stream::WatchStream;
use crate::kubernetes::apply::{CallError, ResponseLimit, TransportStage};

/// A request that cannot be built, or a response of the wrong kind.
pub(super) const INTERNAL: CallError = CallError::Transport(TransportStage::Internal);

/// A request, kept for all its attempts.
pub(super) struct RemoteRequest {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The reservation that it uses, if there is one.
    pub(super) reservation: Option<Arc<CallReservation>>,
    /// Whether it was sent, and did not only wait for a slot.
    pub(super) was_sent: AtomicBool,
}

/// The expected form of a response.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ResponseMode {
    /// Its body, up to this limit.
    Body(ResponseLimit),
    /// Its lines, as they arrive.
    Lines,
}

/// The content of a response.
pub(super) enum ResponseContent {
    Body(Bytes),
    Lines(WatchStream),
}

/// Why one attempt failed, whether a retry may succeed, and the `Retry-After` of the server.
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
