//! The task of one connection.

use std::collections::HashMap;
use std::future;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, sleep_until};

use super::checks::{ConnectionCheckError, greet};
use super::common::{ConnectionContext, now};
use super::desired::DesiredConnection;
use super::report::ReportBuffer;
use super::session::ConnectionSession;
use super::shared::SharedConnection;
use super::site_watch::{SiteWatch, SiteWatchMessage};
use crate::api::conditions::Reason;
use crate::base::metrics::clusters::label;
use crate::kubernetes::apply::CallError;
use crate::plan::remote::health::{
    ConnectionAction, ConnectionEvent, ConnectionFault, ConnectionStateMachine, KubernetesVersion,
};
use crate::plan::remote::site::Site;
use crate::remote::ConnectionKey;
use crate::remote::client::RemoteClient;

/// Notes of watches that wait; one of each of a few sites, and a watch that finds no room waits.
const NOTES: usize = 16;
/// Longest that an attempt keeps others from beginning.
const START: Duration = Duration::from_millis(250);

/// What a task of the connection brings at its end.
pub(super) enum ConnectionTaskResult {
    Attempt(
        u64,
        Result<(KubernetesVersion, Arc<ConnectionSession>), ConnectionCheckError>,
    ),
    Probe(u64, Result<(), ConnectionCheckError>),
    /// Whoever spoke of the site before is done.
    Turn(Arc<Site>),
    Drained,
}

/// One connection, from its first bind to its end.
pub(in crate::remote) struct ConnectionActor {
    pub(super) key: ConnectionKey,
    pub(super) common: Arc<ConnectionContext>,
    pub(super) line: Arc<SharedConnection>,
    pub(super) desired: watch::Receiver<DesiredConnection>,
    /// What was wanted when it was last looked at.
    pub(super) current: DesiredConnection,
    pub(super) connection: ConnectionStateMachine,
    pub(super) session: Option<Arc<ConnectionSession>>,
    pub(super) posts: HashMap<Arc<Site>, SiteWatch>,
    /// Whether all sites of this connection were looked at once.
    pub(super) is_settled: bool,
    pub(super) report: ReportBuffer,
    /// The call that failed last of those that told how the connection stands.
    pub(super) failure: Option<CallError>,
    pub(super) seed: u64,
    pub(super) watch_messages: mpsc::Sender<SiteWatchMessage>,
    pub(super) tasks: JoinSet<ConnectionTaskResult>,
    inbox: mpsc::Receiver<SiteWatchMessage>,
    /// The attempt or the probe that is under way, and its number.
    under_way: Option<AbortHandle>,
    number: u64,
    has_stood: bool,
}

impl ConnectionActor {
    pub(in crate::remote) fn new(
        key: ConnectionKey,
        common: Arc<ConnectionContext>,
        line: Arc<SharedConnection>,
        desired: watch::Receiver<DesiredConnection>,
    ) -> Self {
        let seed = RandomState::new().hash_one(&key);
        let (notes, inbox) = mpsc::channel(NOTES);
        let mut current = desired.borrow().clone();
        // Those are news to be looked at.
        current.sites.clear();
        Self {
            connection: ConnectionStateMachine::new(common.settings.timing, seed, now()),
            key,
            common,
            line,
            desired,
            current,
            session: None,
            posts: HashMap::new(),
            is_settled: false,
            report: ReportBuffer::default(),
            failure: None,
            seed,
            watch_messages: notes,
            tasks: JoinSet::new(),
            inbox,
            under_way: None,
            number: 0,
            has_stood: false,
        }
    }

    /// Runs until the connection is cut.
    pub(in crate::remote) async fn run(mut self) {
        self.desired.mark_changed();
        let cut = self.line.cancel.clone();
        while !cut.is_cancelled() {
            self.act();
            if !self.connection.is_up() {
                self.drop_session().await;
            }
            cut.run_until_cancelled(self.tell()).await;
            cut.run_until_cancelled(self.next()).await;
        }
        self.end().await;
    }

    /// Does what is due.
    fn act(&mut self) {
        let now = now();
        for post in self.posts.values_mut() {
            if post.is_broken() {
                post.watching
                    .ended(ConnectionFault::Unusable, &self.common.settings.timing, now);
            }
            post.watching.wake(now);
        }
        let from = self.connection.state();
        let todo = self.connection.wake(now);
        let to = self.connection.state();
        if from != to {
            tracing::debug!(todo = ?todo, from, to, "the time has come for a connection");
        }
        match todo {
            Some(ConnectionAction::Connect) => self.connect(),
            Some(ConnectionAction::Probe) => self.probe(),
            None => {}
        }
    }

    /// Takes in the next news.
    async fn next(&mut self) {
        let due = self.due();
        let (line, reports) = (Arc::clone(&self.line), self.common.reports.clone());
        tokio::select! {
            _ = self.desired.changed() => self.apply().await,
            Some(done) = self.tasks.join_next() => match done {
                Ok(done) => self.done(done).await,
                Err(ended) => self.fell(ended.is_panic()),
            },
            Some(note) = self.inbox.recv() => self.note(&note),
            () = line.counted.notified() => {
                let calls = line.unanswered();
                self.handle(ConnectionEvent::Unanswered(calls), (calls > 0).then_some(CallError::Timeout));
            }
            () = line.doubt.notified() => self.handle(ConnectionEvent::Doubt, None),
            Ok(permit) = reports.reserve(), if self.report.has_news() => self.report.send(permit),
            () = until(due) => {}
        }
    }

    /// A task that ended without an outcome; one that was given up is no news.
    fn fell(&mut self, is_panic: bool) {
        if is_panic {
            self.handle(ConnectionEvent::Failed(ConnectionFault::Unusable), None);
            self.handle(ConnectionEvent::Missed(ConnectionFault::Unusable), None);
        }
    }

    fn due(&self) -> Option<Instant> {
        let sites = self.posts.values().filter_map(|post| post.watching.due());
        sites.chain(self.connection.due(now())).min()
    }

    /// Compares what is wanted with what was.
    async fn apply(&mut self) {
        let wanted = self.desired.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.current, wanted);
        if self.current.binds != before.binds {
            self.bound(&before);
        }
        if self.current.rate_limit != before.rate_limit
            && let Some(session) = &self.session
        {
            session
                .client
                .set_pace(self.current.rate_limit.qps, self.current.rate_limit.burst);
        }
        self.place_sites().await;
    }

    /// Another kubeconfig, or the same once more.
    fn bound(&mut self, before: &DesiredConnection) {
        if self.current.identity == before.identity {
            self.handle(ConnectionEvent::Same, None);
            return;
        }
        let is_token = self.current.connection == before.connection;
        if !is_token || !self.connection.is_probing() {
            self.number += 1;
            if let Some(under_way) = self.under_way.take() {
                under_way.abort();
            }
        }
        self.line.renew(&self.current);
        let heard = if is_token {
            ConnectionEvent::Token
        } else {
            ConnectionEvent::Replaced
        };
        self.handle(heard, None);
    }

    fn connect(&mut self) {
        self.number += 1;
        let attempts = &self.line.metrics.attempts;
        attempts.get_or_create(&label(&self.line.name)).inc();
        let attempt = attempt(Arc::clone(&self.common), self.current.clone(), self.number);
        self.under_way = Some(self.tasks.spawn(attempt));
    }

    fn probe(&mut self) {
        self.number += 1;
        let number = self.number;
        let link = self.session.as_ref().map(|session| session.client.clone());
        self.under_way = Some(self.tasks.spawn(async move {
            let probed = match link {
                Some(link) => link.probe().await.map(|_| ()).map_err(ConnectionCheckError::from),
                None => Err(ConnectionFault::Unreachable.into()),
            };
            ConnectionTaskResult::Probe(number, probed)
        }));
    }

    async fn done(&mut self, done: ConnectionTaskResult) {
        match done {
            ConnectionTaskResult::Attempt(number, attempt) if number == self.number => {
                self.under_way = None;
                match attempt {
                    Ok((version, session)) => self.connected(version, session).await,
                    Err(failure) => self.handle(ConnectionEvent::Failed(failure.fault), failure.call),
                }
            }
            ConnectionTaskResult::Probe(number, probed) if number == self.number => {
                self.under_way = None;
                self.probed(probed);
            }
            ConnectionTaskResult::Turn(site) => self.take_turn(&site),
            ConnectionTaskResult::Attempt(..)
            | ConnectionTaskResult::Probe(..)
            | ConnectionTaskResult::Drained => {}
        }
    }

    fn probed(&mut self, probed: Result<(), ConnectionCheckError>) {
        let call = probed.err().and_then(|failure| failure.call);
        let (result, heard) = match probed.map_err(|failure| failure.fault) {
            Ok(()) => ("answered", ConnectionEvent::Answered),
            Err(fault @ ConnectionFault::Unauthorized) => ("unauthorized", ConnectionEvent::Missed(fault)),
            Err(fault @ ConnectionFault::Forbidden) => ("forbidden", ConnectionEvent::Missed(fault)),
            Err(fault) => ("missed", ConnectionEvent::Missed(fault)),
        };
        self.line.metrics.probe(&self.line.name, result);
        self.handle(heard, call);
    }

    /// Takes in what became of the connection, with the call that failed, if one did, and says what comes of it.
    pub(super) fn handle(&mut self, heard: ConnectionEvent, call: Option<CallError>) {
        let from = self.connection.state();
        self.connection.handle(heard, now());
        let to = self.connection.state();
        let (kind, stage) = (call.map(CallError::kind), call.and_then(CallError::stage));
        match heard {
            ConnectionEvent::Connected(_) => self.failure = None,
            ConnectionEvent::Answered if from == to => {
                tracing::trace!("a probe was answered");
                return;
            }
            ConnectionEvent::Failed(_) | ConnectionEvent::Missed(_) | ConnectionEvent::Unanswered(1..) => {
                self.failure = call;
            }
            _ => {}
        }
        tracing::debug!(heard = ?heard, from, to, kind, stage, "a connection heard of something");
    }

    /// Puts the new session in the place of the old one, whose calls go on for a while.
    async fn connected(&mut self, version: KubernetesVersion, session: Arc<ConnectionSession>) {
        self.handle(ConnectionEvent::Connected(version), None);
        // It may have changed while the attempt was under way.
        session
            .client
            .set_pace(self.current.rate_limit.qps, self.current.rate_limit.burst);
        self.session = Some(Arc::clone(&session));
        let old = self.line.swap(Some(session));
        if self.has_stood {
            let reconnects = &self.line.metrics.reconnects;
            reconnects.get_or_create(&label(&self.line.name)).inc();
        }
        self.has_stood = true;
        self.start_sites().await;
        if let Some(old) = old {
            let cut = self.line.cancel.clone();
            self.tasks.spawn(async move {
                old.drain(cut).await;
                ConnectionTaskResult::Drained
            });
        }
    }

    async fn drop_session(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.line.swap(None);
        session.client.cut();
        for post in self.posts.values_mut() {
            post.stop().await;
        }
    }

    /// Ends all tasks, and says of each site that it is down, if it is known why.
    async fn end(mut self) {
        let reason = self.desired.borrow().end.map(Reason::as_str);
        tracing::debug!(from = self.connection.state(), reason, "a connection ends");
        self.drop_session().await;
        // Those that drain see the cut and end by themselves; the others are of no use any more.
        if let Some(under_way) = self.under_way.take() {
            under_way.abort();
        }
        self.leave_sites().await;
        while self.tasks.join_next().await.is_some() {}
        self.line.metrics.forget(&self.line.name);
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => future::pending().await,
    }
}

/// Connects, and asks what is asked once of each connection.
async fn attempt(
    common: Arc<ConnectionContext>,
    wanted: DesiredConnection,
    number: u64,
) -> ConnectionTaskResult {
    let connect = async {
        let settings = &common.settings;
        let link =
            RemoteClient::new(&wanted.config, &settings.link).map_err(|_| ConnectionFault::BadKubeconfig)?;
        link.set_pace(wanted.rate_limit.qps, wanted.rate_limit.burst);
        let version = greet(&link, &settings.own_namespaces).await?;
        Ok((version, Arc::new(ConnectionSession::new(link, &wanted))))
    };
    let mut connect = Box::pin(connect);
    // Never closed. Held for the handshake of a server that answers, and not for one that does not.
    let started = common.starts.acquire().await;
    tokio::select! {
        outcome = &mut connect => return ConnectionTaskResult::Attempt(number, outcome),
        () = sleep(START) => {}
    }
    drop(started);
    ConnectionTaskResult::Attempt(number, connect.await)
}
