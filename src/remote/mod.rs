//! Clusters that are not the hub's: one connection for each kubeconfig, shared by everybody who names it.
//!
//! Only the cluster controller makes and removes connections; everybody else looks them up, which never waits.

mod body;
mod connect;
pub mod handle;
mod head;
pub mod jobs;
pub mod kubeconfig;
mod lanes;
pub mod limits;
mod lines;
pub mod link;
mod pace;
pub mod registry;
pub mod resolve;
pub mod room;
mod settings;
mod socket;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::kubernetes::apply::Wire;
use crate::plan::remote::site::Site;

pub use tls::LinkError;

/// A kubeconfig by where it came from: another Secret of the same name is another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterKey {
    /// UID of the Secret.
    pub secret_uid: Box<str>,
    /// Key in it.
    pub key: Box<str>,
}

/// Where the ways to sites are looked up.
pub trait Seats: fmt::Debug + Send + Sync {
    /// The way to a site, if it is connected. Never waits, and never asks the network.
    fn seat(&self, site: &Site) -> Option<Arc<dyn Wire>>;

    /// The same for one pass over a task, with a turn and the calls that it may make, as the pace of the cluster allows; what
    /// is not used is given back with the way. Never waits either.
    ///
    /// # Errors
    /// When it is worth asking again, where the cluster may not be asked now.
    fn admit(&self, site: &Site) -> Result<Option<Arc<dyn Wire>>, Instant>;
}

/// What the engine asks the cluster controller for.
#[derive(Clone, Debug)]
pub enum Want {
    /// Tasks run there, or want to, or left something there: connect, and stay so.
    Open(Arc<Site>),
    /// Nothing of this hub's is there any more.
    Close(Arc<Site>),
}
