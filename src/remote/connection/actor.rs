//! The task of one connection.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::checks::{ConnectionCheckError, check_cluster};
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
use crate::remote::client::{RemoteClient, RemoteClientSettings, until};
use crate::remote::memory_budget::MemoryBudget;

/// Messages of site watches that may wait in the channel; a watch that finds it full waits.
const WATCH_MESSAGES: usize = 16;
/// Longest time for which an attempt to connect keeps others from starting.
const START: Duration = Duration::from_millis(250);

/// The result of a task that the connection spawned.
pub(super) enum ConnectionTaskResult {
    Attempt(
        u64,
        Result<(KubernetesVersion, Arc<ConnectionSession>), ConnectionCheckError>,
    ),
    Probe(u64, Result<(), ConnectionCheckError>),
    /// All earlier holders of the site's announce permit are done.
    Permitted(Arc<Site>),
    Drained,
}

/// One connection, from its first kubeconfig until it is cut.
pub(in crate::remote) struct ConnectionActor {
    pub(super) key: ConnectionKey,
    pub(super) common: Arc<ConnectionContext>,
    pub(super) shared: Arc<SharedConnection>,
    pub(super) desired: watch::Receiver<DesiredConnection>,
    /// The desired state that was applied last.
    pub(super) current: DesiredConnection,
    pub(super) connection: ConnectionStateMachine,
    pub(super) session: Option<Arc<ConnectionSession>>,
    pub(super) site_watches: HashMap<Arc<Site>, SiteWatch>,
    /// Whether each site of this connection has synced or failed once.
    pub(super) is_settled: bool,
    pub(super) report: ReportBuffer,
    /// The last failed call among those that decide the connection's state.
    pub(super) failure: Option<CallError>,
    pub(super) seed: u64,
    pub(super) watch_messages: mpsc::Sender<SiteWatchMessage>,
    pub(super) tasks: JoinSet<ConnectionTaskResult>,
    inbox: mpsc::Receiver<SiteWatchMessage>,
    /// The attempt or the probe that is in flight; `number` is its number.
    under_way: Option<AbortHandle>,
    number: u64,
    has_connected: bool,
    /// One for all its sessions.
    memory_budget: MemoryBudget,
}

impl ConnectionActor {
    pub(in crate::remote) fn new(
        key: ConnectionKey,
        common: Arc<ConnectionContext>,
        shared: Arc<SharedConnection>,
        desired: watch::Receiver<DesiredConnection>,
    ) -> Self {
        let seed = RandomState::new().hash_one(&key);
        let (watch_messages, inbox) = mpsc::channel(WATCH_MESSAGES);
        let mut current = desired.borrow().clone();
        // The first comparison with the desired state must find every site new.
        current.sites.clear();
        Self {
            memory_budget: common.settings.client.memory_budget.of_connection(),
            connection: ConnectionStateMachine::new(common.settings.timing, seed, now()),
            key,
            common,
            shared,
            desired,
            current,
            session: None,
            site_watches: HashMap::new(),
            is_settled: false,
            report: ReportBuffer::default(),
            failure: None,
            seed,
            watch_messages,
            tasks: JoinSet::new(),
            inbox,
            under_way: None,
            number: 0,
            has_connected: false,
        }
    }

    /// Runs until the connection is cut.
    pub(in crate::remote) async fn run(mut self) {
        self.desired.mark_changed();
        let cut = self.shared.cancel.clone();
        while !cut.is_cancelled() {
            self.start_due_work();
            if !self.connection.is_up() {
                self.drop_session().await;
            }
            cut.run_until_cancelled(self.announce_changes()).await;
            cut.run_until_cancelled(self.handle_next_input()).await;
        }
        self.end().await;
    }

    /// Starts the attempt or the probe that is due, and lets site watches see the time.
    fn start_due_work(&mut self) {
        let now = now();
        for site_watch in self.site_watches.values_mut() {
            if site_watch.is_broken() {
                site_watch
                    .watching
                    .ended(ConnectionFault::Unusable, &self.common.settings.timing, now);
            }
            site_watch.watching.wake(now);
        }
        let from = self.connection.state();
        let action = self.connection.wake(now);
        let to = self.connection.state();
        if from != to {
            tracing::debug!(action = ?action, from, to, "a timer of a connection fired");
        }
        match action {
            Some(ConnectionAction::Connect) => self.connect(),
            Some(ConnectionAction::Probe) => self.probe(),
            None => {}
        }
    }

    /// Waits for the next input or timer, and handles it.
    async fn handle_next_input(&mut self) {
        let due = self.due();
        let (shared, reports) = (Arc::clone(&self.shared), self.common.reports.clone());
        tokio::select! {
            _ = self.desired.changed() => self.apply_desired().await,
            Some(ended) = self.tasks.join_next() => match ended {
                Ok(result) => self.handle_task_result(result).await,
                Err(error) => self.handle_task_failure(error.is_panic()),
            },
            Some(message) = self.inbox.recv() => self.handle_watch_message(&message),
            () = shared.unanswered_changed.notified() => {
                let calls = shared.unanswered();
                self.handle(ConnectionEvent::Unanswered(calls), (calls > 0).then_some(CallError::Timeout));
            }
            () = shared.suspected_loss.notified() => self.handle(ConnectionEvent::SuspectedLoss, None),
            Ok(permit) = reports.reserve(), if self.report.has_pending() => self.report.send(permit),
            () = until(due.map(Into::into)) => {}
        }
    }

    /// Handles a task that ended without a result; an aborted one changes nothing.
    fn handle_task_failure(&mut self, is_panic: bool) {
        if is_panic {
            self.handle(ConnectionEvent::Failed(ConnectionFault::Unusable), None);
            self.handle(ConnectionEvent::Missed(ConnectionFault::Unusable), None);
        }
    }

    fn due(&self) -> Option<Instant> {
        let sites = self
            .site_watches
            .values()
            .filter_map(|site_watch| site_watch.watching.due());
        sites.chain(self.connection.due(now())).min()
    }

    /// Compares the desired state with the one applied last, and acts on the difference.
    async fn apply_desired(&mut self) {
        let wanted = self.desired.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.current, wanted);
        if self.current.applied != before.applied {
            self.handle_kubeconfig(&before);
        }
        if self.current.rate_limit != before.rate_limit
            && let Some(session) = &self.session
        {
            session
                .client
                .set_rate_limit(self.current.rate_limit.qps, self.current.rate_limit.burst);
        }
        self.update_sites().await;
    }

    /// Handles a kubeconfig that was applied: another one, or the same one again.
    fn handle_kubeconfig(&mut self, before: &DesiredConnection) {
        if self.current.fingerprint == before.fingerprint {
            self.handle(ConnectionEvent::KubeconfigUnchanged, None);
            return;
        }
        let is_rotation = self.current.fingerprint_without_token == before.fingerprint_without_token;
        if !is_rotation || !self.connection.is_probing() {
            self.number += 1;
            if let Some(under_way) = self.under_way.take() {
                under_way.abort();
            }
        }
        self.shared.rotate_token(&self.current);
        let event = if is_rotation {
            ConnectionEvent::TokenRotated
        } else {
            ConnectionEvent::KubeconfigReplaced
        };
        self.handle(event, None);
    }

    fn connect(&mut self) {
        self.number += 1;
        let attempts = &self.shared.metrics.attempts;
        attempts.get_or_create(&label(&self.shared.name)).inc();
        let attempt = attempt(
            Arc::clone(&self.common),
            self.memory_budget.clone(),
            self.current.clone(),
            self.number,
        );
        self.under_way = Some(self.tasks.spawn(attempt));
    }

    fn probe(&mut self) {
        self.number += 1;
        let number = self.number;
        let client = self.session.as_ref().map(|session| session.client.clone());
        self.under_way = Some(self.tasks.spawn(async move {
            let probed = match client {
                Some(client) => client
                    .probe()
                    .await
                    .map(|_| ())
                    .map_err(ConnectionCheckError::from),
                None => Err(ConnectionFault::Unreachable.into()),
            };
            ConnectionTaskResult::Probe(number, probed)
        }));
    }

    async fn handle_task_result(&mut self, result: ConnectionTaskResult) {
        match result {
            ConnectionTaskResult::Attempt(number, attempt) if number == self.number => {
                self.under_way = None;
                match attempt {
                    Ok((version, session)) => self.handle_connected(version, session).await,
                    Err(failure) => self.handle(ConnectionEvent::Failed(failure.fault), failure.call),
                }
            }
            ConnectionTaskResult::Probe(number, probed) if number == self.number => {
                self.under_way = None;
                self.handle_probe_result(probed);
            }
            ConnectionTaskResult::Permitted(site) => self.start_permitted_site(&site),
            ConnectionTaskResult::Attempt(..)
            | ConnectionTaskResult::Probe(..)
            | ConnectionTaskResult::Drained => {}
        }
    }

    fn handle_probe_result(&mut self, probed: Result<(), ConnectionCheckError>) {
        let call = probed.err().and_then(|failure| failure.call);
        let (result, event) = match probed.map_err(|failure| failure.fault) {
            Ok(()) => ("answered", ConnectionEvent::Answered),
            Err(fault @ ConnectionFault::Unauthorized) => ("unauthorized", ConnectionEvent::Missed(fault)),
            Err(fault @ ConnectionFault::Forbidden) => ("forbidden", ConnectionEvent::Missed(fault)),
            Err(fault) => ("missed", ConnectionEvent::Missed(fault)),
        };
        self.shared.metrics.probe(&self.shared.name, result);
        self.handle(event, call);
    }

    /// Passes an event to the state machine and logs the transition; `call` is the call that failed, if one did.
    pub(super) fn handle(&mut self, event: ConnectionEvent, call: Option<CallError>) {
        let from = self.connection.state();
        self.connection.handle(event, now());
        let to = self.connection.state();
        let (kind, stage) = (call.map(CallError::kind), call.and_then(CallError::stage));
        match event {
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
        tracing::debug!(event = ?event, from, to, kind, stage, "a connection handled an event");
    }

    /// Replaces the old session, whose calls go on for a while.
    async fn handle_connected(&mut self, version: KubernetesVersion, session: Arc<ConnectionSession>) {
        self.handle(ConnectionEvent::Connected(version), None);
        // The rate limit may have changed while the attempt was in flight.
        session
            .client
            .set_rate_limit(self.current.rate_limit.qps, self.current.rate_limit.burst);
        self.session = Some(Arc::clone(&session));
        let old = self.shared.swap(Some(session));
        if self.has_connected {
            let reconnects = &self.shared.metrics.reconnects;
            reconnects.get_or_create(&label(&self.shared.name)).inc();
        }
        self.has_connected = true;
        self.start_sites().await;
        if let Some(old) = old {
            let cut = self.shared.cancel.clone();
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
        self.shared.swap(None);
        session.client.close();
        self.stop_site_watches().await;
    }

    /// Ends all tasks, and announces each site as down where the desired state has a reason.
    async fn end(mut self) {
        let reason = self.desired.borrow().end.map(Reason::as_str);
        tracing::debug!(from = self.connection.state(), reason, "a connection ends");
        self.drop_session().await;
        // Draining sessions see the cut and end by themselves; an attempt or a probe does not.
        if let Some(under_way) = self.under_way.take() {
            under_way.abort();
        }
        self.close_sites().await;
        while self.tasks.join_next().await.is_some() {}
        self.shared.metrics.forget(&self.shared.name);
    }
}

/// Connects, and makes the checks that each new connection needs once.
async fn attempt(
    common: Arc<ConnectionContext>,
    memory_budget: MemoryBudget,
    wanted: DesiredConnection,
    number: u64,
) -> ConnectionTaskResult {
    let connect = async {
        let settings = &common.settings;
        let of_client = RemoteClientSettings {
            memory_budget,
            ..settings.client.clone()
        };
        let client =
            RemoteClient::new(&wanted.config, &of_client).map_err(|_| ConnectionFault::BadKubeconfig)?;
        client.set_rate_limit(wanted.rate_limit.qps, wanted.rate_limit.burst);
        let version = check_cluster(&client, &settings.own_namespaces).await?;
        Ok((version, Arc::new(ConnectionSession::new(client, &wanted))))
    };
    let mut connect = Box::pin(connect);
    // The semaphore is never closed. A server that does not answer in time must not hold up other attempts.
    let started = common.starts.acquire().await;
    tokio::select! {
        outcome = &mut connect => return ConnectionTaskResult::Attempt(number, outcome),
        () = sleep(START) => {}
    }
    drop(started);
    ConnectionTaskResult::Attempt(number, connect.await)
}
