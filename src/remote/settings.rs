//! Settings of all connections to other clusters, and the rate limit of each.

use std::sync::Arc;

use crate::api::names::HubId;
use crate::plan::remote::health::ConnectionTiming;

use super::client::RemoteClientSettings;

/// Rate limit of the requests to one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests per second, in the long run.
    pub qps: u32,
    /// Requests at once after a pause.
    pub burst: u32,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self { qps: 20, burst: 30 }
    }
}

/// UID of one of the hub's own namespaces by its name; `None` for one that does not exist, or is not known. At least
/// `kube-system` must be known. The function must not block.
pub type HubNamespaceLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Settings of all connections.
#[derive(Clone)]
pub struct ConnectionSettings {
    /// The hub whose Jobs are watched.
    pub hub_id: HubId,
    /// Settings of the remote clients.
    pub client: RemoteClientSettings,
    /// The hub's own namespaces; a cluster that has one of them is the hub's own.
    pub own_namespaces: HubNamespaceLookup,
    /// Intervals and deadlines.
    pub timing: ConnectionTiming,
}
