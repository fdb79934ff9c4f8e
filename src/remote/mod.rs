//! Connections to other clusters: one for each kubeconfig, shared by all tasks that name it.
//!
//! Only the cluster controller makes and removes connections; other callers look them up, which never waits.

mod body;
pub mod client;
mod connect;
pub mod connection;
mod connection_pool;
pub mod connection_registry;
mod headers;
pub mod jobs;
pub mod kubeconfig;
pub mod limits;
pub mod memory_budget;
mod rate_limiter;
pub mod resolve;
mod settings;
mod socket;
mod tls;

use std::sync::Arc;
use std::time::Instant;

use crate::kubernetes::apply::ApiTransport;
use crate::plan::remote::site::Site;

pub use tls::RemoteClientError;

/// A kubeconfig by its source: another Secret of the same name is another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    /// UID of the Secret.
    pub secret_uid: Box<str>,
    /// Key in it.
    pub key: Box<str>,
}

/// Looks up the clients of sites.
pub trait SiteClients: Send + Sync {
    /// The client of a site, if it is connected. Never waits, and never uses the network.
    fn client(&self, site: &Site) -> Option<Arc<dyn ApiTransport>>;

    /// The same for one reconcile of a task, with a reservation of a slot and of some calls within the cluster's rate limit;
    /// dropping the client gives unused calls back. Never waits either.
    ///
    /// # Errors
    /// The time of the next try, where the rate limit allows no calls now.
    fn reserve(&self, site: &Site) -> Result<Option<Arc<dyn ApiTransport>>, Instant>;
}

/// A request of the task controller to the cluster controller.
#[derive(Clone, Debug)]
pub enum SiteRequest {
    /// Tasks run at the site, wait for it, or left something there: connect, and stay connected.
    Open(Arc<Site>),
    /// No object of this hub is left at the site.
    Close(Arc<Site>),
}
