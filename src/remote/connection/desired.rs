//! The desired state of a connection.

use std::collections::HashMap;
use std::sync::Arc;

use super::announce_permit::AnnouncePermit;
use crate::api::conditions::Reason;
use crate::plan::remote::site::Site;
use crate::remote::kubeconfig::{Fingerprint, RemoteConfig};
use crate::remote::settings::RateLimit;

/// The desired state of a connection; its task sees only the newest value.
#[derive(Clone)]
pub(in crate::remote) struct DesiredConnection {
    pub(in crate::remote) config: Arc<RemoteConfig>,
    pub(in crate::remote) identity: Fingerprint,
    pub(in crate::remote) connection: Fingerprint,
    pub(in crate::remote) rate_limit: RateLimit,
    /// Counts binds, of the same kubeconfig too.
    pub(in crate::remote) binds: u64,
    pub(in crate::remote) sites: HashMap<Arc<Site>, Arc<AnnouncePermit>>,
    /// Reason of the unbind; `None` where the hub stops.
    pub(in crate::remote) end: Option<Reason>,
}

impl DesiredConnection {
    pub(in crate::remote) fn new(config: RemoteConfig, rate_limit: RateLimit) -> Self {
        Self {
            identity: config.identity(),
            connection: config.connection(),
            config: Arc::new(config),
            rate_limit,
            binds: 0,
            sites: HashMap::new(),
            end: None,
        }
    }

    /// Replaces all but the sites, and counts the bind.
    pub(in crate::remote) fn rebind(&mut self, next: Self) {
        *self = Self {
            binds: self.binds + 1,
            sites: std::mem::take(&mut self.sites),
            end: self.end,
            ..next
        };
    }
}
