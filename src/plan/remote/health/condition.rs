//! Health of a connection.

use k8s_openapi::jiff::Timestamp;

use super::fault::ConnectionFault;
use super::version::KubernetesVersion;
use crate::api::conditions::Reason;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionPhase {
    /// It was never up, and no attempt has failed yet.
    Connecting,
    /// It is up.
    Up,
    /// It is down.
    Lost,
}

/// Health of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionHealth {
    /// Its phase.
    pub phase: ConnectionPhase,
    /// Why it is down; `None` while it is up.
    pub fault: Option<ConnectionFault>,
    /// Time since which the cluster answers probes and no call, over its connections; `None` where it is not lost for that.
    pub unanswered_since: Option<Timestamp>,
    /// Last known version of Kubernetes there.
    pub version: Option<KubernetesVersion>,
    /// When the cluster answered last.
    pub last_probe: Option<Timestamp>,
    /// Attempts since the loss; 0 while the connection is up.
    pub attempts: u32,
    /// When the next attempt is made; `None` while one is in flight or the connection is up.
    pub next_attempt: Option<Timestamp>,
    /// The cluster refused the credential: the cluster controller reads the Secret again, and applies the kubeconfig, changed or not.
    pub wants_reread: bool,
}

impl ConnectionHealth {
    /// Reason of the condition `Connected`.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.fault.map_or(Reason::Connected, ConnectionFault::reason)
    }
}
