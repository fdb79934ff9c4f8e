//! What all connections to other clusters have in common, and the pace of each.

use std::fmt;
use std::sync::Arc;

use crate::api::names::HubId;
use crate::plan::remote::health::ConnectionTiming;

use super::client::RemoteClientSettings;

/// How many requests a cluster gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// A second, in the long run.
    pub qps: u32,
    /// At once after a pause.
    pub burst: u32,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { qps: 20, burst: 30 }
    }
}

/// UID of one of the hub's own namespaces by its name; `None` for one that does not exist, or is not known. At the least
/// `kube-system` is to be known. It must not wait.
pub type HubNamespaceLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What all connections have in common.
#[derive(Clone)]
pub struct ConnectionSettings {
    /// Whose Jobs are watched.
    pub hub_id: HubId,
    /// How connections are made.
    pub link: RemoteClientSettings,
    /// The hub's own namespaces; a cluster that has one of them is the hub's own.
    pub own_namespaces: HubNamespaceLookup,
    /// How long things take.
    pub timing: ConnectionTiming,
}

impl fmt::Debug for ConnectionSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionSettings")
            .field("hub_id", &self.hub_id)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}
