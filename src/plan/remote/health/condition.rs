//! What is known of a connection.

use k8s_openapi::jiff::Timestamp;

use super::fault::ConnectionFault;
use super::version::KubernetesVersion;
use crate::api::conditions::Reason;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionPhase {
    /// It never stood, and nothing failed yet.
    Connecting,
    /// It stands.
    Up,
    /// It does not stand.
    Lost,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionHealth {
    /// Where it stands.
    pub phase: ConnectionPhase,
    /// Why it does not stand; `None` while it does.
    pub fault: Option<ConnectionFault>,
    /// When it was lost first, or made; `None` while it stands.
    pub since: Option<Timestamp>,
    /// Version of Kubernetes there, as last told.
    pub version: Option<KubernetesVersion>,
    /// When the cluster answered last.
    pub last_probe: Option<Timestamp>,
    /// Attempts since the loss; 0 while the connection stands.
    pub attempts: u32,
    /// When the next attempt is made; `None` while one is under way or the connection stands.
    pub next_attempt: Option<Timestamp>,
    /// The cluster refused the credential: read the Secret once more, and bind what it holds, changed or not.
    pub reread: bool,
}

impl ConnectionHealth {
    /// The reason of the condition `Connected`.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.fault.map_or(Reason::Connected, ConnectionFault::reason)
    }
}
