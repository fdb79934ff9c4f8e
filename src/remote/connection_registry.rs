//! All connections to other clusters, by the kubeconfig that leads to each, and the way to them by site.
//!
//! Only the cluster controller binds, opens, closes and unbinds; none of that waits, or touches the network. Whoever works
//! looks up a [`SiteClient`], which never waits either. Each connection is a task of its own; a lock is held here only to say what
//! is wanted of it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use dashmap::DashMap;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::api::conditions::Reason;
use crate::base::metrics::Metrics;
use crate::kubernetes::apply::ApiTransport;
use crate::kubernetes::watch::{EngineEvent, ReceivedEvent};
use crate::plan::remote::site::{Site, SiteState};
use crate::remote::kubeconfig::RemoteConfig;

use super::connection::{
    AnnouncePermit, Announcers, ConnectionActor, ConnectionContext, ConnectionReport, DesiredConnection,
    SharedConnection,
};
use super::{ConnectionKey, SiteClients};

pub use super::connection::SiteClient;
pub use super::settings::{ConnectionSettings, HubNamespaceLookup, RateLimit};

/// Attempts to connect that begin at a time: about as many handshakes as a core does in a quarter of a second.
const STARTS: usize = 64;

/// All connections. Cheap to clone; clones are one, and all ends with the last of them.
#[derive(Clone, Debug)]
pub struct ConnectionRegistry(Arc<ConnectionRegistryInner>);

#[derive(Debug)]
struct ConnectionRegistryInner {
    /// First, so that every task ends before what it listens to.
    _end: DropGuard,
    end: CancellationToken,
    common: Arc<ConnectionContext>,
    tasks: TaskTracker,
    /// Held for moments, never while anything is awaited.
    control: Mutex<ConnectionTable>,
}

/// Who leads where.
#[derive(Debug, Default)]
struct ConnectionTable {
    handles: HashMap<ConnectionKey, ActorHandle>,
    places: HashMap<Arc<Site>, SiteBinding>,
    /// Sites that nobody holds any more, and somebody may still speak of.
    leaving: Vec<Arc<Site>>,
}

/// The way to the task of one connection.
struct ActorHandle {
    line: Arc<SharedConnection>,
    desired: watch::Sender<DesiredConnection>,
}

impl fmt::Debug for ActorHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

/// Which connection leads to a site.
#[derive(Debug)]
struct SiteBinding {
    key: Option<ConnectionKey>,
    speakers: Announcers,
}

impl ConnectionRegistry {
    /// One without connections. What is seen goes into `inputs`, what became of connections into `reports`.
    #[must_use]
    pub fn new(
        settings: ConnectionSettings,
        metrics: Metrics,
        inputs: mpsc::Sender<ReceivedEvent>,
        reports: mpsc::Sender<ConnectionReport>,
    ) -> Self {
        let end = CancellationToken::new();
        let common = ConnectionContext {
            settings,
            metrics,
            inputs,
            reports,
            site_clients: DashMap::new(),
            starts: Semaphore::new(STARTS),
        };
        Self(Arc::new(ConnectionRegistryInner {
            _end: end.clone().drop_guard(),
            end,
            common: Arc::new(common),
            tasks: TaskTracker::new(),
            control: Mutex::default(),
        }))
    }

    /// Connects with a kubeconfig, or goes on with another state of it. The same tuple as before changes nothing; another
    /// token alone is carried by the next request; anything else is a new connection, which takes the old one's place when
    /// it stands, and whose failure ends the old one too. The answer to [`crate::plan::remote::health::ConnectionHealth::reread`] is to bind
    /// what was read, changed or not.
    ///
    /// `name` labels its metrics, from the first bind on: connections have names of their own. Needs a tokio runtime.
    pub fn bind(&self, key: ConnectionKey, name: &str, config: RemoteConfig, pace: RateLimit) {
        if self.0.end.is_cancelled() {
            return;
        }
        let mut control = self.control();
        if let Some(handle) = control.handles.get(&key) {
            let next = DesiredConnection::new(config, pace);
            handle.line.renew(&next);
            handle.desired.send_modify(|desired| desired.rebind(next));
            return;
        }
        let clusters = self.0.common.metrics.clusters.clone();
        let line = Arc::new(SharedConnection::new(name, clusters, self.0.end.child_token()));
        let (desired, wanted) = watch::channel(DesiredConnection::new(config, pace));
        let common = Arc::clone(&self.0.common);
        let actor = ConnectionActor::new(key.clone(), common, Arc::clone(&line), wanted);
        let span = tracing::debug_span!("connection", cluster = name);
        self.0.tasks.spawn(actor.run().instrument(span));
        control.handles.insert(key, ActorHandle { line, desired });
    }

    /// Watches a site through a bound connection; one that is open through another is closed there first. From then on
    /// the engine is told how the site stands, at first that it is not connected. Through a connection that is not bound
    /// nothing is opened.
    pub fn open(&self, key: &ConnectionKey, site: Arc<Site>) {
        let mut control = self.control();
        if !control.handles.contains_key(key) {
            return;
        }
        let held = control.places.get(&site).and_then(|place| place.key.as_ref());
        if held == Some(key) {
            return;
        }
        control.leave(&site, &self.0.common);
        let Some(handle) = control.handles.get(key) else {
            return;
        };
        let cut = handle.line.cancel.clone();
        let turn = control.next_permit(&site, Some(key.clone()), &cut);
        if let Some(handle) = control.handles.get(key) {
            handle.desired.send_modify(|desired| {
                desired.sites.insert(site, Arc::new(turn));
            });
        }
    }

    /// Stops to watch a site, and tells the engine nothing more of it.
    pub fn close(&self, site: &Site) {
        self.control().leave(site, &self.0.common);
    }

    /// Closes a site, if it is open, and tells the engine this of it, after everything else that was told of it. Needs a
    /// tokio runtime.
    pub fn refuse(&self, site: Arc<Site>, last: SiteState) {
        let mut control = self.control();
        control.leave(&site, &self.0.common);
        let turn = control.next_permit(&site, None, &self.0.end);
        control.leaving.push(Arc::clone(&site));
        let (inputs, end) = (self.0.common.inputs.clone(), self.0.end.clone());
        self.0.tasks.spawn(async move {
            let told = async {
                turn.before.done().await;
                // Without an engine there is nobody to tell.
                _ = inputs.send(EngineEvent::Site(site, last).into()).await;
            };
            end.run_until_cancelled(told).await;
        });
    }

    /// Ends a connection at once, with all that is under way on it. Its sites are down for this reason, and closed.
    pub fn unbind(&self, key: &ConnectionKey, reason: Reason) {
        let mut control = self.control();
        let Some(handle) = control.handles.remove(key) else {
            return;
        };
        handle.desired.send_modify(|desired| desired.end = Some(reason));
        handle.line.cancel.cancel();
        let sites: Vec<_> = handle.desired.borrow().sites.keys().map(Arc::clone).collect();
        for site in sites {
            self.0
                .common
                .site_clients
                .remove_if(&site, |_, seat| !seat.is_valid());
            if let Some(place) = control.places.get_mut(&site) {
                place.key = None;
                control.leaving.push(site);
            }
        }
        control.forget();
    }

    /// The way to a site that is up; `None` to any other. Never waits.
    #[must_use]
    pub fn client(&self, site: &Site) -> Option<SiteClient> {
        let seat = self.0.common.site_clients.get(site)?.value().clone();
        seat.is_valid().then_some(seat)
    }

    /// Connections that are bound, standing or not.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.control().handles.len()
    }

    /// Ends all connections, and waits until nothing of them runs any more. The engine is told nothing of it.
    pub async fn shutdown(&self) {
        self.0.end.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn control(&self) -> MutexGuard<'_, ConnectionTable> {
        self.0.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SiteClients for ConnectionRegistry {
    fn client(&self, site: &Site) -> Option<Arc<dyn ApiTransport>> {
        let seat = Self::client(self, site)?;
        Some(Arc::new(seat))
    }

    fn reserve(&self, site: &Site) -> Result<Option<Arc<dyn ApiTransport>>, Instant> {
        match Self::client(self, site).map(SiteClient::paid) {
            None => Ok(None),
            Some(Ok(seat)) => Ok(Some(Arc::new(seat))),
            Some(Err(pause)) => Err(Instant::now() + pause),
        }
    }
}

impl ConnectionTable {
    /// The next turn of a site, for this connection.
    fn next_permit(
        &mut self,
        site: &Arc<Site>,
        key: Option<ConnectionKey>,
        cut: &CancellationToken,
    ) -> AnnouncePermit {
        let before = self.places.remove(site).map(|place| place.speakers);
        let (turn, speakers) = AnnouncePermit::after(before.unwrap_or_default(), cut);
        self.places
            .insert(Arc::clone(site), SiteBinding { key, speakers });
        turn
    }

    /// Takes a site from its connection, if it has one.
    fn leave(&mut self, site: &Site, common: &ConnectionContext) {
        if let Some((site, place)) = self.places.get_key_value(site)
            && let Some(key) = place.key.clone()
        {
            let site = Arc::clone(site);
            if let Some(handle) = self.handles.get(&key) {
                handle.desired.send_modify(|desired| {
                    if let Some(turn) = desired.sites.remove(&site) {
                        turn.closed.cancel();
                    }
                });
            }
            common.site_clients.remove_if(&site, |_, seat| !seat.is_valid());
            if let Some(place) = self.places.get_mut(&site) {
                place.key = None;
            }
            self.leaving.push(site);
        }
        self.forget();
    }

    /// Forgets the sites of which nobody speaks any more.
    fn forget(&mut self) {
        let places = &mut self.places;
        self.leaving.retain(|site| {
            let Some(place) = places.get(site) else {
                return false;
            };
            if place.key.is_some() {
                return false;
            }
            if place.speakers.are_done() {
                places.remove(site);
                return false;
            }
            true
        });
    }
}
