//! All connections to other clusters, by kubeconfig, and the clients of their sites.
//!
//! Only the cluster controller applies kubeconfigs, opens and closes sites, and ends connections; none of that waits, or uses the network. A reconcile looks up a
//! [`SiteClient`], which never waits either. Each connection is a task of its own; the lock here is held only to change its
//! desired state.

use std::collections::HashMap;
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
use crate::kubernetes::watch::{ReceivedEvent, TaskWatchEvent};
use crate::plan::remote::site::{Site, SiteState};
use crate::remote::kubeconfig::RemoteConfig;

use super::connection::{
    AnnouncePermit, Announcers, ConnectionActor, ConnectionContext, ConnectionReport, DesiredConnection,
    SharedConnection,
};
use super::{ConnectionKey, SiteClients};

pub use super::connection::SiteClient;
pub use super::settings::{ConnectionSettings, HubNamespaceLookup, RateLimit};

/// Attempts to connect that start at a time: about as many handshakes as a core does in a quarter of a second.
const STARTS: usize = 64;
/// Closed sites that are not worth a look at which of them can be forgotten.
const FEW_CLOSING: usize = 64;

/// All connections. Clones share them, and the connections end with the last clone.
#[derive(Clone)]
pub struct ConnectionRegistry(Arc<ConnectionRegistryInner>);

struct ConnectionRegistryInner {
    /// The first field, so that it is dropped before the channels that the tasks use.
    _end: DropGuard,
    end: CancellationToken,
    common: Arc<ConnectionContext>,
    tasks: TaskTracker,
    /// Never held across an await.
    control: Mutex<ConnectionTable>,
}

/// Which connections exist, and which site is bound to which.
#[derive(Default)]
struct ConnectionTable {
    handles: HashMap<ConnectionKey, ActorHandle>,
    bindings: HashMap<Arc<Site>, SiteBinding>,
    /// Sites that no connection holds any more, but whose state may still be announced.
    closing: Vec<Arc<Site>>,
    /// How many of them there are when those whose announcers are done are forgotten next.
    forget_at: usize,
}

/// Handle of the task of one connection.
struct ActorHandle {
    shared: Arc<SharedConnection>,
    desired: watch::Sender<DesiredConnection>,
}

/// The connection that a site is bound to, and its announcers.
struct SiteBinding {
    key: Option<ConnectionKey>,
    announcers: Announcers,
}

impl ConnectionRegistry {
    /// A registry without connections. Watch events go into `inputs`, states of connections into `reports`.
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

    /// Connects with a kubeconfig, or applies it to the connection that is there. The same kubeconfig changes nothing; a rotated
    /// token is sent with the next request; any other change opens a new connection, which replaces the old one when it is up, and
    /// whose failure ends the old one too. After [`crate::plan::remote::health::ConnectionHealth::wants_reread`] the caller applies
    /// what it read, changed or not.
    ///
    /// `name` labels its metrics, from the first kubeconfig on; names must be unique. Needs a tokio runtime.
    pub fn apply_kubeconfig(
        &self,
        key: ConnectionKey,
        name: &str,
        config: RemoteConfig,
        rate_limit: RateLimit,
    ) {
        if self.0.end.is_cancelled() {
            return;
        }
        let mut control = self.control();
        if let Some(handle) = control.handles.get(&key) {
            let next = DesiredConnection::new(config, rate_limit);
            handle.shared.rotate_token(&next);
            handle
                .desired
                .send_modify(|desired| desired.apply_kubeconfig(next));
            return;
        }
        let clusters = self.0.common.metrics.clusters.clone();
        let shared = Arc::new(SharedConnection::new(name, clusters, self.0.end.child_token()));
        let (desired, wanted) = watch::channel(DesiredConnection::new(config, rate_limit));
        let common = Arc::clone(&self.0.common);
        let actor = ConnectionActor::new(key.clone(), common, Arc::clone(&shared), wanted);
        let span = tracing::debug_span!("connection", cluster = name);
        self.0.tasks.spawn(actor.run().instrument(span));
        control.handles.insert(key, ActorHandle { shared, desired });
    }

    /// Watches a site through a connection; a site that is open through another one is closed there first. From then on
    /// the task controller gets the states of the site, the first of which is that it is not connected. Does nothing if there is no
    /// such connection.
    pub fn open(&self, key: &ConnectionKey, site: Arc<Site>) {
        let mut control = self.control();
        if !control.handles.contains_key(key) {
            return;
        }
        let held = control
            .bindings
            .get(&site)
            .and_then(|binding| binding.key.as_ref());
        if held == Some(key) {
            return;
        }
        control.close(&site, &self.0.common);
        let Some(handle) = control.handles.get(key) else {
            return;
        };
        let cut = handle.shared.cancel.clone();
        let permit = control.next_permit(&site, Some(key.clone()), &cut);
        if let Some(handle) = control.handles.get(key) {
            handle.desired.send_modify(|desired| {
                desired.sites.insert(site, Arc::new(permit));
            });
        }
    }

    /// Stops to watch a site, and announces nothing more of it to the task controller.
    pub fn close(&self, site: &Site) {
        self.control().close(site, &self.0.common);
    }

    /// Closes a site, if it is open, and announces `last` to the task controller, after all earlier states of the site. Needs a tokio
    /// runtime.
    pub fn refuse(&self, site: Arc<Site>, last: SiteState) {
        let mut control = self.control();
        control.close(&site, &self.0.common);
        let permit = control.next_permit(&site, None, &self.0.end);
        control.closing.push(Arc::clone(&site));
        let (inputs, end) = (self.0.common.inputs.clone(), self.0.end.clone());
        self.0.tasks.spawn(async move {
            let announce = async {
                permit.before.done().await;
                // The send fails only when the task controller has ended.
                _ = inputs.send(TaskWatchEvent::Site(site, last).into()).await;
            };
            end.run_until_cancelled(announce).await;
        });
    }

    /// Ends a connection at once, with all its calls and watches. Its sites are announced as down for this reason, and closed.
    pub fn end_connection(&self, key: &ConnectionKey, reason: Reason) {
        let mut control = self.control();
        let Some(handle) = control.handles.remove(key) else {
            return;
        };
        handle.desired.send_modify(|desired| desired.end = Some(reason));
        handle.shared.cancel.cancel();
        let sites: Vec<_> = handle.desired.borrow().sites.keys().map(Arc::clone).collect();
        for site in sites {
            self.0.common.remove_ended_client(&site);
            if let Some(binding) = control.bindings.get_mut(&site) {
                binding.key = None;
                control.closing.push(site);
            }
        }
        control.forget();
    }

    /// Client of a site that is up; `None` for any other. Never waits.
    #[must_use]
    pub fn client(&self, site: &Site) -> Option<SiteClient> {
        let client = self.0.common.site_clients.get(site)?.value().clone();
        client.is_valid().then_some(client)
    }

    /// Number of connections, up or not.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.control().handles.len()
    }

    /// Ends all connections, and waits until their tasks have ended. Nothing of that is announced to the task controller.
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
        let client = Self::client(self, site)?;
        Some(Arc::new(client))
    }

    fn reserve(&self, site: &Site) -> Result<Option<Arc<dyn ApiTransport>>, Instant> {
        match Self::client(self, site).map(SiteClient::with_reservation) {
            None => Ok(None),
            Some(Ok(client)) => Ok(Some(Arc::new(client))),
            Some(Err(pause)) => Err(Instant::now() + pause),
        }
    }
}

impl ConnectionTable {
    /// The next announce permit of a site, for this connection.
    fn next_permit(
        &mut self,
        site: &Arc<Site>,
        key: Option<ConnectionKey>,
        cut: &CancellationToken,
    ) -> AnnouncePermit {
        let before = self.bindings.remove(site).map(|binding| binding.announcers);
        let (permit, announcers) = AnnouncePermit::after(before.unwrap_or_default(), cut);
        self.bindings
            .insert(Arc::clone(site), SiteBinding { key, announcers });
        permit
    }

    /// Unbinds a site from its connection, if it has one.
    fn close(&mut self, site: &Site, common: &ConnectionContext) {
        if let Some((site, binding)) = self.bindings.get_key_value(site)
            && let Some(key) = binding.key.clone()
        {
            let site = Arc::clone(site);
            if let Some(handle) = self.handles.get(&key) {
                handle.desired.send_modify(|desired| {
                    if let Some(permit) = desired.sites.remove(&site) {
                        permit.closed.cancel();
                    }
                });
            }
            common.remove_ended_client(&site);
            if let Some(binding) = self.bindings.get_mut(&site) {
                binding.key = None;
            }
            self.closing.push(site);
        }
        self.forget();
    }

    /// Forgets the closed sites whose announcers are all done, once there are twice as many as were left the last time: so each is
    /// looked at twice on average, however many there are.
    fn forget(&mut self) {
        if self.closing.len() < self.forget_at {
            return;
        }
        let bindings = &mut self.bindings;
        self.closing.retain(|site| {
            let Some(binding) = bindings.get(site) else {
                return false;
            };
            if binding.key.is_some() {
                return false;
            }
            if binding.announcers.are_done() {
                bindings.remove(site);
                return false;
            }
            true
        });
        self.forget_at = (2 * self.closing.len()).max(FEW_CLOSING);
    }
}

#[cfg(test)]
pub mod tests;
