//! One site on a connection: its watch, and the state that was announced last.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::announce_permit::AnnouncePermit;
use super::checks::{ConnectionCheckError, check_site, has_lost_right};
use super::common::{ConnectionContext, now};
use super::session::ConnectionSession;
use super::shared::{SharedConnection, SiteClient, SiteSession};
use crate::base::metrics::KindLabel;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::watch::{JobMetadata, ReceivedEvent, TaskWatchEvent, WatchChange};
use crate::kubernetes::write_fence::FenceClosed;
use crate::plan::remote::health::{ConnectionFault, SiteWatchStateMachine};
use crate::plan::remote::site::{ClusterName, Site, SiteState};
use crate::remote::jobs::watch_jobs;

/// Pause before a watch that ended is reopened for the first time.
const FIRST_REOPEN_PAUSE: Duration = Duration::from_millis(200);
/// A watch that lives longer than this resets the back-off.
const HEALTHY_LIFE: Duration = Duration::from_secs(60);

/// A message from the watch of a site to the task of its connection.
#[derive(Debug)]
pub(super) struct SiteWatchMessage {
    pub(super) site: Arc<Site>,
    /// Number of the watch, so that a message of a replaced watch is ignored.
    pub(super) number: u64,
    pub(super) update: SiteWatchUpdate,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SiteWatchUpdate {
    /// The initial list is complete.
    Synced,
    /// The watch ended, and is reopened after a pause.
    Ended(ConnectionFault),
}

/// A site on a connection.
#[derive(Debug)]
pub(super) struct SiteWatch {
    pub(super) permit: Arc<AnnouncePermit>,
    /// The user to impersonate; `Err` where its name is no valid header value.
    pub(super) user: Result<Option<HeaderValue>, ConnectionFault>,
    pub(super) watching: SiteWatchStateMachine,
    /// The state that was announced last, and the number of the watch at that time.
    pub(super) announced: Option<(SiteState, u64)>,
    /// Number of the current watch.
    pub(super) number: u64,
    /// Valid while the site is up.
    pub(super) valid: CancellationToken,
    /// The session of the site's calls while it is up.
    pub(super) session: Arc<SiteSession>,
    task: Option<AbortOnDropHandle<()>>,
}

impl SiteWatch {
    pub(super) fn new(site: &Site, permit: Arc<AnnouncePermit>) -> Self {
        let user = site.user().map(|user| HeaderValue::from_str(&user)).transpose();
        Self {
            valid: permit.closed.child_token(),
            permit,
            // A site that must impersonate is never used without the header.
            user: user.map_err(|_| ConnectionFault::ImpersonationNotEffective),
            watching: SiteWatchStateMachine::default(),
            announced: None,
            number: 0,
            session: Arc::default(),
            task: None,
        }
    }

    /// Opens the watch on this session.
    pub(super) fn start(
        &mut self,
        common: &Arc<ConnectionContext>,
        site: &Arc<Site>,
        session: Arc<ConnectionSession>,
        seed: u64,
        messages: mpsc::Sender<SiteWatchMessage>,
    ) {
        self.number += 1;
        self.watching.open(&common.settings.timing, now());
        let task = WatchTask {
            common: Arc::clone(common),
            site: Arc::clone(site),
            _permit: Arc::clone(&self.permit),
            user: self.user.clone(),
            session,
            seed,
            sink: EventSink {
                inputs: common.inputs.clone(),
                messages,
                site: Arc::clone(site),
                number: self.number,
            },
        };
        let span = tracing::debug_span!("watch", namespace = site.namespace);
        self.task = Some(AbortOnDropHandle::new(tokio::spawn(task.run().instrument(span))));
    }

    /// A client of the site, valid until the site is down or closed.
    pub(super) fn client(&mut self, shared: &Arc<SharedConnection>) -> SiteClient {
        self.valid = self.permit.closed.child_token();
        let (shared, session) = (Arc::clone(shared), Arc::clone(&self.session));
        let user = self.user.clone().unwrap_or_default();
        SiteClient::new(shared, session, user, self.valid.clone())
    }

    pub(super) const fn is_started(&self) -> bool {
        self.task.is_some()
    }

    /// Whether the watch task ended by itself, as only a panic can make it: it is not reopened.
    pub(super) fn is_broken(&self) -> bool {
        self.task.as_ref().is_some_and(AbortOnDropHandle::is_finished)
    }

    /// Ends the watch; it sends nothing after that.
    pub(super) async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            _ = task.await;
        }
    }

    /// The state to announce next, if there is a new one; `Up` is announced once for each watch.
    pub(super) fn next_announcement(&self, site: &Site) -> Option<SiteState> {
        let state = self.site_state(site);
        let is_known = self.announced.as_ref().is_some_and(|(announced, number)| {
            *announced == state && (state != SiteState::Up || *number == self.number)
        });
        // On a new connection `Up` is announced only after the initial list there.
        let is_early = state == SiteState::Up && !self.watching.is_synced();
        (!is_known && !is_early).then_some(state)
    }

    /// The state of the site; for a tenant's own cluster with the refusal that the tenant has to resolve.
    fn site_state(&self, site: &Site) -> SiteState {
        let state = self.watching.site_state();
        let ClusterName::Own(own) = &site.cluster else {
            return state;
        };
        let refusal = self.watching.fault().and_then(|fault| own.disconnection(fault));
        refusal.map_or(state, SiteState::Refused)
    }
}

/// The watch of one site on one session, until the session ends.
struct WatchTask {
    common: Arc<ConnectionContext>,
    site: Arc<Site>,
    /// Held while the task may send events: the next announcer of the site waits for its drop.
    _permit: Arc<AnnouncePermit>,
    user: Result<Option<HeaderValue>, ConnectionFault>,
    session: Arc<ConnectionSession>,
    seed: u64,
    sink: EventSink,
}

/// Sends what a watch sees to the task controller and to the connection.
#[derive(Clone)]
struct EventSink {
    inputs: mpsc::Sender<ReceivedEvent>,
    messages: mpsc::Sender<SiteWatchMessage>,
    site: Arc<Site>,
    number: u64,
}

impl WatchTask {
    async fn run(self) {
        let backoff = self.common.settings.timing.backoff;
        let mut failures = 0;
        let mut token_rotations = self.session.token_rotations();
        loop {
            token_rotations.mark_unchanged();
            let began = Instant::now();
            let ConnectionCheckError { fault, call } = self.watch().await;
            let (kind, stage) = (call.map(CallError::kind), call.and_then(CallError::stage));
            tracing::debug!(fault = ?fault, kind, stage, "the watch of a site ends; it is opened again");
            let kind = KindLabel { kind: "remote jobs" };
            self.common.metrics.watch_errors.get_or_create(&kind).inc();
            self.sink.send_update(SiteWatchUpdate::Ended(fault)).await;
            if began.elapsed() >= HEALTHY_LIFE {
                failures = 0;
            }
            let pause = match failures {
                0 if fault.is_passing() => FIRST_REOPEN_PAUSE,
                failures => backoff.wait(failures, &self.seed),
            };
            failures += 1;
            // A rotated token may succeed where the old one failed.
            _ = timeout(pause, token_rotations.changed()).await;
        }
    }

    /// Watches until the watch ends, or the site must not be used any more.
    async fn watch(&self) -> ConnectionCheckError {
        let user = match &self.user {
            Ok(user) => user.as_ref(),
            Err(fault) => return (*fault).into(),
        };
        // Subscribed before the first check, so that every later token is checked.
        let token_rotations = self.session.token_rotations();
        if let Err(failure) = self.check_admission(user).await {
            return failure;
        }
        let settings = &self.common.settings;
        // The closure borrows nothing, or the compiler could not see that the future is `Send`.
        let sink = self.sink.clone();
        let seen = move |change| sink.clone().send_change(change);
        let watched = watch_jobs(
            &self.session.client,
            user,
            &self.site.namespace,
            &settings.hub_id,
            seen,
        );
        let (watched, rights) = (pin!(watched), pin!(self.watch_rights(user, token_rotations)));
        tokio::select! {
            end = watched => end.into(),
            failure = rights => failure,
        }
    }

    async fn check_admission(&self, user: Option<&HeaderValue>) -> Result<(), ConnectionCheckError> {
        let (own, fence) = (
            &self.common.settings.own_namespaces,
            &self.common.settings.client.fence,
        );
        loop {
            // While the write fence is closed, a check fails without a request, which is no fault of the cluster.
            fence.opened().await;
            let checked = Box::pin(fence.during(check_site(&self.session.client, &self.site, user, own)));
            match checked.await {
                Ok(result) if result.is_ok() || fence.admit().is_ok() => return result,
                Ok(_) | Err(FenceClosed) => {}
            }
        }
    }

    /// Repeats the checks of the site with each rotated token, until one is answered, and at each probe interval asks whether the user
    /// still has the right to watch: an API server goes on with a watch whose right was revoked. Returns the first lasting failure.
    async fn watch_rights(
        &self,
        user: Option<&HeaderValue>,
        mut token_rotations: watch::Receiver<u64>,
    ) -> ConnectionCheckError {
        let timing = &self.common.settings.timing;
        let mut is_unchecked = false;
        for verb in ["list", "watch"].iter().cycle() {
            let probe = timing.on_beat(now().at + timing.probe_every);
            match timeout_at(probe.into(), token_rotations.changed()).await {
                Ok(Ok(())) => is_unchecked = true,
                // The sender lives in the session.
                Ok(Err(_)) => return ConnectionFault::Unreachable.into(),
                Err(_) if is_unchecked => {}
                Err(_) if has_lost_right(&self.session.client, &self.site, user, verb).await => {
                    return ConnectionFault::Forbidden.into();
                }
                Err(_) => {}
            }
            if is_unchecked {
                match self.check_admission(user).await {
                    Ok(()) => is_unchecked = false,
                    Err(failure) if !failure.fault.is_passing() => return failure,
                    Err(_) => {}
                }
            }
        }
        ConnectionFault::Unreachable.into()
    }
}

impl EventSink {
    async fn send_change(self, change: WatchChange<JobMetadata>) {
        let is_synced = matches!(change, WatchChange::Synced);
        let input = TaskWatchEvent::Job(Some(Arc::clone(&self.site)), change);
        // The send fails only when the task controller has ended.
        _ = self.inputs.send(input.into()).await;
        if is_synced {
            self.send_update(SiteWatchUpdate::Synced).await;
        }
    }

    async fn send_update(&self, update: SiteWatchUpdate) {
        let message = SiteWatchMessage {
            site: Arc::clone(&self.site),
            number: self.number,
            update,
        };
        _ = self.messages.send(message).await;
    }
}
