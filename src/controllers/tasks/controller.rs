//! The controller of tasks: handles watch events, gives tasks to workers, and handles their outcomes.
//!
//! One loop owns the index, so it needs no locks; `inputs` and `outcomes` are its only changes. Workers are tasks of their own,
//! so a panic in one costs its task an error and a retry.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::OptionFuture;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::api::names::TaskUid;
use crate::base::metrics::{ErrorLabels, Metrics, PhaseLabel};
use crate::kubernetes::watch::{ReceivedEvent, TaskWatchScope};
use crate::plan::queue::ConcurrencyLimits;
use crate::plan::remote::site::RemoteTarget;
use crate::plan::task::retention::{FailedJobLimits, Retention};
use crate::remote::SiteRequest;

use super::index::TaskIndex;
use super::reconciler::ReconcileContext;
use super::sites::SiteIndex;
use super::verification::Verifications;
use crate::controllers::platform::PublishedCatalog;
use crate::controllers::sweep::list;

mod adoption;
mod answers;
mod cache_sync;
mod dispatch;
mod enqueue;
mod event_latencies;
mod events;
mod job_slots;
mod ledger;
mod outcomes;
mod outputs;
mod platform_offers;
mod retention;
mod running_work;
mod sites;
mod sweep_schedule;
mod sweeps;
mod work_results;

use adoption::AdoptionRules;
use cache_sync::{CacheSync, SyncSource};
use enqueue::{EnqueueReason, TaskQueue};
use event_latencies::EventLatencies;
use job_slots::JobSlots;
pub use outputs::ControllerOutputs;
use platform_offers::PlatformOffers;
use retention::FinishedTasks;
use running_work::{InFlightChanges, RunningWork, STOPPED, WorkItem, WorkResult};
use sweep_schedule::SweepSchedule;

/// Pause before a sweep that failed is repeated.
const SWEEP_RETRY: Duration = Duration::from_secs(5);

/// What bounds the controller.
#[derive(Clone, Copy, Debug)]
pub struct TaskControllerLimits {
    /// Jobs at once.
    pub caps: ConcurrencyLimits,
    /// Passes at once for tasks that run on the hub's own cluster; more only queue up in the API server.
    pub workers: usize,
    /// Those of them that one namespace may have, so that its many tasks leave others room both in the hub and in the API server.
    pub workers_of_namespace: usize,
    /// Passes at once for tasks that run on any other cluster, in addition to the workers.
    pub passes_elsewhere: usize,
    /// Those of them that one cluster may have, or all the clusters of one namespace's own, so that those that do not answer
    /// leave the others room.
    pub passes_of_cluster: usize,
    /// Passes at once for large tasks that run on the hub's own cluster, in addition to all others: each may hold a task of 1.5
    /// MiB and its objects.
    pub large_passes: usize,
    /// The same for tasks that run on any other cluster.
    pub large_passes_elsewhere: usize,
    /// Those of them that one namespace on the hub's own cluster, one cluster, or all clusters of one namespace's own may have.
    pub large_passes_of_one: usize,
    /// Time between sweeps.
    pub gc_interval: Duration,
    /// Finished tasks that are kept in a namespace; `None` is all.
    pub keep_finished: Option<usize>,
    /// Whether the pipeline makes tasks: it removes those itself.
    pub has_pipeline: bool,
    /// Failed Jobs that are kept on a cluster.
    pub keep_failed: FailedJobLimits,
}

/// The loop's state.
pub struct TaskController {
    context: Arc<ReconcileContext>,
    metrics: Metrics,
    limits: TaskControllerLimits,
    offers: PlatformOffers,
    sync: CacheSync,
    index: TaskIndex,
    queue: TaskQueue,
    slots: JobSlots,
    finished: FinishedTasks,
    running: RunningWork,
    latencies: EventLatencies,
    /// What happened to tasks that workers have.
    in_flight: HashMap<TaskUid, InFlightChanges>,
    sweeps: SweepSchedule,
    sites: SiteIndex,
    site_requests: mpsc::UnboundedSender<SiteRequest>,
    verifications: Verifications,
    adoption: AdoptionRules,
}

impl TaskController {
    /// A controller that has seen nothing yet, for the tasks of these scopes and what the platform offers.
    #[must_use]
    pub fn new(
        context: Arc<ReconcileContext>,
        metrics: Metrics,
        limits: TaskControllerLimits,
        scopes: Vec<TaskWatchScope>,
        catalog: watch::Receiver<PublishedCatalog>,
        outlets: ControllerOutputs,
    ) -> Self {
        let crosses = context.tenancy.crosses_namespaces;
        Self {
            sync: CacheSync::new(&scopes, crosses, outlets.ready),
            adoption: AdoptionRules {
                hub_id: context.hub_placement.hub_id.clone(),
                scopes: scopes.into(),
            },
            index: TaskIndex::new(context.tenancy.clone(), context.timeouts),
            context,
            metrics,
            limits,
            offers: PlatformOffers::new(catalog),
            queue: TaskQueue::default(),
            slots: JobSlots::new(limits.caps, outlets.active),
            finished: FinishedTasks {
                retention: Retention::new(limits.keep_finished, limits.keep_failed),
                has_pipeline: limits.has_pipeline,
            },
            running: RunningWork::default(),
            latencies: EventLatencies::default(),
            in_flight: HashMap::new(),
            sweeps: SweepSchedule::new(Instant::now(), outlets.leftover_namespaces),
            sites: SiteIndex::default(),
            site_requests: outlets.site_requests,
            verifications: Verifications::default(),
        }
    }

    /// Runs until `stop`, then lets the running reconciles end.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<ReceivedEvent>, stop: CancellationToken) {
        self.read_ledger(Duration::ZERO);
        loop {
            self.start_work();
            self.follow_sites();
            let wake = self.next_wake();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(input) = inputs.recv() => self.handle_events(input, &mut inputs),
                Some(ended) = self.running.next() => self.finish(ended),
                ended = self.verifications.next() => self.handle_verification(ended),
                Ok(()) = self.offers.published.changed() => {
                    self.slots.update_limits(&self.offers.catalog());
                    self.mark_synced(&SyncSource::Catalog);
                    self.requeue_blocked();
                }
                () = self.context.fence.opened(), if !self.may_begin() => {}
                Some(()) = OptionFuture::from(wake.map(|at| tokio::time::sleep_until(at.into()))) => {}
            }
        }
        self.running.stopping.cancel();
        while self.running.next().await.is_some() {}
    }

    fn start_work(&mut self) {
        let now = Instant::now();
        self.flush(now);
        let may_begin = self.may_begin();
        self.latencies.set_fenced(!may_begin, now);
        if !may_begin {
            return;
        }
        if self.sync.may_sweep() && self.sweeps.start(now) {
            let (context, stop) = (Arc::clone(&self.context), self.running.stopping.clone());
            self.running.spawn(WorkItem::Sweep, async move {
                let listed = stop.run_until_cancelled(list(&context.hub_client)).await;
                WorkResult::Sweep(listed.unwrap_or(Err(STOPPED)))
            });
        }
        self.start_lists(now);
        if !self.sync.is_complete() {
            return;
        }
        while let Some(uid) = self.slots.queue.grant() {
            self.publish_wait(&uid, now);
            self.latencies.got_slot(&uid, now);
            self.queue.ready(&uid, EnqueueReason::Slot);
        }
        while let Some(uid) = self.finished.take(&mut self.index, now) {
            self.queue.ready(&uid, EnqueueReason::Removal);
        }
        self.start_passes(now);
        self.publish_metrics(now);
    }

    /// Records how long a task waited for its slot.
    fn publish_wait(&self, uid: &TaskUid, now: Instant) {
        let since = self.index.task(uid).and_then(|record| record.waits_since);
        let waited = since.map(|since| now.saturating_duration_since(since));
        self.metrics.queue.waited(waited.unwrap_or_default());
    }

    fn publish_metrics(&mut self, now: Instant) {
        let depth = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.work_queue_depth.set(depth(self.queue.keys.len()));
        for (phase, count) in self.index.phases() {
            let tasks = self.metrics.tasks.get_or_create(&PhaseLabel { phase });
            tasks.set(depth(count));
        }
        self.slots.publish(&self.metrics, now);
    }

    /// Without the Lease no work starts that would only fail; it waits for the next renewal.
    fn may_begin(&self) -> bool {
        self.context.fence.admit().is_ok()
    }

    /// A task with nothing to do needs no slot.
    fn give_slot_back(&mut self, uid: &TaskUid) {
        if let Some(record) = self.index.task(uid) {
            self.slots.queue.remove(record.namespace(), record.created, uid);
        }
    }

    fn fail(&mut self, uid: &TaskUid, kind: &'static str, stage: Option<&'static str>) {
        let record = self.index.task(uid);
        let target = record.and_then(|record| record.remote.target.as_deref());
        // The metrics port needs no credential: the stage would show a tenant what answers at an address of its choice.
        let shown = stage
            .filter(|_| !matches!(target, Some(RemoteTarget::Own(_))))
            .unwrap_or_default();
        let labels = ErrorLabels { kind, stage: shown };
        self.metrics.reconcile_errors.get_or_create(&labels).inc();
        let wait = self.queue.failed(uid);
        tracing::warn!(task = %uid, kind, stage, wait_ms = wait.as_millis(), "a pass failed; it is repeated");
    }

    fn next_wake(&mut self) -> Option<Instant> {
        if !self.may_begin() {
            return self.offers.due;
        }
        let sweep = self.sweeps.next_wake().filter(|_| self.sync.may_sweep());
        let (work, removal) = (
            self.queue.keys.next_wake(),
            self.finished.retention.due(Instant::now()),
        );
        let known = [work, removal, self.slots.look_due].map(|due| due.filter(|_| self.sync.is_complete()));
        let times = [sweep, self.offers.due];
        times.into_iter().chain(known).flatten().min()
    }
}

/// A time by the clock as a time of the process.
fn instant(at: Timestamp) -> Instant {
    let wait = at.duration_since(Timestamp::now());
    Instant::now()
        + Duration::try_from(wait)
            .unwrap_or_default()
            .min(Duration::from_secs(7 * 86_400))
}

#[cfg(test)]
pub(super) mod tests {
    use kube::Client;
    use kube::api::ObjectMeta;
    use serde_json::{Value, json};

    use crate::api::names::{HubId, TaskKind, job_name};
    use crate::controllers::pull_copies::PullCopies;
    use crate::controllers::verify::Verifier;
    use crate::kubernetes::apply::{ApiTransport, HubClient};
    use crate::kubernetes::events::EventRecorder;
    use crate::kubernetes::pod_results::PodResults;
    use crate::kubernetes::tenant::TenantSessions;
    use crate::kubernetes::watch::{JobMetadata, TaskWatchEvent, WatchChange};
    use crate::plan::platform::feature_gates::FeatureGates;
    use crate::plan::platform::identity_method::IdentityMethod;
    use crate::plan::platform::tenancy::TenancyPolicy;
    use crate::plan::remote::lost_cluster::TaskTimeouts;
    use crate::plan::remote::site::Site;
    use crate::plan::task::JobState;
    use crate::plan::task::job::JobPlacement;
    use crate::plan::task::job_state::CompletionHint;
    use crate::plan::task::model::Task;
    use crate::plan::task::status_seal::SealKey;
    use crate::remote::SiteClients;

    use super::super::outcome::{JobUpdate, ReconcileOutcome, StatusUpdate};
    use super::*;
    use crate::kubernetes::tests::client_to_nowhere;

    /// A controller whose calls go nowhere.
    pub(in crate::controllers) fn controller() -> TaskController {
        let client = client_to_nowhere();
        let hub_id = HubId::new("test", "00000000-0000").unwrap();
        let (metrics, _) = Metrics::new();
        let sessions = sessions(&client, &metrics);
        let calls = HubClient::new(
            client.clone(),
            metrics.clone(),
            "rendering".to_owned(),
            hub_id.clone(),
        );
        let context = ReconcileContext {
            hub_client: calls.clone(),
            fence: crate::kubernetes::write_fence::tests::open(),
            events: events(client, &hub_id, &metrics),
            pod_results: PodResults::default(),
            hub_placement: JobPlacement {
                hub_id,
                cluster: None,
                namespace: "rendering".to_owned(),
                service_account: "renderer".to_owned(),
            },
            pull_copies: PullCopies::default(),
            pull_secret_namespace: None,
            key: Arc::new(SealKey::new([7; 32], Timestamp::UNIX_EPOCH)),
            sessions: Arc::new(sessions),
            tenancy: TenancyPolicy::default(),
            site_clients: Arc::new(NoSiteClients),
            feature_gates: FeatureGates::default(),
            timeouts: TaskTimeouts::default(),
            verifier: Verifier::new(calls, metrics.clone()),
            dry_run_requests: mpsc::channel(1).0,
            pull_reports: mpsc::channel(1).0,
        };
        let (_, catalog) = watch::channel(Some(Arc::default()));
        TaskController::new(Arc::new(context), metrics, limits(), scopes(), catalog, outlets())
    }

    fn events(client: Client, hub_id: &HubId, metrics: &Metrics) -> EventRecorder {
        let fence = crate::kubernetes::write_fence::tests::open();
        EventRecorder::new(client, fence, hub_id.to_string(), metrics.clone()).0
    }

    fn outlets() -> ControllerOutputs {
        ControllerOutputs {
            ready: watch::channel(false).0,
            site_requests: mpsc::unbounded_channel().0,
            active: watch::channel(Arc::default()).0,
            leftover_namespaces: watch::channel(Arc::default()).0,
        }
    }

    /// No other cluster is there.
    #[derive(Debug)]
    struct NoSiteClients;

    impl SiteClients for NoSiteClients {
        fn client(&self, _: &Site) -> Option<Arc<dyn ApiTransport>> {
            None
        }

        fn reserve(&self, _: &Site) -> Result<Option<Arc<dyn ApiTransport>>, Instant> {
            Ok(None)
        }
    }

    fn limits() -> TaskControllerLimits {
        let (total, per_namespace) = (2, 2);
        TaskControllerLimits {
            caps: ConcurrencyLimits { total, per_namespace },
            workers: 4,
            workers_of_namespace: 2,
            passes_elsewhere: 3,
            passes_of_cluster: 2,
            large_passes: 2,
            large_passes_elsewhere: 3,
            large_passes_of_one: 1,
            gc_interval: Duration::from_secs(300),
            keep_finished: None,
            has_pipeline: false,
            keep_failed: FailedJobLimits::default(),
        }
    }

    fn sessions(client: &Client, metrics: &Metrics) -> TenantSessions {
        let (hub, anonymous) = (client.clone(), client.clone());
        TenantSessions::new(hub, anonymous, IdentityMethod::Token, false, metrics.clone())
    }

    pub(in crate::controllers) fn scopes() -> Vec<TaskWatchScope> {
        vec![TaskWatchScope {
            kind: TaskKind::RenderTask,
            namespace: None,
        }]
    }

    pub(super) fn see(controller: &mut TaskController, uid: &str) -> TaskUid {
        see_in(controller, "team-a", uid, json!({}))
    }

    fn see_in(controller: &mut TaskController, namespace: &str, uid: &str, spec: Value) -> TaskUid {
        let meta =
            json!({"name": uid, "namespace": namespace, "uid": uid, "resourceVersion": "1", "generation": 1});
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        let task = Task::new(TaskKind::RenderTask, &meta, spec, json!({})).unwrap();
        controller
            .handle_event(TaskWatchEvent::Task(scopes().remove(0), WatchChange::Seen(Box::new(task))).into());
        TaskUid::new(uid)
    }

    /// Holds: D4.
    #[tokio::test]
    async fn a_panic_costs_one_task_an_error_and_a_retry() {
        let mut controller = controller();
        let (broken, other) = (see(&mut controller, "broken"), see(&mut controller, "other"));
        assert_eq!(controller.queue.keys.take(Instant::now()), Some(broken.clone()));
        controller
            .running
            .spawn(WorkItem::Pass(broken.clone()), async { panic!("on purpose") });
        let ended = controller.running.next().await.unwrap();
        controller.finish(ended);
        let errors = controller
            .metrics
            .reconcile_errors
            .get_or_create(&ErrorLabels {
                kind: "Panic",
                stage: "",
            })
            .get();
        assert_eq!((errors, controller.running.passes().len()), (1, 0));
        assert_eq!(
            controller.queue.keys.take(Instant::now()),
            Some(other),
            "the other task goes on"
        );
        let soon = Instant::now() + Duration::from_secs(2);
        assert_eq!(
            controller.queue.keys.take(soon),
            Some(broken),
            "the broken one is tried again"
        );
    }

    #[tokio::test]
    async fn nothing_is_decided_before_everything_was_seen() {
        let mut controller = controller();
        let task = see(&mut controller, "task");
        let all = [
            SyncSource::Jobs,
            SyncSource::Pods,
            SyncSource::Secrets,
            SyncSource::Catalog,
            SyncSource::Ledger,
        ];
        for source in all {
            controller.mark_synced(&source);
            controller.start_work();
            assert!(controller.running.passes().len() == 0 && !*controller.sync.ready.borrow());
        }
        controller.mark_synced(&SyncSource::Tasks(scopes().remove(0)));
        controller.start_work();
        assert!(*controller.sync.ready.borrow());
        assert_eq!(controller.running.passes().next(), Some(&task));
    }

    /// Holds: T1.
    #[tokio::test]
    async fn a_status_that_is_seen_while_a_worker_writes_is_judged_by_what_it_wrote() {
        let seen = |version: &str, status: Value| {
            let meta = json!({
                "name": "task", "namespace": "team-a", "uid": "task", "resourceVersion": version, "generation": 1,
            });
            let meta = serde_json::from_value(meta).unwrap();
            Task::new(TaskKind::RenderTask, &meta, json!({}), status).unwrap()
        };
        let (own, forged) = (json!({"attempts": 1}), json!({"attempts": 2}));
        for (later, is_forged) in [
            (None, false),
            (Some(("9", &forged)), true),
            (Some(("7", &forged)), false),
        ] {
            let mut controller = controller();
            let task = see(&mut controller, "task");
            controller
                .running
                .spawn(WorkItem::Pass(task.clone()), std::future::pending());
            // The event of the worker's own write comes before the worker does.
            for (version, status) in [Some(("8", &own)), later].into_iter().flatten() {
                let change = WatchChange::Seen(Box::new(seen(version, status.clone())));
                controller.handle_event(TaskWatchEvent::Task(scopes().remove(0), change).into());
            }
            controller.running = RunningWork::default();
            let outcome = ReconcileOutcome {
                task: Some(Arc::new(seen("8", own.clone()))),
                status: StatusUpdate {
                    was_written: true,
                    ..StatusUpdate::default()
                },
                ..ReconcileOutcome::default()
            };
            controller.handle_outcome(&task, &outcome);
            controller.handle_deferred_event(&task);
            assert_eq!(
                controller.index.restore_due(&task, Instant::now()).is_some(),
                is_forged
            );
            assert_eq!(controller.metrics.forged_statuses.get(), u64::from(is_forged));
        }
    }

    pub(super) fn mark(task: &TaskUid, hint: CompletionHint) -> JobMetadata {
        JobMetadata {
            task: task.clone(),
            name: job_name(task.as_str(), task),
            uid: "job".to_owned(),
            spec_hash: String::new(),
            chart_url: None,
            hint,
            ended: None,
        }
    }

    /// Holds: D1.
    #[tokio::test]
    async fn a_namespace_has_some_of_the_workers_for_what_runs_here_and_leaves_others_room() {
        let mut controller = controller();
        for uid in ["a", "b", "c", "d"] {
            see(&mut controller, uid);
        }
        controller.sync.unsynced.clear();
        controller.start_work();
        assert_eq!(
            controller.running.passes().len(),
            controller.limits.workers_of_namespace
        );
        see_in(&mut controller, "team-b", "other", json!({}));
        controller.start_work();
        assert_eq!(
            controller.running.passes().len(),
            controller.limits.workers_of_namespace + 1
        );
    }

    #[tokio::test]
    async fn a_slow_cluster_does_not_use_up_what_its_namespace_has_for_others() {
        let mut controller = controller();
        let spec = json!({
            "config": {"type": "slides"}, "repository": "team-a/shop", "tag": "1", "registryRef": {"name": "main"}, "clusterName": "slow",
        });
        for uid in ["a", "b", "c"] {
            see_in(&mut controller, "team-a", uid, spec.clone());
        }
        let here = see(&mut controller, "here");
        controller.sync.unsynced.clear();
        controller.start_work();
        assert!(controller.running.has(&here));
        assert_eq!(
            controller.running.passes().len(),
            controller.limits.passes_of_cluster + 1
        );
    }

    /// A spec for a cluster.
    fn on(cluster: &str) -> Value {
        json!({
            "config": {"type": "slides"}, "repository": "team-a/shop", "tag": "1", "registryRef": {"name": "main"},
            "clusterName": cluster,
        })
    }

    /// Holds: B2.
    #[tokio::test]
    async fn slow_clusters_leave_others_room_and_the_hub_all_of_its_own_workers() {
        let mut controller = controller();
        let passes = |controller: &TaskController| controller.running.passes().len();
        for n in 0..8 {
            see_in(&mut controller, "team-a", &format!("slow-{n}"), on("slow"));
        }
        let other = see_in(&mut controller, "team-a", "other", on("other"));
        controller.sync.unsynced.clear();
        controller.start_work();
        assert!(controller.running.has(&other));
        assert_eq!(passes(&controller), controller.limits.passes_of_cluster + 1);
        for n in 0..8 {
            see_in(
                &mut controller,
                "team-b",
                &format!("slower-{n}"),
                on(&format!("slower-{n}")),
            );
        }
        controller.start_work();
        assert_eq!(passes(&controller), controller.limits.passes_elsewhere);
        for namespace in ["team-a", "team-b", "team-c"] {
            for n in 0..2 {
                see_in(
                    &mut controller,
                    namespace,
                    &format!("here-{namespace}-{n}"),
                    json!({}),
                );
            }
        }
        controller.start_work();
        let all = controller.limits.passes_elsewhere + controller.limits.workers;
        assert_eq!(passes(&controller), all, "all workers are the hub's own");
    }

    #[tokio::test]
    async fn a_job_that_went_while_its_task_was_worked_on_stays_gone() {
        let mut controller = controller();
        let task = see(&mut controller, "task");
        controller
            .running
            .spawn(WorkItem::Pass(task.clone()), std::future::pending());
        controller.handle_event(TaskWatchEvent::Job(None, WatchChange::Gone(task.clone())).into());
        let outcome = ReconcileOutcome {
            job: JobUpdate::Known(mark(&task, CompletionHint::No)),
            ..ReconcileOutcome::default()
        };
        controller.handle_outcome(&task, &outcome);
        assert!(!controller.index.has_job(&task));
    }

    #[tokio::test]
    async fn a_job_that_ended_while_its_task_was_worked_on_is_read_right_after() {
        let mut controller = controller();
        let task = see(&mut controller, "task");
        let may_have_ended = |controller: &TaskController, now| {
            let (view, _) = controller.index.view(&task, Timestamp::UNIX_EPOCH, now);
            matches!(view.unwrap().job, JobState::Seen { may_have_ended, .. } if may_have_ended)
        };
        let outcome = |job| ReconcileOutcome {
            job,
            ..ReconcileOutcome::default()
        };
        assert_eq!(controller.queue.keys.take(Instant::now()), Some(task.clone()));
        controller.handle_event(
            TaskWatchEvent::Job(None, WatchChange::Seen(mark(&task, CompletionHint::Now))).into(),
        );
        controller.handle_outcome(&task, &outcome(JobUpdate::Known(mark(&task, CompletionHint::No))));
        controller.queue.keys.done(&task);
        let now = Instant::now();
        assert_eq!(controller.queue.keys.take(now), Some(task.clone()));
        assert!(may_have_ended(&controller, now));
        // The Job still ran when it was read; it is read again without another event, after a pause.
        controller.handle_outcome(
            &task,
            &outcome(JobUpdate::Read(mark(&task, CompletionHint::Now), now)),
        );
        controller.queue.keys.done(&task);
        assert_eq!(controller.queue.keys.take(Instant::now()), None);
        let later = now + Duration::from_secs(60);
        assert_eq!(controller.queue.keys.take(later), Some(task.clone()));
        assert!(may_have_ended(&controller, later));
    }
}
