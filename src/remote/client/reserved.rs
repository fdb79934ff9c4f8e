//! Calls that wait for a turn and for the pace, or were paid for in advance.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use super::call_reservation::{CALLS_OF_PASS, CallReservation, NO_TURN};
use super::request::{INTERNAL, RemoteRequest, ResponseContent, ResponseMode};
use super::state::RemoteClient;
use crate::base::metrics::event_latency;
use crate::kubernetes::apply::{CallError, ResponseLimit};

/// What became of a call.
pub(in crate::remote) struct SendResult {
    pub(in crate::remote) answer: Result<Bytes, CallError>,
    /// Whether the server had all the time there is and did not answer.
    pub(in crate::remote) is_unanswered: bool,
}

impl RemoteClient {
    /// The same at this fare, as long as that pays for it.
    pub(in crate::remote) async fn send_paid(
        &self,
        request: Request<Vec<u8>>,
        user: Option<&HeaderValue>,
        fare: Option<Arc<CallReservation>>,
        extent: ResponseLimit,
    ) -> SendResult {
        let call = match self.call(request, user) {
            Ok(call) => RemoteRequest { fare, ..call },
            Err(error) => {
                return SendResult {
                    answer: Err(error),
                    is_unanswered: false,
                };
            }
        };
        let answer = match self.attempts(&call, ResponseMode::Body(extent)).await {
            Ok(ResponseContent::Body(body)) => Ok(body),
            Ok(ResponseContent::Lines(_)) => Err(INTERNAL),
            Err(error) => Err(error),
        };
        let is_late = matches!(answer, Err(CallError::Timeout));
        SendResult {
            is_unanswered: is_late && call.was_sent.into_inner(),
            answer,
        }
    }

    /// A turn and some calls, paid for in advance.
    ///
    /// # Errors
    /// How long to wait before it is worth trying again.
    pub(in crate::remote) fn reserve(&self) -> Result<CallReservation, Duration> {
        let turn = Arc::clone(&self.0.turns)
            .try_acquire_owned()
            .map_err(|_| NO_TURN)?;
        let calls = self.0.pace.try_turns(CALLS_OF_PASS)?;
        Ok(CallReservation::new(self.clone(), calls, turn))
    }

    /// Waits for a turn and for the pace, unless both are paid for.
    pub(super) async fn acquire(
        &self,
        call: &RemoteRequest,
    ) -> Result<Option<SemaphorePermit<'_>>, CallError> {
        if call.fare.as_ref().is_some_and(|fare| fare.pays(self)) {
            return Ok(None);
        }
        let began = Instant::now();
        // Never closed.
        let turn = self.0.turns.acquire().await.map_err(|_| INTERNAL)?;
        self.0.pace.acquire().await;
        event_latency::paced(began.elapsed());
        Ok(Some(turn))
    }

    /// The call leaves now.
    pub(super) fn leaves(call: &RemoteRequest) {
        call.was_sent.store(true, Ordering::Relaxed);
        event_latency::leaves();
    }
}
