//! One connection to one cluster: the task that owns it, the watches on it, and what is told of it.

use std::sync::Arc;

use crate::api::conditions::Reason;
use crate::plan::health::{Fault, Health};
use crate::plan::site::Site;

use super::ClusterKey;

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
