//! Why the hub does not run, or no longer.

use crate::api::names::HubIdError;
use crate::kubernetes::seal_key::SealKeyError;
use crate::plan::lease::LeaseExit;

/// Why the hub does not run, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Neither in-cluster configuration nor a kubeconfig of its own.
    #[error("no configuration of the hub's cluster: run in a pod, or set KUBECONFIG")]
    NoCluster,
    /// Variables that would change the hub's identity behind its back.
    #[error("{0} is set; the hub does not run under a debugging identity")]
    DebugIdentity(&'static str),
    /// The kube-system namespace cannot be read.
    #[error("the namespace kube-system cannot be read; the hub needs get on it for its id")]
    NoClusterId,
    /// The hub id cannot be made.
    #[error(transparent)]
    HubId(#[from] HubIdError),
    /// There is nothing to seal statuses with.
    #[error(transparent)]
    SealKey(#[from] SealKeyError),
    /// Names of clusters cannot be resolved.
    #[error("/etc/resolv.conf cannot be read; names of clusters are resolved by it")]
    NoResolver,
    /// The admin address cannot be bound.
    #[error("the admin address cannot be bound")]
    Bind(#[source] std::io::Error),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    /// The API server does not answer a waiting person.
    #[error("the API server did not answer in time")]
    NoAnswer,
    /// Something is as it must not be.
    #[error(
        "{0} of the checks before the start refused; the lines before this one say which, and what to do"
    )]
    Preflight(usize),
    /// The hub does not hold its Lease, or no longer.
    #[error(transparent)]
    Lease(LeaseExit),
    /// A loop that must run for ever ended.
    #[error("a loop of the hub ended")]
    LoopEnded,
}
