//! Reports of a connection: only the newest waits to be sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Permit;

use crate::api::conditions::Reason;
use crate::kubernetes::apply::CallError;
use crate::plan::remote::health::{ConnectionFault, ConnectionHealth};
use crate::plan::remote::site::Site;
use crate::remote::ConnectionKey;

/// How old the reported time of the last probe may get.
const STALE: Duration = Duration::from_secs(240);

/// The state of a connection, for the cluster controller to write to a status. It is sent when something changed, and every
/// few minutes for the time of the last probe.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// The key of the connection.
    pub key: ConnectionKey,
    /// Health of the connection.
    pub health: ConnectionHealth,
    /// Sites that cannot be used although the connection is up, with their faults; empty while it is not up.
    pub refused: Vec<(Arc<Site>, ConnectionFault)>,
    /// The last failed call among those that decide the connection's state. It goes to the log only: it would show a tenant
    /// the network of the hub.
    pub failure: Option<CallError>,
}

impl ConnectionReport {
    /// The fault that keeps this site from being used, if there is one.
    #[must_use]
    pub fn fault(&self, site: &Site) -> Option<ConnectionFault> {
        let own = || {
            let found = self.refused.iter().find(|(refused, _)| **refused == *site);
            found.map(|(_, fault)| *fault)
        };
        self.health.fault.or_else(own)
    }

    /// Reason of the condition `Connected` of this site.
    #[must_use]
    pub fn reason(&self, site: &Site) -> Reason {
        self.fault(site)
            .map_or(Reason::Connected, ConnectionFault::reason)
    }
}

/// Sites that cannot be used, with their faults.
type RefusedSites = Vec<(Arc<Site>, ConnectionFault)>;

/// The last report that was sent, and the next one to send.
#[derive(Debug, Default)]
pub(super) struct ReportBuffer {
    last: Option<(ConnectionHealth, RefusedSites)>,
    next: Option<ConnectionReport>,
}

impl ReportBuffer {
    /// Replaces the next report; it is dropped if it differs in nothing from the last one.
    pub(super) fn update(&mut self, report: ConnectionReport) {
        let must_send = self.must_send(&report.health, &report.refused);
        self.next = must_send.then_some(report);
    }

    pub(super) const fn has_pending(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn send(&mut self, permit: Permit<'_, ConnectionReport>) {
        if let Some(report) = self.next.take() {
            self.last = Some((report.health, report.refused.clone()));
            permit.send(report);
        }
    }

    /// Whether it differs from the last report, or that one's probe time is too old.
    fn must_send(&self, health: &ConnectionHealth, refused: &[(Arc<Site>, ConnectionFault)]) -> bool {
        let Some((last, before)) = &self.last else {
            return true;
        };
        let same = ConnectionHealth {
            last_probe: last.last_probe,
            ..*health
        };
        let is_stale = match (last.last_probe, health.last_probe) {
            (Some(reported), Some(known)) => known.duration_since(reported).unsigned_abs() >= STALE,
            (reported, known) => reported != known,
        };
        same != *last || refused != before.as_slice() || is_stale
    }
}
