//! Builds what reaches clusters that are not the hub's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::SignedDuration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::error::AppError;
use super::hub_parts::HubParts;
use crate::app::config::Settings;
use crate::controllers::clusters::{ClusterController, ClusterControllerLimits, ClusterControllerParts};
use crate::controllers::platform::PublishedCatalog;
use crate::controllers::tasks::controller::ControllerOutputs;
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::tenant::TenantSessions;
use crate::kubernetes::watch::ReceivedEvent;
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

/// Reports that wait for the cluster controller; a full channel only makes a connection wait.
const REPORTS: usize = 64;

/// Namespaces of the tasks whose remains are still on a cluster.
pub(super) type LeftoverNamespaces = watch::Receiver<Arc<BTreeSet<String>>>;

/// The cluster controller, and what the task controller needs of it.
pub(super) struct RemoteParts {
    pub controller: ClusterController,
    pub site_clients: Arc<dyn SiteClients>,
    pub outputs: ControllerOutputs,
    pub leftover_namespaces: LeftoverNamespaces,
}

/// What the connections and the cluster controller need of the other loops.
pub(super) struct RemoteDependencies {
    pub sessions: Arc<TenantSessions>,
    pub catalog: watch::Receiver<PublishedCatalog>,
    /// Set once the hub knows all tasks.
    pub ready: watch::Sender<bool>,
    pub own_namespaces: HubNamespaceLookup,
    pub events: EventRecorder,
    /// Events for the task controller.
    pub inputs: mpsc::Sender<ReceivedEvent>,
}

/// Builds everything that reaches other clusters.
pub(super) fn build(hub: &HubParts, needs: RemoteDependencies) -> Result<RemoteParts, AppError> {
    let (report, reports) = mpsc::channel(REPORTS);
    let connections = connections(hub, needs.own_namespaces)?;
    let registry = ConnectionRegistry::new(connections, hub.metrics.clone(), needs.inputs, report);
    let (request, site_requests) = mpsc::unbounded_channel();
    let (publish_active, active) = watch::channel(Arc::default());
    let (publish_leftovers, leftover_namespaces) = watch::channel(Arc::default());
    let controller = ClusterController::new(ClusterControllerParts {
        client: hub.client.clone(),
        hub_client: hub.hub_client.clone(),
        namespace: hub.settings.clusters.namespace.clone(),
        sessions: needs.sessions,
        registry: registry.clone(),
        metrics: hub.metrics.clone(),
        events: needs.events,
        limits: ClusterControllerLimits::default(),
        catalog: needs.catalog,
        active,
        site_requests,
        reports,
    });
    Ok(RemoteParts {
        controller,
        site_clients: Arc::new(registry),
        outputs: ControllerOutputs {
            ready: needs.ready,
            site_requests: request,
            active: publish_active,
            leftover_namespaces: publish_leftovers,
        },
        leftover_namespaces,
    })
}

/// Which addresses the hub connects to where a tenant, or a kubeconfig, says so.
pub(super) fn address_policy(settings: &Settings) -> AddressPolicy {
    AddressPolicy {
        allowed: settings.clusters.allowed.clone(),
        denied: settings.clusters.denied.clone(),
    }
}

/// The settings of all connections.
fn connections(hub: &HubParts, own_namespaces: HubNamespaceLookup) -> Result<ConnectionSettings, AppError> {
    let guard = address_policy(&hub.settings);
    let timing = ConnectionTiming::since(Instant::now());
    Ok(ConnectionSettings {
        hub_id: hub.hub_client.hub_id().clone(),
        client: RemoteClientSettings {
            guard: Arc::new(guard),
            resolver: Resolver::system().map_err(|_| AppError::NoResolver)?,
            limits: Arc::new(RemoteClientLimits::for_probe_interval(timing.probe_every)),
            memory_budget: MemoryBudget::default(),
            fence: hub.fence.clone(),
        },
        own_namespaces,
        timing,
    })
}

/// UIDs of the hub's own namespaces: those that were read at the start, and those that the catalog controller sees.
pub(super) fn own_namespaces(
    known: BTreeMap<String, String>,
    uids: watch::Receiver<Option<NamespaceUids>>,
) -> HubNamespaceLookup {
    Arc::new(move |name| {
        let exists = || uids.borrow().as_ref()?.get(name).cloned();
        known.get(name).cloned().or_else(exists)
    })
}

/// Runs the cluster controller, once the hub can recognise its own cluster by the UIDs of its namespaces.
pub(super) async fn run(
    controller: ClusterController,
    mut uids: watch::Receiver<Option<NamespaceUids>>,
    stop: CancellationToken,
) {
    // The sender ends with the catalog controller, which ends with the hub.
    if uids.wait_for(Option::is_some).await.is_ok() {
        controller.run(stop).await;
    }
}

/// Times after which the hub gives up on a task's cluster, and on what is left there.
pub(super) fn timeouts(settings: &Settings) -> TaskTimeouts {
    let signed = |time| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    TaskTimeouts {
        lost_timeout: signed(settings.clusters.lost_timeout),
        orphan_grace: signed(settings.clusters.orphan_grace_period),
        kept_at_most: signed(settings.max_failed_job_ttl),
    }
}
