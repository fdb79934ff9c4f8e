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
use crate::controllers::clusters::{ClusterController, ClusterControllerLimits, ClusterControllerParts};
use crate::controllers::platform::PublishedCatalog;
use crate::controllers::tasks::controller::ControllerOutputs;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::tenant::TenantSessions;
use crate::kubernetes::watch::ReceivedEvent;
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::remote::address::AddressPolicy;
use crate::plan::remote::health::ConnectionTiming;
use crate::plan::remote::lost_cluster::TaskTimeouts;
use crate::remote::SiteClients;
use crate::remote::client::RemoteClientSettings;
use crate::remote::connection_registry::{ConnectionRegistry, ConnectionSettings, HubNamespaceLookup};
use crate::remote::limits::RemoteClientLimits;
use crate::remote::memory_budget::MemoryBudget;
use crate::remote::resolve::Resolver;

/// Reports that may wait for the cluster controller; a full channel only makes a connection wait.
const REPORTS: usize = 64;

/// What the controller needs of other clusters, and the loop that keeps the connections.
pub(super) struct RemoteParts {
    pub controller: ClusterController,
    pub seats: Arc<dyn SiteClients>,
    pub outlets: ControllerOutputs,
    /// Namespaces of the tasks that something is left of.
    pub left: watch::Receiver<Arc<BTreeSet<String>>>,
}

/// Those who have to do with other clusters: the hub's calls, tenants, what the platform offers, and whoever asks whether
/// the hub is ready.
type RemoteDependencies<'a> = (
    &'a HubClient,
    Arc<TenantSessions>,
    watch::Receiver<PublishedCatalog>,
    watch::Sender<bool>,
);

/// Everything that reaches other clusters.
pub(super) fn build(
    client: &Client,
    gate: &WriteFence,
    settings: &Settings,
    (calls, identities, catalog, ready): RemoteDependencies<'_>,
    (own_namespaces, metrics, events): (HubNamespaceLookup, &Metrics, &EventRecorder),
    inputs: mpsc::Sender<ReceivedEvent>,
) -> Result<RemoteParts, AppError> {
    let (settings, hub_id) = (&settings.clusters, calls.hub_id().clone());
    let (report, reports) = mpsc::channel(REPORTS);
    let connections = connections(settings, gate, hub_id, own_namespaces)?;
    let registry = ConnectionRegistry::new(connections, metrics.clone(), inputs, report);
    let (wants, wanted) = mpsc::unbounded_channel();
    let (active, running) = watch::channel(Arc::default());
    let (left, namespaces) = watch::channel(Arc::default());
    let controller = ClusterController::new(ClusterControllerParts {
        client: client.clone(),
        calls: calls.clone(),
        namespace: settings.namespace.clone(),
        identities,
        registry: registry.clone(),
        metrics: metrics.clone(),
        events: events.clone(),
        limits: ClusterControllerLimits::default(),
        catalog,
        active: running,
        wants: wanted,
        reports,
    });
    Ok(RemoteParts {
        controller,
        seats: Arc::new(registry),
        outlets: ControllerOutputs {
            ready,
            site_requests: wants,
            active,
            leftover_namespaces: left,
        },
        left: namespaces,
    })
}

/// What all connections have in common.
fn connections(
    settings: &ClusterSettings,
    gate: &WriteFence,
    hub_id: HubId,
    own_namespaces: HubNamespaceLookup,
) -> Result<ConnectionSettings, AppError> {
    let guard = AddressPolicy {
        allowed: settings.allowed.clone(),
        denied: settings.denied.clone(),
    };
    Ok(ConnectionSettings {
        hub_id,
        client: RemoteClientSettings {
            guard: Arc::new(guard),
            resolver: Resolver::system().map_err(|_| AppError::NoResolver)?,
            limits: Arc::new(RemoteClientLimits::default()),
            memory_budget: MemoryBudget::default(),
            fence: gate.clone(),
        },
        own_namespaces,
        timing: ConnectionTiming::since(Instant::now()),
    })
}

/// UIDs of the hub's own namespaces: those that were read at the start, and those that it sees.
pub(super) fn own_namespaces(
    known: BTreeMap<String, String>,
    seen: watch::Receiver<Option<NamespaceUids>>,
) -> HubNamespaceLookup {
    Arc::new(move |name| {
        let exists = || seen.borrow().as_ref()?.get(name).cloned();
        known.get(name).cloned().or_else(exists)
    })
}

/// Runs the loop that keeps connections, once it can be told which clusters are the hub's own.
pub(super) async fn keep(
    controller: ClusterController,
    mut seen: watch::Receiver<Option<NamespaceUids>>,
    stop: CancellationToken,
) {
    // It ends with the loop that looks, and that with the hub.
    if seen.wait_for(Option::is_some).await.is_ok() {
        controller.run(stop).await;
    }
}

/// How long the hub waits before it gives something up.
pub(super) fn patience(settings: &Settings) -> TaskTimeouts {
    let signed = |time| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    TaskTimeouts {
        lost_timeout: signed(settings.clusters.lost_timeout),
        orphan_grace: signed(settings.clusters.orphan_grace_period),
        kept_at_most: signed(settings.max_failed_job_ttl),
    }
}
