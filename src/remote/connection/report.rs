//! What is reported of a connection: the newest, once somebody takes it.

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

/// What became of a connection, for whoever writes it down. Sent when something changed, and every few minutes for the
/// time of the last probe.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Which connection.
    pub key: ConnectionKey,
    /// How it stands.
    pub health: ConnectionHealth,
    /// Sites that cannot be used although the connection stands, and why; empty while it does not stand.
    pub refused: Vec<(Arc<Site>, ConnectionFault)>,
    /// The call that failed last of those that told how the connection stands: for a log, and for no tenant, who would learn of the
    /// network what is not its own.
    pub failure: Option<CallError>,
}

impl ConnectionReport {
    /// What keeps this site of the connection from being used; `None` where nothing does.
    #[must_use]
    pub fn fault(&self, site: &Site) -> Option<ConnectionFault> {
        let own = || {
            let found = self.refused.iter().find(|(refused, _)| **refused == *site);
            found.map(|(_, fault)| *fault)
        };
        self.health.fault.or_else(own)
    }

    /// The reason of the condition `Connected` of this site.
    #[must_use]
    pub fn reason(&self, site: &Site) -> Reason {
        self.fault(site)
            .map_or(Reason::Connected, ConnectionFault::reason)
    }
}

/// Sites that cannot be used, and why.
type RefusedSites = Vec<(Arc<Site>, ConnectionFault)>;

/// The last report, and the next.
#[derive(Debug, Default)]
pub(super) struct ReportBuffer {
    last: Option<(ConnectionHealth, RefusedSites)>,
    next: Option<ConnectionReport>,
}

impl ReportBuffer {
    /// Takes in how the connection stands, to be sent if that is news.
    pub(super) fn put(&mut self, report: ConnectionReport) {
        let is_news = self.is_news(&report.health, &report.refused);
        self.next = is_news.then_some(report);
    }

    pub(super) const fn has_news(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn send(&mut self, permit: Permit<'_, ConnectionReport>) {
        if let Some(report) = self.next.take() {
            self.last = Some((report.health, report.refused.clone()));
            permit.send(report);
        }
    }

    /// Whether somebody should hear of it.
    fn is_news(&self, health: &ConnectionHealth, refused: &[(Arc<Site>, ConnectionFault)]) -> bool {
        let Some((last, before)) = &self.last else {
            return true;
        };
        let same = ConnectionHealth {
            last_probe: last.last_probe,
            ..*health
        };
        let is_stale = match (last.last_probe, health.last_probe) {
            (Some(told), Some(known)) => known.duration_since(told).unsigned_abs() >= STALE,
            (told, known) => told != known,
        };
        same != *last || refused != before.as_slice() || is_stale
    }
}
