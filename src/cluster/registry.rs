//! All connections to other clusters, by the kubeconfig that leads to each, and the way to them by site.
//!
//! Only the cluster controller binds, opens, closes and unbinds; none of that waits. Whoever works looks up a [`Seat`],
//! which never waits and never touches the network.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::api::conditions::Reason;
use crate::apply::{CallError, Wire};
use crate::kubeconfig::RemoteConfig;
use crate::metrics::Metrics;
use crate::names::HubId;
use crate::plan::health::Timing;
use crate::plan::site::{Site, SiteState};
use crate::watch::Input;

use super::ClusterKey;
use super::handle::Report;

/// How many requests a cluster gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// A second, in the long run.
    pub qps: u32,
    /// At once after a pause.
    pub burst: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { qps: 20, burst: 30 }
    }
}

/// UID of one of the hub's own namespaces by its name; `None` for one that does not exist, or is not known.
pub type OwnNamespaces = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What all connections have in common.
#[derive(Clone)]
pub struct RegistrySettings {
    /// Whose Jobs are watched.
    pub hub_id: HubId,
    /// The hub's own namespaces; a cluster that has one of them is the hub's own.
    pub own_namespaces: OwnNamespaces,
    /// How long things take.
    pub timing: Timing,
}

impl fmt::Debug for RegistrySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrySettings")
            .field("hub_id", &self.hub_id)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// All connections. Cheap to clone; clones are one.
#[derive(Clone, Debug)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: RegistrySettings,
    metrics: Metrics,
    inputs: mpsc::Sender<Input>,
    reports: mpsc::Sender<Report>,
}

impl Registry {
    /// One without connections. What is seen goes into `inputs`, what became of connections into `reports`.
    #[must_use]
    pub fn new(
        settings: RegistrySettings,
        metrics: Metrics,
        inputs: mpsc::Sender<Input>,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        Self(Arc::new(Inner {
            settings,
            metrics,
            inputs,
            reports,
        }))
    }

    /// Connects with a kubeconfig, or goes on with another state of it. The same tuple as before changes nothing; another
    /// token alone is carried by the next request; anything else is a new connection, which takes the old one's place when
    /// it stands. The answer to [`crate::plan::health::Health::reread`] is to bind what was read, changed or not.
    ///
    /// `name` labels its metrics: bound connections have names of their own.
    pub fn bind(&self, key: ClusterKey, name: &str, config: RemoteConfig, pace: Pace) {
        _ = (key, name, config, pace);
    }

    /// Watches a site through a bound connection; one that is open through another is closed there first. From then on
    /// the engine is told how the site stands, at first that it is not connected.
    pub fn open(&self, key: &ClusterKey, site: Arc<Site>) {
        _ = (key, site);
    }

    /// Stops to watch a site, and tells the engine nothing more of it.
    pub fn close(&self, site: &Site) {
        _ = site;
    }

    /// Closes a site, if it is open, and tells the engine this of it, after everything else that was told of it.
    pub fn refuse(&self, site: Arc<Site>, last: SiteState) {
        _ = (site, last);
    }

    /// Ends a connection at once, with all that is under way on it. Its sites are down for this reason, and closed.
    pub fn unbind(&self, key: &ClusterKey, reason: Reason) {
        _ = (key, reason);
    }

    /// The way to a site that is up; `None` to any other. Never waits.
    #[must_use]
    pub fn seat(&self, site: &Site) -> Option<Seat> {
        _ = site;
        None
    }

    /// Connections that are bound, standing or not.
    #[must_use]
    pub fn bound(&self) -> usize {
        0
    }

    /// Ends all connections, and waits until nothing of them runs any more. The engine is told nothing of it.
    pub async fn shutdown(&self) {}
}

/// The way to one site: carries requests as its user, on whatever connection leads there at that moment.
#[derive(Clone)]
pub struct Seat(());

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seat")
    }
}

impl Wire for Seat {
    fn send(&self, request: http::Request<Vec<u8>>) -> BoxFuture<'_, Result<Bytes, CallError>> {
        _ = request;
        Box::pin(async { Err(CallError::Transport) })
    }
}
