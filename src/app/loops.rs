//! Builds the loops and connects them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::error::AppError;
use super::{clusters, preflight_loop, start, unserved_namespaces};
use crate::api::names::HubId;
use crate::app::config::{Settings, TenantIdentity};
use crate::base::metrics::Metrics;
use crate::controllers::platform::{CatalogController, DryRunContext, PublishedCatalog};
use crate::controllers::tasks::controller::{ControllerOutputs, TaskController};
use crate::controllers::tasks::reconciler::ReconcileContext;
use crate::controllers::verify::Verifier;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::lease::LeaseClient;
use crate::kubernetes::pod_results::PodResults;
use crate::kubernetes::preflight::FactCollector;
use crate::kubernetes::tenant::{IdentityMethod, TenantSessions};
use crate::kubernetes::watch as watches;
use crate::kubernetes::watch::{ReceivedEvent, TaskWatchScope};
use crate::kubernetes::write_fence;
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::task::job::JobPlacement;
use crate::plan::task::status_seal::SealKey;
use crate::remote::SiteClients;

/// Inputs that may wait for the controller, each up to a whole task of 1.5 MiB; a full channel only makes a watch wait.
const BACKLOG: usize = 32;

/// Renderer classes that may wait to be looked at; of a class that finds no room the next refused Job tells again.
const DOUBTS: usize = 16;

/// What the loops are built of.
pub(super) struct HubParts {
    pub calls: HubClient,
    /// What the calls go through.
    pub fence: WriteFence,
    pub key: SealKey,
    pub metrics: Metrics,
    pub ready: watch::Sender<bool>,
    /// UIDs of namespaces that were read at the start.
    pub namespaces: BTreeMap<String, String>,
}

/// Starts every loop; the sender of events and the controller are returned to be drained on their own.
pub(super) fn start(
    loops: &mut JoinSet<()>,
    clients: &start::HubClients,
    hub: HubParts,
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<(JoinHandle<()>, JoinHandle<()>), AppError> {
    let (client, metrics, calls) = (&clients.hub, &hub.metrics, &hub.calls);
    let (publish, catalog) = watch::channel(None);
    let (input, inputs) = mpsc::channel(BACKLOG);
    let sender = (client.clone(), hub.fence.clone());
    let (events, send_events) = EventRecorder::new(sender, calls.hub_id().to_string(), metrics.clone());
    let notes = PodResults::default();
    let (doubt, doubts) = mpsc::channel(DOUBTS);
    let (sight, seen) = watch::channel(None);
    let own = clusters::own_namespaces(hub.namespaces, seen.clone());
    let identities = identities(clients, settings, metrics);
    let parts = (calls, Arc::clone(&identities), catalog.clone(), hub.ready);
    let told = (own, metrics, &events);
    let remote = clusters::build(client, &hub.fence, settings, parts, told, input.clone())?;
    let context = context(
        settings,
        hub.key,
        (calls, &hub.fence, metrics),
        (events.clone(), notes.clone()),
        identities,
        (remote.seats, doubt),
    );
    let check = DryRunContext::new(context.hub_placement.clone(), events, doubts);
    let engine = engine(context, metrics, settings, (catalog, remote.outlets));
    loops.spawn(tell(hub.fence, stop.clone()));
    loops.spawn(clusters::keep(remote.controller, seen, stop.clone()));
    let lookouts = (publish, sight, remote.left, check);
    spawn_lookouts(loops, settings, (client, metrics, calls), lookouts, stop);
    spawn_watches(loops, client, calls.hub_id(), settings, metrics, (notes, input));
    Ok((
        tokio::spawn(send_events),
        tokio::spawn(engine.run(inputs, stop.clone())),
    ))
}

fn engine(
    context: ReconcileContext,
    metrics: &Metrics,
    settings: &Settings,
    (catalog, outlets): (watch::Receiver<PublishedCatalog>, ControllerOutputs),
) -> TaskController {
    let scopes = TaskWatchScope::of(&settings.watch_namespaces);
    TaskController::new(
        Arc::new(context),
        metrics.clone(),
        settings.limits,
        scopes,
        catalog,
        outlets,
    )
}

/// What the platform offers, all namespaces, those of the tasks that something is left of, and what classes are tried with.
type CatalogChannels = (
    watch::Sender<PublishedCatalog>,
    watch::Sender<Option<NamespaceUids>>,
    watch::Receiver<Arc<BTreeSet<String>>>,
    DryRunContext,
);

/// Starts what looks at the platform's objects and at the other hubs.
fn spawn_lookouts(
    loops: &mut JoinSet<()>,
    settings: &Settings,
    (client, metrics, calls): (&Client, &Metrics, &HubClient),
    (publish, sight, left, check): CatalogChannels,
    stop: &CancellationToken,
) {
    let inquiry = FactCollector {
        pause: Some(preflight_loop::PAUSE),
        ..start::inquiry(client, settings, metrics)
    };
    loops.spawn(preflight_loop::run(
        inquiry,
        settings.start.preflight_interval,
        metrics.clone(),
    ));
    let leases = LeaseClient::new(client.clone(), &settings.start.lease_namespace, metrics.clone());
    let grace = settings.start.unowned_grace;
    loops.spawn(unserved_namespaces::run(leases, left, grace, metrics.clone()));
    let (fallback, watched) = (settings.fallback_class.clone(), &settings.watch_namespaces);
    let offering = CatalogController::new(calls.clone(), fallback, watched, publish);
    let offering = offering.with_namespace_uids(sight).with_dry_runs(check);
    let namespace = settings.rendering_namespace.clone();
    loops.spawn(offering.run(client.clone(), namespace, metrics.clone(), stop.clone()));
}

/// Tells when the fence closes and opens, until the hub closes it for good.
async fn tell(gate: WriteFence, stop: CancellationToken) {
    _ = stop.run_until_cancelled(write_fence::tell(gate)).await;
    std::future::pending::<()>().await;
}

/// What every reconcile of a task needs.
fn context(
    settings: &Settings,
    key: SealKey,
    (calls, gate, metrics): (&HubClient, &WriteFence, &Metrics),
    (events, notes): (EventRecorder, PodResults),
    identities: Arc<TenantSessions>,
    (seats, doubts): (Arc<dyn SiteClients>, mpsc::Sender<String>),
) -> ReconcileContext {
    ReconcileContext {
        calls: calls.clone(),
        fence: gate.clone(),
        events,
        pod_results: notes,
        hub_placement: place(settings, calls.hub_id()),
        key,
        identities,
        tenancy: settings.tenancy.clone(),
        site_clients: seats,
        feature_gates: settings.clusters.feature_gates.clone(),
        timeouts: clusters::patience(settings),
        verifier: Verifier::new(calls.clone(), metrics.clone()),
        dry_run_requests: doubts,
    }
}

/// Where Jobs run on the hub's own cluster.
fn place(settings: &Settings, hub_id: &HubId) -> JobPlacement {
    JobPlacement {
        hub_id: hub_id.clone(),
        cluster: None,
        namespace: settings.rendering_namespace.clone(),
        service_account: settings.renderer_service_account.clone(),
    }
}

/// Who reads what tenants name.
fn identities(clients: &start::HubClients, settings: &Settings, metrics: &Metrics) -> Arc<TenantSessions> {
    let method = match settings.tenant_identity {
        TenantIdentity::Token => IdentityMethod::Token,
        TenantIdentity::Impersonate => IdentityMethod::Impersonate,
    };
    Arc::new(TenantSessions::new(
        clients.hub.clone(),
        clients.nobody.clone(),
        method,
        settings.tenancy.is_single_tenant,
        metrics.clone(),
    ))
}

/// Starts the watches; they end with the controller that they feed.
fn spawn_watches(
    loops: &mut JoinSet<()>,
    client: &Client,
    hub_id: &HubId,
    settings: &Settings,
    metrics: &Metrics,
    (notes, out): (PodResults, mpsc::Sender<ReceivedEvent>),
) {
    let scopes = TaskWatchScope::of(&settings.watch_namespaces);
    for namespace in watches::tenants(&scopes) {
        let (client, metrics, out) = (client.clone(), metrics.clone(), out.clone());
        if settings.tenancy.crosses_namespaces {
            let (client, namespace) = (client.clone(), namespace.clone());
            loops.spawn(watches::grants(client, namespace, metrics.clone(), out.clone()));
        }
        loops.spawn(watches::registries(client, namespace, metrics, out));
    }
    for scope in scopes {
        loops.spawn(watches::tasks(
            client.clone(),
            scope,
            metrics.clone(),
            out.clone(),
        ));
    }
    let namespace = settings.rendering_namespace.clone();
    let (hub_id, metrics) = (hub_id.clone(), metrics.clone());
    loops.spawn(watches::jobs(
        client.clone(),
        namespace.clone(),
        hub_id.clone(),
        metrics.clone(),
        out.clone(),
    ));
    loops.spawn(watches::pods(
        client.clone(),
        namespace,
        hub_id,
        metrics,
        notes,
        out,
    ));
}
