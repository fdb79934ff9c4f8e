//! What is wanted of a connection.

use std::collections::HashMap;
use std::sync::Arc;

use super::announce_permit::AnnouncePermit;
use crate::api::conditions::Reason;
use crate::plan::remote::site::Site;
use crate::remote::kubeconfig::{Fingerprint, RemoteConfig};
use crate::remote::settings::RateLimit;

/// What is wanted of a connection; its task sees the newest.
#[derive(Clone)]
pub(in crate::remote) struct DesiredConnection {
    pub(in crate::remote) config: Arc<RemoteConfig>,
    pub(in crate::remote) identity: Fingerprint,
    pub(in crate::remote) connection: Fingerprint,
    pub(in crate::remote) rate_limit: RateLimit,
    /// How often it was bound, with whatever.
    pub(in crate::remote) binds: u64,
    pub(in crate::remote) sites: HashMap<Arc<Site>, Arc<AnnouncePermit>>,
    /// Why it is unbound; `None` where the hub ends.
    pub(in crate::remote) end: Option<Reason>,
}

impl DesiredConnection {
    pub(in crate::remote) fn new(config: RemoteConfig, pace: RateLimit) -> Self {
        Self {
            identity: config.identity(),
            connection: config.connection(),
            config: Arc::new(config),
            rate_limit: pace,
            binds: 0,
            sites: HashMap::new(),
            end: None,
        }
    }

    /// Takes over how to connect, and counts it.
    pub(in crate::remote) fn rebind(&mut self, next: Self) {
        *self = Self {
            binds: self.binds + 1,
            sites: std::mem::take(&mut self.sites),
            end: self.end,
            ..next
        };
    }
}
