//! Calls that wait for a slot and for the rate limiter, or use a reservation.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use super::call_reservation::{CALLS_PER_RECONCILE, CallReservation, NO_SLOT_PAUSE};
use super::request::{INTERNAL, RemoteRequest, ResponseContent, ResponseMode};
use super::state::RemoteClient;
use crate::base::metrics::event_latency;
use crate::kubernetes::apply::{CallError, ResponseLimit};

/// The result of a call.
pub(in crate::remote) struct SendResult {
    pub(in crate::remote) answer: Result<Bytes, CallError>,
    /// Whether the request was sent, and the server did not answer before the deadline.
    pub(in crate::remote) is_unanswered: bool,
}

impl RemoteClient {
    /// As [`RemoteClient::fetch`], with a call of the reservation as long as it has one.
    pub(in crate::remote) async fn send_reserved(
        &self,
        request: Request<Vec<u8>>,
        user: Option<&HeaderValue>,
        reservation: Option<Arc<CallReservation>>,
        extent: ResponseLimit,
    ) -> SendResult {
        let call = match self.call(request, user) {
            Ok(call) => RemoteRequest { reservation, ..call },
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

    /// Reserves a slot and some calls in advance.
    ///
    /// # Errors
    /// How long to wait before the next try.
    pub(in crate::remote) fn reserve(&self) -> Result<CallReservation, Duration> {
        let slot = Arc::clone(&self.0.in_flight)
            .try_acquire_owned()
            .map_err(|_| NO_SLOT_PAUSE)?;
        let calls = self.0.pace.try_acquire_many(CALLS_PER_RECONCILE)?;
        Ok(CallReservation::new(self.clone(), calls, slot))
    }

    /// Waits for a slot and for the rate limiter, unless the call is reserved.
    pub(super) async fn acquire(
        &self,
        call: &RemoteRequest,
    ) -> Result<Option<SemaphorePermit<'_>>, CallError> {
        if call
            .reservation
            .as_ref()
            .is_some_and(|reservation| reservation.take_call(self))
        {
            return Ok(None);
        }
        let began = Instant::now();
        // The semaphore is never closed.
        let slot = self.0.in_flight.acquire().await.map_err(|_| INTERNAL)?;
        self.0.pace.acquire().await;
        event_latency::paced(began.elapsed());
        Ok(Some(slot))
    }

    /// Records that the call is sent now.
    pub(super) fn set_sent(call: &RemoteRequest) {
        call.was_sent.store(true, Ordering::Relaxed);
        event_latency::mark_sent();
    }
}
