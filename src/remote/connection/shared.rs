//! What the task of a connection shares with everybody who sends through it.

use std::fmt;
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

/// A call through a site that is not up any more.
const CANCELED: CallError = CallError::Transport(TransportStage::Canceled);

/// One connection as its users know it, whatever becomes of it.
pub(in crate::remote) struct SharedConnection {
    /// Label of its metrics.
    pub(super) name: Box<str>,
    pub(super) metrics: ClusterMetrics,
    /// Ends everything at once.
    pub(in crate::remote) cancel: CancellationToken,
    /// A call ended as on a broken connection, or with a refused credential.
    pub(super) doubt: Notify,
    /// Calls in a row that the cluster did not answer in time, whatever it says to probes, and word of each and of their end.
    unanswered: AtomicU32,
    pub(super) counted: Notify,
    session: RwLock<Option<Arc<ConnectionSession>>>,
}

impl SharedConnection {
    pub(in crate::remote) fn new(name: &str, metrics: ClusterMetrics, cut: CancellationToken) -> Self {
        Self {
            name: name.into(),
            metrics,
            cancel: cut,
            doubt: Notify::new(),
            unanswered: AtomicU32::new(0),
            counted: Notify::new(),
            session: RwLock::default(),
        }
    }

    /// The session of this moment, kept for a call: what takes its place waits for whoever came in before it.
    fn enter(&self) -> Option<(Arc<ConnectionSession>, TaskTrackerToken)> {
        let held = self.session.read().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(|session| (Arc::clone(session), session.call()))
    }

    /// Lets the next request carry the token that is wanted, where it is all that differs.
    pub(in crate::remote) fn renew(&self, wanted: &DesiredConnection) {
        if let Some((session, _call)) = self.enter() {
            session.renew(wanted);
        }
    }

    /// Puts another session, or none, in the place of the one before, which is given back.
    pub(super) fn swap(&self, session: Option<Arc<ConnectionSession>>) -> Option<Arc<ConnectionSession>> {
        let mut held = self.session.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, session)
    }

    /// Calls in a row that were not answered in time.
    pub(super) fn unanswered(&self) -> u32 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Counts a call. Only what a pass asks for tells that the cluster works, and not a list that is answered.
    fn count(&self, outcome: Result<(), CallError>, is_unanswered: bool, is_of_pass: bool) {
        // After the end, its series are gone and stay so.
        if self.cancel.is_cancelled() {
            return;
        }
        let code = outcome.map_or_else(CallError::code, |()| 200);
        self.metrics.request(&self.name, code);
        if matches!(outcome, Err(CallError::Unauthorized | CallError::Transport(_))) {
            self.doubt.notify_one();
        }
        if is_unanswered {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            self.counted.notify_one();
        } else if is_of_pass && code != 0 && self.unanswered.swap(0, Ordering::Relaxed) > 0 {
            self.counted.notify_one();
        }
    }
}

/// The way to one site: carries requests as its user, on whatever connection leads there at that moment. It ends when the
/// site is down or closed; a call through it fails from then on.
#[derive(Clone)]
pub struct SiteClient {
    line: Arc<SharedConnection>,
    user: Option<HeaderValue>,
    valid: CancellationToken,
    /// What pays for its calls, if they are paid for in advance.
    reservation: Option<Arc<CallReservation>>,
}

impl SiteClient {
    pub(super) fn new(
        line: Arc<SharedConnection>,
        user: Option<HeaderValue>,
        valid: CancellationToken,
    ) -> Self {
        let fare = None;
        Self {
            line,
            user,
            valid,
            reservation: fare,
        }
    }

    /// The same for one pass, whose calls are paid for.
    ///
    /// # Errors
    /// How long to wait before it is worth trying again.
    pub(in crate::remote) fn paid(self) -> Result<Self, Duration> {
        let fare = match self.line.enter() {
            Some((session, _call)) => Some(Arc::new(session.client.reserve()?)),
            // Its calls fail, and cost nothing.
            None => None,
        };
        Ok(Self {
            reservation: fare,
            ..self
        })
    }

    /// Whether the site was up without a break since the seat was given.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid.is_cancelled()
    }

    async fn call(&self, request: Request<Vec<u8>>, extent: ResponseLimit) -> Result<Bytes, CallError> {
        let entered = self.line.enter().filter(|_| self.is_valid());
        let (session, _call) = entered.ok_or(CANCELED)?;
        let sent = session
            .client
            .send_paid(request, self.user.as_ref(), self.reservation.clone(), extent);
        // What is cut says nothing of the cluster.
        let sent = self.valid.run_until_cancelled(sent).await;
        let sent = sent.ok_or(CANCELED)?;
        let outcome = sent.answer.as_ref().map(|_| ()).map_err(|error| *error);
        self.line
            .count(outcome, sent.is_unanswered, self.reservation.is_some());
        sent.answer
    }
}

impl fmt::Debug for SiteClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seat")
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
