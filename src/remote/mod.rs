//! Clusters that are not the hub's: one connection for each kubeconfig, shared by everybody who names it.
//!
//! Only the cluster controller makes and removes connections; everybody else looks them up, which never waits.

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
mod line_decoder;
pub mod memory_budget;
mod rate_limiter;
pub mod resolve;
mod settings;
mod socket;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::kubernetes::apply::ApiTransport;
use crate::plan::remote::site::Site;

pub use tls::RemoteClientError;

/// A kubeconfig by where it came from: another Secret of the same name is another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    /// UID of the Secret.
    pub secret_uid: Box<str>,
    /// Key in it.
    pub key: Box<str>,
}

/// Where the ways to sites are looked up.
pub trait SiteClients: fmt::Debug + Send + Sync {
    /// The way to a site, if it is connected. Never waits, and never asks the network.
    fn client(&self, site: &Site) -> Option<Arc<dyn ApiTransport>>;

    /// The same for one pass over a task, with a turn and the calls that it may make, as the pace of the cluster allows; what
    /// is not used is given back with the way. Never waits either.
    ///
    /// # Errors
    /// When it is worth asking again, where the cluster may not be asked now.
    fn reserve(&self, site: &Site) -> Result<Option<Arc<dyn ApiTransport>>, Instant>;
}

/// What the engine asks the cluster controller for.
#[derive(Clone, Debug)]
pub enum SiteRequest {
    /// Tasks run there, or want to, or left something there: connect, and stay so.
    Open(Arc<Site>),
    /// Nothing of this hub's is there any more.
    Close(Arc<Site>),
}
