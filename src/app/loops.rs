//! Builds the loops and connects them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::error::AppError;
use super::hub_parts::HubParts;
use super::{clusters, preflight_loop, start, unserved_namespaces};
use crate::controllers::pipeline::{PipelineController, PipelinePruning};
use crate::controllers::platform::{CatalogController, DryRunContext, PublishedCatalog};
use crate::controllers::prune::{PermittedAddresses, Pruner, PrunerParts};
use crate::controllers::pull_copies::PullCopies;
use crate::controllers::tasks::controller::{ControllerOutputs, TaskController};
use crate::controllers::tasks::reconciler::ReconcileContext;
use crate::controllers::verify::Verifier;
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::lease::LeaseClient;
use crate::kubernetes::pod_results::PodResults;
use crate::kubernetes::preflight::FactCollector;
use crate::kubernetes::tenant::TenantSessions;
use crate::kubernetes::watch as watches;
use crate::kubernetes::watch::{PipelineTaskSender, ReceivedEvent, TaskWatchScope};
use crate::kubernetes::write_fence;
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::pull_secrets::pull_failure::PullReport;
use crate::plan::task::job::JobPlacement;
use crate::plan::task::status_seal::SealKey;
use crate::remote::SiteClients;
use crate::remote::resolve::Resolver;

/// Events that wait for the task controller, each up to a whole task of 1.5 MiB; a full channel only makes a watch wait.
const BACKLOG: usize = 32;

/// Tasks that wait for the pipeline, each with a repository and a tag; a full channel only makes the watch of tasks wait.
const PIPELINE_BACKLOG: usize = 256;

/// Refused renderer classes that wait for a dry run; a class that finds the channel full is sent again by its next refused Job.
const REFUSED_CLASSES: usize = 16;

/// Reports on images that wait for the catalog controller; one that finds the channel full is made again by the next look.
const PULL_REPORTS: usize = 16;

/// What is drained when the hub stops.
pub(super) struct DrainedTasks {
    /// The sender of Kubernetes events.
    pub events: JoinHandle<()>,
    /// The controllers of tasks and of the pipeline, which finish what they write: none of it may meet a successor.
    pub controllers: JoinSet<()>,
}

/// Starts every loop. `ready` is set once the hub knows all tasks; `namespaces` are the UIDs that were read at the start.
pub(super) fn start(
    loops: &mut JoinSet<()>,
    hub: HubParts,
    key: SealKey,
    ready: watch::Sender<bool>,
    namespaces: BTreeMap<String, String>,
) -> Result<DrainedTasks, AppError> {
    let (publish, catalog) = watch::channel(None);
    let (namespace_uids, uids) = watch::channel(None);
    let (input, inputs) = mpsc::channel(BACKLOG);
    let (refused, refused_classes) = mpsc::channel(REFUSED_CLASSES);
    let (pull_reports, reports) = mpsc::channel(PULL_REPORTS);
    let (events, send_events) = hub.events();
    let results = PodResults::default();
    let dependencies = clusters::RemoteDependencies {
        sessions: hub.sessions(),
        catalog: catalog.clone(),
        ready,
        own_namespaces: clusters::own_namespaces(namespaces, uids.clone()),
        events: events.clone(),
        inputs: input.clone(),
    };
    let sessions = Arc::clone(&dependencies.sessions);
    let key = Arc::new(key);
    let mut controllers = JoinSet::new();
    let pipeline = hub.spawn_pipeline(&mut controllers, &key, &catalog, (&sessions, &events))?;
    let remote = clusters::build(&hub, dependencies)?;
    let dry_runs = DryRunContext::new(hub.placement(), events.clone(), refused_classes);
    hub.spawn_catalog(loops, publish, namespace_uids, (dry_runs, reports));
    let context = hub.context(
        key,
        events,
        &results,
        sessions,
        remote.site_clients,
        (refused, pull_reports),
    );
    let tasks = hub.task_controller(context, catalog, remote.outputs);
    loops.spawn(log_fence(hub.fence.clone(), hub.stop.clone()));
    loops.spawn(clusters::run(remote.controller, uids, hub.stop.clone()));
    hub.spawn_checks(loops, remote.leftover_namespaces);
    hub.spawn_watches(loops, &results, &input, pipeline.as_ref());
    controllers.spawn(tasks.run(inputs, hub.stop));
    Ok(DrainedTasks {
        events: tokio::spawn(send_events),
        controllers,
    })
}

/// Logs when the fence closes and opens, until the hub closes it for good.
async fn log_fence(fence: WriteFence, stop: CancellationToken) {
    _ = stop
        .run_until_cancelled(write_fence::log_transitions(fence))
        .await;
    std::future::pending::<()>().await;
}

impl HubParts {
    /// The sessions in which the hub reads as a tenant.
    fn sessions(&self) -> Arc<TenantSessions> {
        Arc::new(TenantSessions::new(
            self.client.clone(),
            self.anonymous.clone(),
            self.settings.identity_method,
            self.settings.tenancy.is_single_tenant,
            self.metrics.clone(),
        ))
    }

    /// Where Jobs run on the hub's own cluster.
    fn placement(&self) -> JobPlacement {
        JobPlacement {
            hub_id: self.hub_client.hub_id().clone(),
            cluster: None,
            namespace: self.settings.rendering_namespace.clone(),
            service_account: self.settings.renderer_service_account.clone(),
        }
    }

    fn task_controller(
        &self,
        context: ReconcileContext,
        catalog: watch::Receiver<PublishedCatalog>,
        outputs: ControllerOutputs,
    ) -> TaskController {
        let scopes = TaskWatchScope::of(&self.settings.watch_namespaces);
        let (metrics, limits) = (self.metrics.clone(), self.settings.limits);
        TaskController::new(Arc::new(context), metrics, limits, scopes, catalog, outputs)
    }

    /// The recorder of Kubernetes events, and the loop that sends them.
    fn events(&self) -> (EventRecorder, impl Future<Output = ()> + use<>) {
        let hub_id = self.hub_client.hub_id().to_string();
        let (client, fence) = (self.client.clone(), self.fence.clone());
        EventRecorder::new(client, fence, hub_id, self.metrics.clone())
    }

    /// What every reconcile of a task needs.
    fn context(
        &self,
        key: Arc<SealKey>,
        events: EventRecorder,
        results: &PodResults,
        sessions: Arc<TenantSessions>,
        site_clients: Arc<dyn SiteClients>,
        (dry_run_requests, pull_reports): (mpsc::Sender<String>, mpsc::Sender<PullReport>),
    ) -> ReconcileContext {
        ReconcileContext {
            hub_client: self.hub_client.clone(),
            fence: self.fence.clone(),
            events,
            pod_results: results.clone(),
            pull_copies: PullCopies::default(),
            pull_secret_namespace: self.settings.pull_secret_namespace.clone(),
            hub_placement: self.placement(),
            key,
            sessions,
            tenancy: self.settings.tenancy.clone(),
            site_clients,
            feature_gates: self.settings.clusters.feature_gates.clone(),
            timeouts: clusters::timeouts(&self.settings),
            verifier: Verifier::new(self.hub_client.clone(), self.metrics.clone()),
            dry_run_requests,
            pull_reports,
        }
    }

    fn spawn_catalog(
        &self,
        loops: &mut JoinSet<()>,
        publish: watch::Sender<PublishedCatalog>,
        uids: watch::Sender<Option<NamespaceUids>>,
        (dry_runs, pull_reports): (DryRunContext, mpsc::Receiver<PullReport>),
    ) {
        let (hub_client, fallback) = (self.hub_client.clone(), self.settings.fallback_class.clone());
        let watched = &self.settings.watch_namespaces;
        let controller = CatalogController::new(hub_client, fallback, watched, publish)
            .with_namespace_uids(uids)
            .with_pull_secrets(self.settings.pull_secret_namespace.clone(), pull_reports)
            .with_dry_runs(dry_runs);
        let (client, namespace) = (self.client.clone(), self.settings.rendering_namespace.clone());
        let (metrics, stop) = (self.metrics.clone(), self.stop.clone());
        loops.spawn(controller.run(client, namespace, metrics, stop));
    }

    /// Starts the pipeline in front of tasks, where it is on; where it is shown its tasks.
    fn spawn_pipeline(
        &self,
        controllers: &mut JoinSet<()>,
        key: &Arc<SealKey>,
        catalog: &watch::Receiver<PublishedCatalog>,
        (sessions, events): (&Arc<TenantSessions>, &EventRecorder),
    ) -> Result<Option<PipelineTaskSender>, AppError> {
        let Some(settings) = self.settings.pipeline.clone() else {
            return Ok(None);
        };
        let (hub_client, metrics) = (self.hub_client.clone(), self.metrics.clone());
        let pruning = PipelinePruning {
            pruner: self.pruner(sessions)?,
            tenancy: self.settings.tenancy.clone(),
            events: events.clone(),
        };
        let (out, tasks) = mpsc::channel(PIPELINE_BACKLOG);
        let (own_key, catalog) = (Arc::clone(key), catalog.clone());
        let controller = PipelineController::new(hub_client, settings, own_key, metrics, catalog, pruning);
        controllers.spawn(controller.run(self.client.clone(), tasks, self.stop.clone()));
        let key = Arc::clone(key);
        Ok(Some(PipelineTaskSender { out, key }))
    }

    /// What deletes charts from registries.
    fn pruner(&self, sessions: &Arc<TenantSessions>) -> Result<Pruner, AppError> {
        let addresses = PermittedAddresses {
            policy: clusters::address_policy(&self.settings),
            resolver: Resolver::system().map_err(|_| AppError::NoResolver)?,
        };
        Ok(Pruner::new(PrunerParts {
            hub_client: self.hub_client.clone(),
            sessions: Arc::clone(sessions),
            tenancy: self.settings.tenancy.clone(),
            fence: self.fence.clone(),
            metrics: self.metrics.clone(),
            addresses: Arc::new(addresses),
        }))
    }

    /// Starts the repeated checks: the preflight, and the namespaces that no hub serves.
    fn spawn_checks(&self, loops: &mut JoinSet<()>, leftovers: clusters::LeftoverNamespaces) {
        let facts = FactCollector {
            pause: Some(preflight_loop::PAUSE),
            ..start::fact_collector(&self.client, &self.settings, &self.metrics)
        };
        let settings = &self.settings.start;
        loops.spawn(preflight_loop::run(
            facts,
            settings.preflight_interval,
            self.metrics.clone(),
        ));
        let leases = LeaseClient::new(
            self.client.clone(),
            &settings.lease_namespace,
            self.metrics.clone(),
        );
        loops.spawn(unserved_namespaces::run(
            leases,
            leftovers,
            settings.unowned_grace,
            self.metrics.clone(),
        ));
    }

    /// Starts the watches; they end with the controller that they feed.
    fn spawn_watches(
        &self,
        loops: &mut JoinSet<()>,
        results: &PodResults,
        out: &mpsc::Sender<ReceivedEvent>,
        pipeline: Option<&PipelineTaskSender>,
    ) {
        let scopes = TaskWatchScope::of(&self.settings.watch_namespaces);
        for namespace in watches::tenants(&scopes) {
            let (client, metrics) = (self.client.clone(), self.metrics.clone());
            if self.settings.tenancy.crosses_namespaces {
                let (client, namespace) = (client.clone(), namespace.clone());
                loops.spawn(watches::grants(client, namespace, metrics.clone(), out.clone()));
            }
            loops.spawn(watches::registries(client, namespace, metrics, out.clone()));
        }
        for scope in scopes {
            let (client, metrics) = (self.client.clone(), self.metrics.clone());
            loops.spawn(watches::tasks(
                client,
                scope,
                metrics,
                out.clone(),
                pipeline.cloned(),
            ));
        }
        let namespace = || self.settings.rendering_namespace.clone();
        let hub_id = || self.hub_client.hub_id().clone();
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        loops.spawn(watches::jobs(client, namespace(), hub_id(), metrics, out.clone()));
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let (results, out) = (results.clone(), out.clone());
        loops.spawn(watches::pods(
            client,
            namespace(),
            hub_id(),
            metrics,
            results,
            out,
        ));
    }
}
