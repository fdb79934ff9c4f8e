//! Builds what reaches clusters that are not the hub's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::SignedDuration;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::error::AppError;
use crate::api::names::HubId;
use crate::app::config::{ClusterSettings, Settings};
use crate::base::metrics::Metrics;
use crate::controllers::clusters::{ClusterLoop, Limits, Parts};
use crate::controllers::platform::Published;
use crate::controllers::tasks::engine::Outlets;
use crate::kubernetes::apply::Calls;
use crate::kubernetes::events::Events;
use crate::kubernetes::gate::Gate;
use crate::kubernetes::tenant::Identities;
use crate::kubernetes::watch::Arrived;
use crate::plan::platform::namespaces::Uids;
use crate::plan::remote::address::Guard;
use crate::plan::remote::health::Timing;
use crate::plan::remote::lost::Patience;
use crate::remote::Seats;
use crate::remote::limits::LinkLimits;
use crate::remote::link::LinkSettings;
use crate::remote::registry::{OwnNamespaces, Registry, RegistrySettings};
use crate::remote::resolve::Resolver;
use crate::remote::room::Room;

/// Reports that may wait for the cluster controller; a full channel only makes a connection wait.
const REPORTS: usize = 64;

/// What the engine needs of other clusters, and the loop that keeps the connections.
pub(super) struct Remote {
    pub controller: ClusterLoop,
    pub seats: Arc<dyn Seats>,
    pub outlets: Outlets,
    /// Namespaces of the tasks that something is left of.
    pub left: watch::Receiver<Arc<BTreeSet<String>>>,
}

/// Those who have to do with other clusters: the hub's calls, tenants, what the platform offers, and whoever asks whether
/// the hub is ready.
type Parties<'a> = (
    &'a Calls,
    Arc<Identities>,
    watch::Receiver<Published>,
    watch::Sender<bool>,
);

/// Everything that reaches other clusters.
pub(super) fn build(
    client: &Client,
    gate: &Gate,
    settings: &Settings,
    (calls, identities, catalog, ready): Parties<'_>,
    (own_namespaces, metrics, events): (OwnNamespaces, &Metrics, &Events),
    inputs: mpsc::Sender<Arrived>,
) -> Result<Remote, AppError> {
    let (settings, hub_id) = (&settings.clusters, calls.hub_id().clone());
    let (report, reports) = mpsc::channel(REPORTS);
    let connections = connections(settings, gate, hub_id, own_namespaces)?;
    let registry = Registry::new(connections, metrics.clone(), inputs, report);
    let (wants, wanted) = mpsc::unbounded_channel();
    let (active, running) = watch::channel(Arc::default());
    let (left, namespaces) = watch::channel(Arc::default());
    let controller = ClusterLoop::new(Parts {
        client: client.clone(),
        calls: calls.clone(),
        namespace: settings.namespace.clone(),
        identities,
        registry: registry.clone(),
        metrics: metrics.clone(),
        events: events.clone(),
        limits: Limits::default(),
        catalog,
        active: running,
        wants: wanted,
        reports,
    });
    Ok(Remote {
        controller,
        seats: Arc::new(registry),
        outlets: Outlets {
            ready,
            wants,
            active,
            left,
        },
        left: namespaces,
    })
}

/// What all connections have in common.
fn connections(
    settings: &ClusterSettings,
    gate: &Gate,
    hub_id: HubId,
    own_namespaces: OwnNamespaces,
) -> Result<RegistrySettings, AppError> {
    let guard = Guard {
        allowed: settings.allowed.clone(),
        denied: settings.denied.clone(),
    };
    Ok(RegistrySettings {
        hub_id,
        link: LinkSettings {
            guard: Arc::new(guard),
            resolver: Resolver::system().map_err(|_| AppError::NoResolver)?,
            limits: Arc::new(LinkLimits::default()),
            room: Room::default(),
            gate: gate.clone(),
        },
        own_namespaces,
        timing: Timing::since(Instant::now()),
    })
}

/// UIDs of the hub's own namespaces: those that were read at the start, and those that it sees.
pub(super) fn own_namespaces(
    known: BTreeMap<String, String>,
    seen: watch::Receiver<Option<Uids>>,
) -> OwnNamespaces {
    Arc::new(move |name| {
        let exists = || seen.borrow().as_ref()?.get(name).cloned();
        known.get(name).cloned().or_else(exists)
    })
}

/// Runs the loop that keeps connections, once it can be told which clusters are the hub's own.
pub(super) async fn keep(
    controller: ClusterLoop,
    mut seen: watch::Receiver<Option<Uids>>,
    stop: CancellationToken,
) {
    // It ends with the loop that looks, and that with the hub.
    if seen.wait_for(Option::is_some).await.is_ok() {
        controller.run(stop).await;
    }
}

/// How long the hub waits before it gives something up.
pub(super) fn patience(settings: &Settings) -> Patience {
    let signed = |time| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    Patience {
        lost_timeout: signed(settings.clusters.lost_timeout),
        orphan_grace: signed(settings.clusters.orphan_grace_period),
        kept_at_most: signed(settings.max_failed_job_ttl),
    }
}
