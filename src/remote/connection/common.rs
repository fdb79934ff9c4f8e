//! What the tasks of all connections share.

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::report::ConnectionReport;
use super::shared::SiteClient;
use crate::base::metrics::Metrics;
use crate::kubernetes::watch::ReceivedEvent;
use crate::plan::remote::health::ClockReading;
use crate::plan::remote::site::Site;
use crate::remote::settings::ConnectionSettings;

/// What all connections share.
pub(in crate::remote) struct ConnectionContext {
    pub(in crate::remote) settings: ConnectionSettings,
    pub(in crate::remote) metrics: Metrics,
    pub(in crate::remote) inputs: mpsc::Sender<ReceivedEvent>,
    pub(in crate::remote) reports: mpsc::Sender<ConnectionReport>,
    /// Clients of the sites that are up.
    pub(in crate::remote) site_clients: DashMap<Arc<Site>, SiteClient>,
    /// Limits the attempts that start at a time, so that a thousand handshakes do not delay each other.
    pub(in crate::remote) starts: Semaphore,
}

pub(super) fn now() -> ClockReading {
    ClockReading {
        at: Instant::now().into_std(),
        wall: Timestamp::now(),
    }
}
