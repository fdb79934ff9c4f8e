//! Builds what reaches clusters that are not the hub's.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use tokio::sync::{mpsc, watch};

use super::AppError;
use crate::cluster::handle::Report;
use crate::cluster::limits::LinkLimits;
use crate::cluster::link::LinkSettings;
use crate::cluster::registry::{OwnNamespaces, Registry, RegistrySettings};
use crate::cluster::resolve::Resolver;
use crate::config::ClusterSettings;
use crate::controller::catalog::Published;
use crate::metrics::Metrics;
use crate::names::HubId;
use crate::plan::address::Guard;
use crate::plan::health::Timing;
use crate::plan::lost::Patience;
use crate::watch::Input;

/// Reports that may wait for the cluster controller; a full channel only makes a connection wait.
const REPORTS: usize = 64;

/// All connections, and what becomes of them.
pub(super) fn connections(
    settings: &ClusterSettings,
    hub_id: HubId,
    own_namespaces: OwnNamespaces,
    metrics: &Metrics,
    inputs: mpsc::Sender<Input>,
) -> Result<(Registry, mpsc::Receiver<Report>), AppError> {
    let guard = Guard {
        allowed: settings.allowed.clone(),
        denied: settings.denied.clone(),
    };
    let settings = RegistrySettings {
        hub_id,
        link: LinkSettings {
            guard: Arc::new(guard),
            resolver: Resolver::system().map_err(|_| AppError::NoResolver)?,
            limits: LinkLimits::default(),
        },
        own_namespaces,
        timing: Timing::default(),
    };
    let (reports, reported) = mpsc::channel(REPORTS);
    Ok((
        Registry::new(settings, metrics.clone(), inputs, reports),
        reported,
    ))
}

/// UIDs of the hub's own namespaces: those that were read at the start, and those that lists of the platform name.
pub(super) fn own_namespaces(
    known: BTreeMap<String, String>,
    catalog: watch::Receiver<Published>,
) -> OwnNamespaces {
    Arc::new(move |name| {
        let listed = || catalog.borrow().as_ref()?.namespaces.get(name).cloned();
        known.get(name).cloned().or_else(listed)
    })
}

/// How long the hub waits for a lost cluster.
pub(super) fn patience(settings: &ClusterSettings) -> Patience {
    let signed = |time| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    Patience {
        lost_timeout: signed(settings.lost_timeout),
        orphan_grace: signed(settings.orphan_grace_period),
    }
}
