//! One site on a connection: its watch, and what the engine was told of it last.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::announce_permit::AnnouncePermit;
use super::checks::{ConnectionCheckError, admit, has_lost_right};
use super::common::{ConnectionContext, now};
use super::session::ConnectionSession;
use crate::base::metrics::KindLabel;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::watch::{EngineEvent, JobMetadata, ReceivedEvent, WatchChange};
use crate::kubernetes::write_fence::FenceClosed;
use crate::plan::remote::health::{ClockReading, ConnectionFault, SiteWatchStateMachine};
use crate::plan::remote::site::{ClusterName, Site, SiteState};
use crate::remote::jobs::watch_jobs;

/// Pause before a watch that ended is opened anew for the first time.
const REOPEN: Duration = Duration::from_millis(200);
/// A watch that lived longer than this did not fail.
const LIVED: Duration = Duration::from_secs(60);

/// What the watch of a site tells the task of its connection.
#[derive(Debug)]
pub(super) struct SiteWatchMessage {
    pub(super) site: Arc<Site>,
    /// Which watch of the site.
    pub(super) number: u64,
    pub(super) news: SiteWatchUpdate,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SiteWatchUpdate {
    /// Every Job was seen.
    Synced,
    /// It ended, and is opened anew after a while.
    Ended(ConnectionFault),
}

/// A site on a connection.
#[derive(Debug)]
pub(super) struct SiteWatch {
    pub(super) permit: Arc<AnnouncePermit>,
    /// `Err` for one that no header can carry.
    pub(super) user: Result<Option<HeaderValue>, ConnectionFault>,
    pub(super) watching: SiteWatchStateMachine,
    /// What was told last, and of which watch.
    pub(super) announced: Option<(SiteState, u64)>,
    /// Number of the watch.
    pub(super) number: u64,
    /// Valid while the site is up.
    pub(super) valid: CancellationToken,
    task: Option<AbortOnDropHandle<()>>,
}

impl SiteWatch {
    pub(super) fn new(site: &Site, turn: Arc<AnnouncePermit>, now: ClockReading) -> Self {
        let user = site.user().map(|user| HeaderValue::from_str(&user)).transpose();
        Self {
            valid: turn.closed.child_token(),
            permit: turn,
            // Never without a header that it should have.
            user: user.map_err(|_| ConnectionFault::ImpersonationNotEffective),
            watching: SiteWatchStateMachine::new(now),
            announced: None,
            number: 0,
            task: None,
        }
    }

    /// Opens its watch on this session.
    pub(super) fn start(
        &mut self,
        common: &Arc<ConnectionContext>,
        site: &Arc<Site>,
        session: Arc<ConnectionSession>,
        seed: u64,
        notes: mpsc::Sender<SiteWatchMessage>,
    ) {
        self.number += 1;
        self.watching.open(&common.settings.timing, now());
        let beat = WatchTask {
            common: Arc::clone(common),
            site: Arc::clone(site),
            _turn: Arc::clone(&self.permit),
            user: self.user.clone(),
            session,
            seed,
            voice: EventSink {
                inputs: common.inputs.clone(),
                notes,
                site: Arc::clone(site),
                number: self.number,
            },
        };
        let span = tracing::debug_span!("watch", namespace = site.namespace);
        self.task = Some(AbortOnDropHandle::new(tokio::spawn(beat.walk().instrument(span))));
    }

    pub(super) const fn is_started(&self) -> bool {
        self.task.is_some()
    }

    /// Whether its watch ended as it never should: nobody opens it anew.
    pub(super) fn is_broken(&self) -> bool {
        self.task.as_ref().is_some_and(AbortOnDropHandle::is_finished)
    }

    /// Ends its watch; nothing comes of it after that.
    pub(super) async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            _ = task.await;
        }
    }

    /// What the engine is told next, if anything: that the site is up once for each watch.
    pub(super) fn news(&self, site: &Site, now: ClockReading) -> Option<SiteState> {
        let standing = self.standing(site, now);
        let is_known = self.announced.as_ref().is_some_and(|(told, number)| {
            *told == standing && (standing != SiteState::Up || *number == self.number)
        });
        // On a new connection it is told again only when all was seen there.
        let is_early = standing == SiteState::Up && !self.watching.is_synced();
        (!is_known && !is_early).then_some(standing)
    }

    /// How the site stands; of a tenant's own cluster with what the tenant has to change.
    fn standing(&self, site: &Site, now: ClockReading) -> SiteState {
        let standing = self.watching.site_state(now);
        let (SiteState::Down { since, .. }, ClusterName::Own(own)) = (&standing, &site.cluster) else {
            return standing;
        };
        let since = *since;
        let refusal = self.watching.fault().and_then(|fault| own.disconnection(fault));
        refusal.map_or(standing, |refusal| SiteState::Refused { since, refusal })
    }

    /// Since when a site is down that is closed now.
    pub(super) fn since(&self, now: ClockReading) -> Timestamp {
        match &self.announced {
            Some((SiteState::Down { since, .. } | SiteState::Refused { since, .. }, _)) => *since,
            _ => now.wall,
        }
    }
}

/// The watch of one site on one session, for as long as that stands.
struct WatchTask {
    common: Arc<ConnectionContext>,
    site: Arc<Site>,
    /// Kept for as long as something may be told.
    _turn: Arc<AnnouncePermit>,
    user: Result<Option<HeaderValue>, ConnectionFault>,
    session: Arc<ConnectionSession>,
    seed: u64,
    voice: EventSink,
}

/// Tells what a watch sees.
#[derive(Clone)]
struct EventSink {
    inputs: mpsc::Sender<ReceivedEvent>,
    notes: mpsc::Sender<SiteWatchMessage>,
    site: Arc<Site>,
    number: u64,
}

impl WatchTask {
    async fn walk(self) {
        let mut failures = 0;
        let mut credentials = self.session.credentials();
        loop {
            credentials.mark_unchanged();
            let began = Instant::now();
            let ConnectionCheckError { fault, call } = self.watch().await;
            let (kind, stage) = (call.map(CallError::kind), call.and_then(CallError::stage));
            tracing::debug!(fault = ?fault, kind, stage, "the watch of a site ends; it is opened again");
            let kind = KindLabel { kind: "remote jobs" };
            self.common.metrics.watch_errors.get_or_create(&kind).inc();
            self.voice.note(SiteWatchUpdate::Ended(fault)).await;
            if began.elapsed() >= LIVED {
                failures = 0;
            }
            let pause = match failures {
                0 if fault.is_passing() => REOPEN,
                0 | 1 => self.common.settings.timing.wait(0, self.seed),
                more => self.common.settings.timing.wait(more - 1, self.seed),
            };
            failures += 1;
            // Another credential is worth another attempt at once.
            _ = timeout(pause, credentials.changed()).await;
        }
    }

    /// Watches until that ends, or the site must not be used any more.
    async fn watch(&self) -> ConnectionCheckError {
        let user = match &self.user {
            Ok(user) => user.as_ref(),
            Err(fault) => return (*fault).into(),
        };
        // Taken before anything is asked, so that no credential goes unasked.
        let credentials = self.session.credentials();
        if let Err(failure) = self.admitted(user).await {
            return failure;
        }
        let settings = &self.common.settings;
        // It borrows nothing, or the compiler could not see that the watch runs on any thread.
        let voice = self.voice.clone();
        let seen = move |change| voice.clone().told(change);
        let watched = watch_jobs(
            &self.session.client,
            user,
            &self.site.namespace,
            &settings.hub_id,
            seen,
        );
        let (watched, verified) = (pin!(watched), pin!(self.verified(user, credentials)));
        tokio::select! {
            end = watched => end.into(),
            failure = verified => failure,
        }
    }

    async fn admitted(&self, user: Option<&HeaderValue>) -> Result<(), ConnectionCheckError> {
        let (own, gate) = (
            &self.common.settings.own_namespaces,
            &self.common.settings.link.fence,
        );
        loop {
            // Whoever may not ask learns nothing, which says nothing of the cluster.
            gate.opened().await;
            let asked = Box::pin(gate.during(admit(&self.session.client, &self.site, user, own)));
            match asked.await {
                Ok(told) if told.is_ok() || gate.admit().is_ok() => return told,
                Ok(_) | Err(FenceClosed) => {}
            }
        }
    }

    /// Asks anew with each other credential what was asked before the watch, and as often as is probed whether the rights are
    /// still there: an API server goes on with a watch whose right was taken away. Ends with what speaks against the site.
    async fn verified(
        &self,
        user: Option<&HeaderValue>,
        mut credentials: watch::Receiver<u64>,
    ) -> ConnectionCheckError {
        let timing = &self.common.settings.timing;
        for verb in ["list", "watch"].iter().cycle() {
            let probe = timing.on_beat(now().at + timing.probe_every);
            match timeout_at(probe.into(), credentials.changed()).await {
                Ok(Ok(())) => match self.admitted(user).await {
                    Err(failure) if !failure.fault.is_passing() => return failure,
                    Ok(()) | Err(_) => {}
                },
                // The sender lives in the session.
                Ok(Err(_)) => return ConnectionFault::Unreachable.into(),
                Err(_) if has_lost_right(&self.session.client, &self.site, user, verb).await => {
                    return ConnectionFault::Forbidden.into();
                }
                Err(_) => {}
            }
        }
        ConnectionFault::Unreachable.into()
    }
}

impl EventSink {
    async fn told(self, change: WatchChange<JobMetadata>) {
        let is_synced = matches!(change, WatchChange::Synced);
        let input = EngineEvent::Job(Some(Arc::clone(&self.site)), change);
        // Without an engine there is nobody to tell.
        _ = self.inputs.send(input.into()).await;
        if is_synced {
            self.note(SiteWatchUpdate::Synced).await;
        }
    }

    async fn note(&self, news: SiteWatchUpdate) {
        let note = SiteWatchMessage {
            site: Arc::clone(&self.site),
            number: self.number,
            news,
        };
        _ = self.notes.send(note).await;
    }
}
