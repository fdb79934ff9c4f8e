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
    pub(in crate::remote) fingerprint: Fingerprint,
    pub(in crate::remote) fingerprint_without_token: Fingerprint,
    pub(in crate::remote) rate_limit: RateLimit,
    /// How often a kubeconfig was applied, the same one too.
    pub(in crate::remote) applied: u64,
    pub(in crate::remote) sites: HashMap<Arc<Site>, Arc<AnnouncePermit>>,
    /// Why the connection ends; `None` where the hub stops.
    pub(in crate::remote) end: Option<Reason>,
}

impl DesiredConnection {
    pub(in crate::remote) fn new(config: RemoteConfig, rate_limit: RateLimit) -> Self {
        Self {
            fingerprint: config.fingerprint(),
            fingerprint_without_token: config.fingerprint_without_token(),
            config: Arc::new(config),
            rate_limit,
            applied: 0,
            sites: HashMap::new(),
            end: None,
        }
    }

    /// Replaces all but the sites, and counts it.
    pub(in crate::remote) fn apply_kubeconfig(&mut self, next: Self) {
        *self = Self {
            applied: self.applied + 1,
            sites: std::mem::take(&mut self.sites),
            end: self.end,
            ..next
        };
    }
}
