//! The program that gives operators the pull Secrets of their catalogs: it needs no Lease, because each of its writes names the object
//! that it is meant for.

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::error::AppError;
use super::program::Program;
use super::signals::LAST_EVENTS;
use super::start;
use crate::app::config::PullSecretSettings;
use crate::base::metrics::Metrics;
use crate::controllers::olm::{NamespaceRecorder, OlmController, OlmControllerParts, OlmWatches};
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::pull_secrets::{COPY_MANAGER, PullSecretClient};
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::lease::InstanceState;
use crate::plan::pull_secrets::olm::PullSecretLimits;

/// Runs until SIGTERM or SIGINT: it listens, watches, writes what differs, and lets writes under way end.
///
/// # Errors
/// What keeps it from starting.
pub async fn pull_secrets(settings: PullSecretSettings) -> Result<(), AppError> {
    let fence = WriteFence::without_lease();
    let client = start::clients(fence.clone()).await?.hub;
    let Program {
        mut loops,
        stop,
        metrics,
        ready,
        ..
    } = Program::start(settings.admin_address, InstanceState::Active).await?;
    let (events, send_events) =
        EventRecorder::new(client.clone(), fence, COPY_MANAGER.to_owned(), metrics.clone());
    let send_events = tokio::spawn(send_events);
    tracing::info!("giving operators the pull Secrets of their catalogs");
    run_controller(settings, client, metrics, events, (ready, stop)).await?;
    // It ends once it has sent the last event.
    if tokio::time::timeout(LAST_EVENTS, send_events).await.is_err() {
        tracing::warn!("the program stops before it has sent all its events");
    }
    loops.shutdown().await;
    Ok(())
}

/// Starts the watches, and runs the loop that they feed until `stop`.
async fn run_controller(
    settings: PullSecretSettings,
    client: Client,
    metrics: Metrics,
    events: EventRecorder,
    (ready, stop): (watch::Sender<bool>, CancellationToken),
) -> Result<(), AppError> {
    let calls = PullSecretClient::new(client, metrics.clone());
    let config = start::cluster_config().await?;
    let (destinations, catalogs) = (settings.namespaces, settings.catalog_namespaces);
    let watches = OlmWatches::start(&config, &calls, &metrics, &destinations, &catalogs);
    let watches = watches.map_err(|_| AppError::NoCluster)?;
    let controller = OlmController::new(OlmControllerParts {
        recorder: Arc::new(NamespaceRecorder::new(calls.clone(), settings.record_namespace)),
        calls,
        events,
        limits: PullSecretLimits::with_destinations(settings.max_destinations),
        destinations,
        catalogs,
        ready,
    });
    controller.run(watches, stop).await;
    Ok(())
}
