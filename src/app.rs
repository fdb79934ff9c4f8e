//! Builds the hub, supervises its loops and drains it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::config::AuthInfo;
use kube::core::PartialObjectMeta;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::apply::Calls;
use crate::config::{Settings, TenantIdentity};
use crate::controller::catalog::CatalogLoop;
use crate::controller::engine::Engine;
use crate::controller::worker::Context;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::names::{HubId, HubIdError};
use crate::notes::Notes;
use crate::plan::job::Place;
use crate::plan::seal::SealKey;
use crate::seal_key::{self, SealKeyError};
use crate::tenant::{Identities, Method};
use crate::watch::{self as watches, Input, Scope};

/// Inputs that may wait for the engine, each up to a whole task of 1.5 MiB; a full channel only makes a watch wait.
const BACKLOG: usize = 32;
/// Longest wait for events at the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// Pause before the API server is asked again for what the hub id is made of.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Longest wait for the answer that the hub id is made of.
const DEADLINE: Duration = Duration::from_secs(30);

/// Why the hub does not run, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Neither in-cluster configuration nor a kubeconfig of its own.
    #[error("no configuration of the hub's cluster: run in a pod, or set KUBECONFIG")]
    NoCluster,
    /// Variables that would change the hub's identity behind its back.
    #[error("{0} is set; the hub does not run under a debugging identity")]
    DebugIdentity(&'static str),
    /// The kube-system namespace cannot be read.
    #[error("the namespace kube-system cannot be read; the hub needs get on it for its id")]
    NoClusterId,
    /// The hub id cannot be made.
    #[error(transparent)]
    HubId(#[from] HubIdError),
    /// There is nothing to seal statuses with.
    #[error(transparent)]
    SealKey(#[from] SealKeyError),
    /// The admin address cannot be bound.
    #[error("the admin address cannot be bound")]
    Bind(#[source] std::io::Error),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    /// A loop that must run for ever ended.
    #[error("a loop of the hub ended")]
    LoopEnded,
}

/// Runs the hub until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting, or that one of its loops ended.
pub async fn run(settings: Settings) -> Result<(), AppError> {
    let clients = clients().await?;
    let listener = TcpListener::bind(settings.admin_address)
        .await
        .map_err(AppError::Bind)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(AppError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AppError::Signals)?;
    let stop = CancellationToken::new();
    let (metrics, registry) = Metrics::new();
    let (ready, is_ready) = watch::channel(false);
    let mut loops = JoinSet::new();
    let admin = admin::serve(listener, registry, is_ready, stop.clone());
    loops.spawn(async move { _ = admin.await });
    let (calls, key) = tokio::select! {
        found = calls(&clients.hub, &settings, &metrics) => found?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let (events, engine) = start(
        &mut loops,
        &clients,
        (calls, key),
        &settings,
        (metrics, ready),
        &stop,
    );
    let mut engine = tokio::spawn(engine);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = loops.join_next() => return Err(AppError::LoopEnded),
        _ = &mut engine => return Err(AppError::LoopEnded),
    }
    tracing::info!("stopping; work under way is finished");
    stop.cancel();
    if tokio::time::timeout(settings.grace_period, engine).await.is_err() {
        tracing::warn!("work was still under way after the grace period; the next start goes on with it");
    }
    // Ends by itself once it told the last of what the engine handed in.
    if tokio::time::timeout(LAST_EVENTS, events).await.is_err() {
        tracing::warn!("some events were not told");
    }
    loops.shutdown().await;
    Ok(())
}

/// What every loop needs first: who the hub is, and what it seals with.
async fn calls(
    client: &Client,
    settings: &Settings,
    metrics: &Metrics,
) -> Result<(Calls, SealKey), AppError> {
    let hub_id = hub_id(client, &settings.shard_name).await?;
    let namespace = settings.rendering_namespace.clone();
    tracing::info!(hub_id = %hub_id, rendering_namespace = namespace, "starting");
    let calls = Calls::new(client.clone(), metrics.clone(), namespace, hub_id);
    let key = seal_key::load(&calls).await?;
    Ok((calls, key))
}

/// Starts every loop; the sender of events and the engine are returned to be drained on their own.
fn start(
    loops: &mut JoinSet<()>,
    clients: &Clients,
    (calls, key): (Calls, SealKey),
    settings: &Settings,
    (metrics, ready): (Metrics, watch::Sender<bool>),
    stop: &CancellationToken,
) -> (JoinHandle<()>, impl Future<Output = ()> + use<>) {
    let client = &clients.hub;
    let namespace = settings.rendering_namespace.clone();
    let hub_id = calls.hub_id().clone();
    let (events, send_events) = Events::new(client.clone(), hub_id.to_string(), metrics.clone());
    let notes = Notes::default();
    let place = Place {
        hub_id: hub_id.clone(),
        namespace: namespace.clone(),
        service_account: settings.renderer_service_account.clone(),
    };
    let context = Arc::new(Context {
        calls: calls.clone(),
        events,
        notes: notes.clone(),
        place,
        key,
        identities: Identities::new(
            client.clone(),
            clients.nobody.clone(),
            method(settings.tenant_identity),
            settings.tenancy.is_single_tenant,
            metrics.clone(),
        ),
        tenancy: settings.tenancy.clone(),
    });
    let (publish, catalog) = watch::channel(None);
    let (input, inputs) = mpsc::channel(BACKLOG);
    let engine = Engine::new(
        context,
        metrics.clone(),
        settings.limits,
        Scope::of(&settings.watch_namespaces),
        catalog,
        ready,
    );
    let fallback = settings.fallback_class.clone();
    let offering = CatalogLoop::new(calls, fallback, &settings.watch_namespaces, publish);

    loops.spawn(offering.run(client.clone(), namespace.clone(), metrics.clone(), stop.clone()));
    spawn_watches(loops, client, &hub_id, settings, &metrics, notes, input);
    (tokio::spawn(send_events), engine.run(inputs, stop.clone()))
}

/// Starts the watches; they end with the engine that they feed.
fn spawn_watches(
    loops: &mut JoinSet<()>,
    client: &Client,
    hub_id: &HubId,
    settings: &Settings,
    metrics: &Metrics,
    notes: Notes,
    out: mpsc::Sender<Input>,
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

const fn method(identity: TenantIdentity) -> Method {
    match identity {
        TenantIdentity::Token => Method::Token,
        TenantIdentity::Impersonate => Method::Impersonate,
    }
}

/// Clients of the hub's own cluster. kube's own retries are off: they repeat writes, without a bound on the wait.
struct Clients {
    hub: Client,
    /// Reaches the same API server without any credential.
    nobody: Client,
}

async fn clients() -> Result<Clients, AppError> {
    let debugging = [
        "KUBE_RS_DEBUG_IMPERSONATE_USER",
        "KUBE_RS_DEBUG_IMPERSONATE_GROUP",
        "KUBE_RS_DEBUG_OVERRIDE_URL",
    ];
    if let Some(set) = debugging
        .into_iter()
        .find(|name| std::env::var_os(name).is_some())
    {
        return Err(AppError::DebugIdentity(set));
    }
    let mut config = match Config::incluster() {
        Ok(config) => config,
        Err(_) => Config::from_kubeconfig(&kube::config::KubeConfigOptions::default())
            .await
            .map_err(|_| AppError::NoCluster)?,
    };
    config.default_retry = false;
    config.proxy_url = None;
    let mut nobody = config.clone();
    nobody.auth_info = AuthInfo::default();
    let client = |config| Client::try_from(config).map_err(|_| AppError::NoCluster);
    Ok(Clients {
        hub: client(config)?,
        nobody: client(nobody)?,
    })
}

/// The hub's id, for which the API server is asked until it answers: a hub that starts before it is no broken hub.
async fn hub_id(client: &Client, shard: &str) -> Result<HubId, AppError> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
    loop {
        match tokio::time::timeout(DEADLINE, api.get_metadata("kube-system")).await {
            Ok(Ok(namespace)) => {
                let uid = namespace.metadata.uid.ok_or(AppError::NoClusterId)?;
                return Ok(HubId::new(shard, &uid)?);
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403 | 404) => {
                return Err(AppError::NoClusterId);
            }
            _ => tracing::warn!("the API server does not answer; it is asked again"),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
