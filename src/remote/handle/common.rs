//! What the tasks of all connections share.

use std::fmt;
use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use super::line::Seat;
use super::report::Report;
use crate::base::metrics::Metrics;
use crate::kubernetes::watch::Arrived;
use crate::plan::remote::health::Moment;
use crate::plan::remote::site::Site;
use crate::remote::settings::RegistrySettings;

/// What all connections share.
pub(in crate::remote) struct Common {
    pub(in crate::remote) settings: RegistrySettings,
    pub(in crate::remote) metrics: Metrics,
    pub(in crate::remote) inputs: mpsc::Sender<Arrived>,
    pub(in crate::remote) reports: mpsc::Sender<Report>,
    /// The ways to the sites that are up.
    pub(in crate::remote) seats: DashMap<Arc<Site>, Seat>,
    /// Attempts that begin at a time, so that a thousand handshakes do not make each other late.
    pub(in crate::remote) starts: Semaphore,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").finish_non_exhaustive()
    }
}

pub(super) fn now() -> Moment {
    Moment {
        at: Instant::now().into_std(),
        wall: Timestamp::now(),
    }
}
