//! Clusters that are not the hub's: one connection for each kubeconfig, shared by everybody who names it.
//!
//! Only the cluster controller makes and removes connections; everybody else looks them up, which never waits.

pub mod handle;
pub mod registry;

use std::sync::Arc;

use crate::plan::site::Site;

/// A kubeconfig by where it came from: another Secret of the same name is another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterKey {
    /// UID of the Secret.
    pub secret_uid: Box<str>,
    /// Key in it.
    pub key: Box<str>,
}

/// What the engine asks the cluster controller for.
#[derive(Clone, Debug)]
pub enum Want {
    /// Tasks run there, or want to, or left something there: connect, and stay so.
    Open(Arc<Site>),
    /// Nothing of this hub's is there any more.
    Close(Arc<Site>),
}
