//! What all connections to other clusters have in common, and the pace of each.

use std::fmt;
use std::sync::Arc;

use crate::api::names::HubId;
use crate::plan::remote::health::Timing;

use super::link::LinkSettings;

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

/// UID of one of the hub's own namespaces by its name; `None` for one that does not exist, or is not known. At the least
/// `kube-system` is to be known. It must not wait.
pub type OwnNamespaces = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What all connections have in common.
#[derive(Clone)]
pub struct RegistrySettings {
    /// Whose Jobs are watched.
    pub hub_id: HubId,
    /// How connections are made.
    pub link: LinkSettings,
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
