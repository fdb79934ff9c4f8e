//! What the task of a connection shares with the callers that send through it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::desired::DesiredConnection;
use super::session::ConnectionSession;
use crate::base::metrics::clusters::ClusterMetrics;
use crate::kubernetes::apply::{ApiTransport, CallError, ResponseLimit, TransportStage};
use crate::remote::client::CallReservation;

/// The error of a call through a site that is not up any more.
const CANCELED: CallError = CallError::Transport(TransportStage::Canceled);

/// One connection as its callers see it; the session in it may be replaced.
pub(in crate::remote) struct SharedConnection {
    /// Label of the connection's metrics.
    pub(super) name: Box<str>,
    pub(super) metrics: ClusterMetrics,
    /// Ends the connection with all its calls and watches at once.
    pub(in crate::remote) cancel: CancellationToken,
    /// Notified when a call ended as on a broken connection, or with a refused credential.
    pub(super) suspected_loss: Notify,
    /// Calls in a row that the cluster did not answer in time, even if it answered probes.
    unanswered: AtomicU32,
    /// Notified at each such call, and when the count is reset.
    pub(super) unanswered_changed: Notify,
    session: RwLock<Option<Arc<ConnectionSession>>>,
}

impl SharedConnection {
    pub(in crate::remote) fn new(name: &str, metrics: ClusterMetrics, cancel: CancellationToken) -> Self {
        Self {
            name: name.into(),
            metrics,
            cancel,
            suspected_loss: Notify::new(),
            unanswered: AtomicU32::new(0),
            unanswered_changed: Notify::new(),
            session: RwLock::default(),
        }
    }

    fn session(&self) -> Option<Arc<ConnectionSession>> {
        let session = self.session.read().unwrap_or_else(PoisonError::into_inner);
        session.clone()
    }

    /// Sends the rotated token from the next request on, if nothing else differs.
    pub(in crate::remote) fn rotate_token(&self, wanted: &DesiredConnection) {
        if let Some(session) = self.session() {
            session.rotate_token(wanted);
        }
    }

    /// Replaces the session, and returns the old one.
    pub(super) fn swap(&self, session: Option<Arc<ConnectionSession>>) -> Option<Arc<ConnectionSession>> {
        let mut held = self.session.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, session)
    }

    /// Number of calls in a row that were not answered in time.
    pub(super) fn unanswered(&self) -> u32 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Counts a call. Only an answered call of a reconcile resets the count: an answered list does not prove that work gets done.
    fn count_call(
        &self,
        session: &Arc<ConnectionSession>,
        outcome: Result<(), CallError>,
        is_unanswered: bool,
        is_of_reconcile: bool,
    ) {
        // The series of a connection that ended must not come back.
        if self.cancel.is_cancelled() {
            return;
        }
        let code = outcome.map_or_else(CallError::code, |()| 200);
        self.metrics.request(&self.name, code);
        // A call on a replaced session shows nothing about the new one.
        if !self
            .session()
            .is_some_and(|current| Arc::ptr_eq(&current, session))
        {
            return;
        }
        if matches!(outcome, Err(CallError::Unauthorized | CallError::Transport(_))) {
            self.suspected_loss.notify_one();
        }
        if is_unanswered {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            self.unanswered_changed.notify_one();
        } else if is_of_reconcile && code != 0 && self.unanswered.swap(0, Ordering::Relaxed) > 0 {
            self.unanswered_changed.notify_one();
        }
    }
}

/// The session that the calls of a site use: the newest one on which the site passed its checks and was listed. A session that a
/// newer one replaced stays open while a site uses it, for a limited time.
#[derive(Debug, Default)]
pub(super) struct SiteSession(RwLock<Option<(Arc<ConnectionSession>, TaskTrackerToken)>>);

impl SiteSession {
    /// Uses this session from the next call on; with `None` each call fails.
    pub(super) fn set(&self, session: Option<&Arc<ConnectionSession>>) {
        let held = session.map(|session| (Arc::clone(session), session.call()));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = held;
    }

    /// The session, kept open for a call until the token is dropped.
    fn enter(&self) -> Option<(Arc<ConnectionSession>, TaskTrackerToken)> {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        held.as_ref()
            .map(|(session, _)| (Arc::clone(session), session.call()))
    }
}

/// Client of one site: sends requests as the site's user, over the site's session. Calls fail once the site is down or closed.
#[derive(Clone)]
pub struct SiteClient {
    shared: Arc<SharedConnection>,
    session: Arc<SiteSession>,
    user: Option<HeaderValue>,
    valid: CancellationToken,
    /// The reservation that its calls use first, if there is one.
    reservation: Option<Arc<CallReservation>>,
}

impl SiteClient {
    pub(super) fn new(
        shared: Arc<SharedConnection>,
        session: Arc<SiteSession>,
        user: Option<HeaderValue>,
        valid: CancellationToken,
    ) -> Self {
        Self {
            shared,
            session,
            user,
            valid,
            reservation: None,
        }
    }

    /// The same client for one reconcile, with a reservation for its calls.
    ///
    /// # Errors
    /// How long to wait before the next try.
    pub(in crate::remote) fn with_reservation(self) -> Result<Self, Duration> {
        let reservation = match self.session.enter() {
            Some((session, _call)) => Some(Arc::new(session.client.reserve()?)),
            // Without a session its calls fail, and need no reservation.
            None => None,
        };
        Ok(Self { reservation, ..self })
    }

    /// Whether the site was up without a break since the client was made.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid.is_cancelled()
    }

    async fn call(&self, request: Request<Vec<u8>>, extent: ResponseLimit) -> Result<Bytes, CallError> {
        let entered = self.session.enter().filter(|_| self.is_valid());
        let (session, _call) = entered.ok_or(CANCELED)?;
        let sent =
            session
                .client
                .send_reserved(request, self.user.as_ref(), self.reservation.clone(), extent);
        // A cancelled call is not counted, as it proves nothing about the cluster.
        let sent = self.valid.run_until_cancelled(sent).await;
        let sent = sent.ok_or(CANCELED)?;
        let outcome = sent.answer.as_ref().map(|_| ()).map_err(|error| *error);
        self.shared
            .count_call(&session, outcome, sent.is_unanswered, self.reservation.is_some());
        sent.answer
    }
}

impl ApiTransport for SiteClient {
    fn send(
        &self,
        request: Request<Vec<u8>>,
        extent: ResponseLimit,
    ) -> BoxFuture<'_, Result<Bytes, CallError>> {
        Box::pin(self.call(request, extent))
    }
}
