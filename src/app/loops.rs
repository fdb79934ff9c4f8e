//! Builds the loops and connects them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::error::AppError;
use super::{clusters, recheck, start, unowned};
use crate::api::names::HubId;
use crate::app::config::{Settings, TenantIdentity};
use crate::base::metrics::Metrics;
use crate::controllers::platform::{CatalogLoop, Check, Published};
use crate::controllers::tasks::engine::{Engine, Outlets};
use crate::controllers::tasks::worker::Context;
use crate::controllers::verify::Verifier;
use crate::kubernetes::apply::Calls;
use crate::kubernetes::events::Events;
use crate::kubernetes::gate;
use crate::kubernetes::gate::Gate;
use crate::kubernetes::lease::Leases;
use crate::kubernetes::notes::Notes;
use crate::kubernetes::preflight::Inquiry;
use crate::kubernetes::tenant::{Identities, Method};
use crate::kubernetes::watch as watches;
use crate::kubernetes::watch::{Arrived, Scope};
use crate::plan::platform::namespaces::Uids;
use crate::plan::task::job::Place;
use crate::plan::task::seal::SealKey;
use crate::remote::Seats;

/// Inputs that may wait for the engine, each up to a whole task of 1.5 MiB; a full channel only makes a watch wait.
const BACKLOG: usize = 32;

/// Renderer classes that may wait to be looked at; of a class that finds no room the next refused Job tells again.
const DOUBTS: usize = 16;

/// What the loops are built of.
pub(super) struct Hub {
    pub calls: Calls,
    /// What the calls go through.
    pub gate: Gate,
    pub key: SealKey,
    pub metrics: Metrics,
    pub ready: watch::Sender<bool>,
    /// UIDs of namespaces that were read at the start.
    pub namespaces: BTreeMap<String, String>,
}

/// Starts every loop; the sender of events and the engine are returned to be drained on their own.
pub(super) fn start(
    loops: &mut JoinSet<()>,
    clients: &start::Clients,
    hub: Hub,
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<(JoinHandle<()>, JoinHandle<()>), AppError> {
    let (client, metrics, calls) = (&clients.hub, &hub.metrics, &hub.calls);
    let (publish, catalog) = watch::channel(None);
    let (input, inputs) = mpsc::channel(BACKLOG);
    let sender = (client.clone(), hub.gate.clone());
    let (events, send_events) = Events::new(sender, calls.hub_id().to_string(), metrics.clone());
    let notes = Notes::default();
    let (doubt, doubts) = mpsc::channel(DOUBTS);
    let (sight, seen) = watch::channel(None);
    let own = clusters::own_namespaces(hub.namespaces, seen.clone());
    let identities = identities(clients, settings, metrics);
    let parts = (calls, Arc::clone(&identities), catalog.clone(), hub.ready);
    let told = (own, metrics, &events);
    let remote = clusters::build(client, &hub.gate, settings, parts, told, input.clone())?;
    let context = context(
        settings,
        hub.key,
        (calls, &hub.gate, metrics),
        (events.clone(), notes.clone()),
        identities,
        (remote.seats, doubt),
    );
    let check = Check::new(context.place.clone(), events, doubts);
    let engine = engine(context, metrics, settings, (catalog, remote.outlets));
    loops.spawn(tell(hub.gate, stop.clone()));
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
    context: Context,
    metrics: &Metrics,
    settings: &Settings,
    (catalog, outlets): (watch::Receiver<Published>, Outlets),
) -> Engine {
    let scopes = Scope::of(&settings.watch_namespaces);
    Engine::new(
        Arc::new(context),
        metrics.clone(),
        settings.limits,
        scopes,
        catalog,
        outlets,
    )
}

/// What the platform offers, all namespaces, those of the tasks that something is left of, and what classes are tried with.
type Sights = (
    watch::Sender<Published>,
    watch::Sender<Option<Uids>>,
    watch::Receiver<Arc<BTreeSet<String>>>,
    Check,
);

/// Starts what looks at the platform's objects and at the other hubs.
fn spawn_lookouts(
    loops: &mut JoinSet<()>,
    settings: &Settings,
    (client, metrics, calls): (&Client, &Metrics, &Calls),
    (publish, sight, left, check): Sights,
    stop: &CancellationToken,
) {
    let inquiry = Inquiry {
        pause: Some(recheck::PAUSE),
        ..start::inquiry(client, settings, metrics)
    };
    loops.spawn(recheck::run(
        inquiry,
        settings.start.preflight_interval,
        metrics.clone(),
    ));
    let leases = Leases::new(client.clone(), &settings.start.lease_namespace, metrics.clone());
    let grace = settings.start.unowned_grace;
    loops.spawn(unowned::run(leases, left, grace, metrics.clone()));
    let (fallback, watched) = (settings.fallback_class.clone(), &settings.watch_namespaces);
    let offering = CatalogLoop::new(calls.clone(), fallback, watched, publish);
    let offering = offering.showing(sight).checking(check);
    let namespace = settings.rendering_namespace.clone();
    loops.spawn(offering.run(client.clone(), namespace, metrics.clone(), stop.clone()));
}

/// Tells when the gate closes and opens, until the hub closes it for good.
async fn tell(gate: Gate, stop: CancellationToken) {
    _ = stop.run_until_cancelled(gate::tell(gate)).await;
    std::future::pending::<()>().await;
}

/// What every pass over a task needs.
fn context(
    settings: &Settings,
    key: SealKey,
    (calls, gate, metrics): (&Calls, &Gate, &Metrics),
    (events, notes): (Events, Notes),
    identities: Arc<Identities>,
    (seats, doubts): (Arc<dyn Seats>, mpsc::Sender<String>),
) -> Context {
    Context {
        calls: calls.clone(),
        gate: gate.clone(),
        events,
        notes,
        place: place(settings, calls.hub_id()),
        key,
        identities,
        tenancy: settings.tenancy.clone(),
        seats,
        gates: settings.clusters.gates.clone(),
        patience: clusters::patience(settings),
        verifier: Verifier::new(calls.clone(), metrics.clone()),
        doubts,
    }
}

/// Where Jobs run on the hub's own cluster.
fn place(settings: &Settings, hub_id: &HubId) -> Place {
    Place {
        hub_id: hub_id.clone(),
        cluster: None,
        namespace: settings.rendering_namespace.clone(),
        service_account: settings.renderer_service_account.clone(),
    }
}

/// Who reads what tenants name.
fn identities(clients: &start::Clients, settings: &Settings, metrics: &Metrics) -> Arc<Identities> {
    let method = match settings.tenant_identity {
        TenantIdentity::Token => Method::Token,
        TenantIdentity::Impersonate => Method::Impersonate,
    };
    Arc::new(Identities::new(
        clients.hub.clone(),
        clients.nobody.clone(),
        method,
        settings.tenancy.is_single_tenant,
        metrics.clone(),
    ))
}

/// Starts the watches; they end with the engine that they feed.
fn spawn_watches(
    loops: &mut JoinSet<()>,
    client: &Client,
    hub_id: &HubId,
    settings: &Settings,
    metrics: &Metrics,
    (notes, out): (Notes, mpsc::Sender<Arrived>),
) {
    let scopes = Scope::of(&settings.watch_namespaces);
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
