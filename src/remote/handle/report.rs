//! What is reported of a connection: the newest, once somebody takes it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::Permit;

use super::Report;
use super::actor::Actor;
use crate::base::metrics::clusters::label;
use crate::plan::remote::health::{Fault, Health, Phase};
use crate::plan::remote::site::Site;

/// How old the reported time of the last probe may get.
const STALE: Duration = Duration::from_secs(240);

/// Sites that cannot be used, and why.
type Refused = Vec<(Arc<Site>, Fault)>;

/// The last report, and the next.
#[derive(Debug, Default)]
pub(super) struct Told {
    last: Option<(Health, Refused)>,
    next: Option<Report>,
}

impl Told {
    pub(super) const fn has_news(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn send(&mut self, permit: Permit<'_, Report>) {
        if let Some(report) = self.next.take() {
            self.last = Some((report.health, report.refused.clone()));
            permit.send(report);
        }
    }

    /// Whether somebody should hear of it.
    fn is_news(&self, health: &Health, refused: &[(Arc<Site>, Fault)]) -> bool {
        let Some((last, before)) = &self.last else {
            return true;
        };
        let same = Health {
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

impl Actor {
    /// Notes what is to be reported, and shows it in the metrics.
    pub(super) fn note_health(&mut self, health: Health) {
        let refused = |(site, post): (&Arc<Site>, &super::post::Post)| {
            let fault = if self.is_settled {
                post.watching.fault()
            } else {
                Some(Fault::Connecting)
            };
            fault.map(|fault| (Arc::clone(site), fault))
        };
        let refused: Vec<_> = if health.phase == Phase::Up {
            self.posts.iter().filter_map(refused).collect()
        } else {
            Vec::new()
        };
        // What is refused is no use; a site that is only being opened is no loss of the others.
        let is_refused = refused.iter().any(|(_, fault)| *fault != Fault::Connecting);
        let stands = health.phase == Phase::Up && !is_refused;
        let connected = &self.line.metrics.connected;
        connected
            .get_or_create(&label(&self.line.name))
            .set(i64::from(stands));
        if self.told.is_news(&health, &refused) {
            self.told.next = Some(Report {
                key: self.key.clone(),
                health,
                refused,
                failure: self.failure,
            });
        } else {
            self.told.next = None;
        }
    }
}
