//! One connection to one cluster: the task that owns it, the watches on it, and what is told of it.
//!
//! The task does what [`crate::plan::remote::health`] says, and everything else comes to it as news: what is wanted of it by a
//! channel that keeps only the newest, outcomes from tasks of its own, which end with it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::api::conditions::Reason;
use crate::base::metrics::Metrics;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::watch::Arrived;
use crate::plan::remote::health::{Fault, Health, Moment};
use crate::plan::remote::site::Site;
use crate::remote::kubeconfig::{Fingerprint, RemoteConfig};

use super::ClusterKey;
use super::registry::{Pace, RegistrySettings};

mod actor;
mod checks;
mod line;
mod post;
mod report;
mod session;
mod sites;

pub(super) use actor::Actor;
pub(super) use line::Line;
pub use line::Seat;
pub(super) use post::{Speakers, Turn};

/// What became of a connection, for whoever writes it down. Sent when something changed, and every few minutes for the
/// time of the last probe.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which connection.
    pub key: ClusterKey,
    /// How it stands.
    pub health: Health,
    /// Sites that cannot be used although the connection stands, and why; empty while it does not stand.
    pub refused: Vec<(Arc<Site>, Fault)>,
    /// The call that failed last of those that told how the connection stands: for a log, and for no tenant, who would learn of the
    /// network what is not its own.
    pub failure: Option<CallError>,
}

impl Report {
    /// What keeps this site of the connection from being used; `None` where nothing does.
    #[must_use]
    pub fn fault(&self, site: &Site) -> Option<Fault> {
        let own = || {
            let found = self.refused.iter().find(|(refused, _)| **refused == *site);
            found.map(|(_, fault)| *fault)
        };
        self.health.fault.or_else(own)
    }

    /// The reason of the condition `Connected` of this site.
    #[must_use]
    pub fn reason(&self, site: &Site) -> Reason {
        self.fault(site).map_or(Reason::Connected, Fault::reason)
    }
}

/// What is wanted of a connection; its task sees the newest.
#[derive(Clone)]
pub(super) struct Desired {
    pub(super) config: Arc<RemoteConfig>,
    pub(super) identity: Fingerprint,
    pub(super) connection: Fingerprint,
    pub(super) pace: Pace,
    /// How often it was bound, with whatever.
    pub(super) binds: u64,
    pub(super) sites: HashMap<Arc<Site>, Arc<Turn>>,
    /// Why it is unbound; `None` where the hub ends.
    pub(super) end: Option<Reason>,
}

impl Desired {
    pub(super) fn new(config: RemoteConfig, pace: Pace) -> Self {
        Self {
            identity: config.identity(),
            connection: config.connection(),
            config: Arc::new(config),
            pace,
            binds: 0,
            sites: HashMap::new(),
            end: None,
        }
    }

    /// Takes over how to connect, and counts it.
    pub(super) fn rebind(&mut self, next: Self) {
        *self = Self {
            binds: self.binds + 1,
            sites: std::mem::take(&mut self.sites),
            end: self.end,
            ..next
        };
    }
}

/// What all connections share.
pub(super) struct Common {
    pub(super) settings: RegistrySettings,
    pub(super) metrics: Metrics,
    pub(super) inputs: mpsc::Sender<Arrived>,
    pub(super) reports: mpsc::Sender<Report>,
    /// The ways to the sites that are up.
    pub(super) seats: DashMap<Arc<Site>, Seat>,
    /// Attempts that begin at a time, so that a thousand handshakes do not make each other late.
    pub(super) starts: Semaphore,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").finish_non_exhaustive()
    }
}

fn now() -> Moment {
    Moment {
        at: Instant::now().into_std(),
        wall: Timestamp::now(),
    }
}
