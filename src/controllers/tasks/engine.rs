//! The loop that owns what the hub remembers: it takes in what the watches see, hands tasks to workers, and takes in
//! what they bring.
//!
//! One owner means no locks. `inputs` and `outcomes` are the two ways in which what it remembers changes.
//! Workers are tasks of their own, so a panic in one costs its task an error and a retry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::OptionFuture;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::api::names::TaskUid;
use crate::base::metrics::{ErrorLabels, Metrics};
use crate::kubernetes::watch::{Arrived, Scope};
use crate::plan::platform::grants::Grants;
use crate::plan::queue::backoff::Backoff;
use crate::plan::queue::workqueue::WorkQueue;
use crate::plan::queue::{Caps, FairQueue};
use crate::plan::remote::ledger::Changes;
use crate::plan::remote::placement::Target;
use crate::plan::remote::site::Site;
use crate::plan::task::model::Task;
use crate::plan::task::retention::{KeptFailures, Retention};
use crate::remote::Want;

use super::index::Index;
use super::sites::Sites;
use super::worker::Context;
use crate::controllers::platform::Published;
use crate::controllers::sweep::list;

mod adoption;
mod answers;
mod inputs;
mod journeys;
mod ledger;
mod outcomes;
mod passes;
mod ports;
mod questions;
mod retention;
mod running;
mod shown;
mod sites;
mod sources;
mod sweeps;
mod wakes;
mod work;

use journeys::Journeys;
pub use ports::Outlets;
use questions::Questions;
use running::{Errand, Finished, Running};
use sources::{Source, unseen};
use wakes::{Wake, later, ready};

/// Pause before a sweep that failed is repeated.
const SWEEP_RETRY: Duration = Duration::from_secs(5);

/// What bounds the engine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs at once.
    pub caps: Caps,
    /// Passes at once for tasks that run on the hub's own cluster; more only queue up in the API server.
    pub workers: usize,
    /// Those of them that one namespace may have, so that its many tasks leave others room both in the hub and in the API server.
    pub workers_of_namespace: usize,
    /// Passes at once for tasks that run on any other cluster, beside those of the workers.
    pub passes_elsewhere: usize,
    /// Those of them that one cluster may have, or all the clusters of one namespace's own, so that those that do not answer
    /// leave the others room.
    pub passes_of_cluster: usize,
    /// Passes at once for large tasks that run on the hub's own cluster, beside all others: each may hold a task of 1.5 MiB and
    /// what is made of it.
    pub large_passes: usize,
    /// The same for tasks that run on any other cluster.
    pub large_passes_elsewhere: usize,
    /// Those of them that one namespace on the hub's own cluster, one cluster, or all clusters of one namespace's own may have.
    pub large_passes_of_one: usize,
    /// Time between sweeps.
    pub gc_interval: Duration,
    /// Finished tasks that are kept in a namespace; `None` is all.
    pub keep_finished: Option<usize>,
    /// Failed Jobs that are kept on a cluster.
    pub keep_failed: KeptFailures,
}

/// The loop's state.
pub struct Engine {
    context: Arc<Context>,
    metrics: Metrics,
    limits: Limits,
    catalog: watch::Receiver<Published>,
    ready: watch::Sender<bool>,
    index: Index,
    queue: WorkQueue<TaskUid>,
    fair: FairQueue,
    retention: Retention,
    /// When the queue is looked at by namespace; `None` while nobody waits.
    look_due: Option<Instant>,
    backoff: Backoff<TaskUid>,
    running: Running,
    journeys: Journeys,
    /// Tasks whose pass began before the catalog changed: what it found is not kept.
    outdated: HashSet<TaskUid>,
    /// What the watch showed of tasks that a worker has, the newest of each: until it is back nobody knows which status on
    /// the object is the worker's.
    parked: HashMap<TaskUid, (Scope, Box<Task>, Instant)>,
    /// Tasks whose Job went while a worker had them.
    jobs_gone: HashSet<TaskUid>,
    /// References that namespaces allow.
    grants: Arc<Grants>,
    /// Grants that each list under way has shown so far.
    shown_grants: HashMap<Option<Arc<str>>, BTreeSet<String>>,
    /// Namespaces in which a tenant changed something that tasks may wait for, and when they are told.
    soiled: HashSet<String>,
    clean_due: Option<Instant>,
    /// What was not seen whole yet.
    unseen: HashSet<Source>,
    /// How many scopes of tasks there are, and those that the hub may not look at.
    scopes: usize,
    refused: HashSet<Scope>,
    sweep_due: Instant,
    is_sweeping: bool,
    sites: Sites,
    questions: Questions,
    /// Sites where what is there is to be listed, and those where it is being listed.
    lists: WorkQueue<Arc<Site>>,
    listing: HashSet<Arc<Site>>,
    wants: mpsc::UnboundedSender<Want>,
    active: watch::Sender<Arc<BTreeMap<String, usize>>>,
    left: watch::Sender<Arc<BTreeSet<String>>>,
    /// Entries of the ledger that are not written yet.
    unwritten: Changes,
    is_writing_ledger: bool,
    all_scopes: Arc<[Scope]>,
}

impl Engine {
    /// An engine that has seen nothing yet, for the tasks of these scopes and what the platform offers.
    #[must_use]
    pub fn new(
        context: Arc<Context>,
        metrics: Metrics,
        limits: Limits,
        scopes: Vec<Scope>,
        catalog: watch::Receiver<Published>,
        outlets: Outlets,
    ) -> Self {
        let crosses = context.tenancy.crosses_namespaces;
        Self {
            all_scopes: scopes.clone().into(),
            index: Index::new(context.tenancy.clone(), context.patience),
            context,
            metrics,
            limits,
            catalog,
            ready: outlets.ready,
            queue: WorkQueue::default(),
            fair: FairQueue::new(limits.caps),
            retention: Retention::new(limits.keep_finished, limits.keep_failed),
            look_due: None,
            backoff: Backoff::default(),
            running: Running::default(),
            journeys: Journeys::default(),
            outdated: HashSet::new(),
            parked: HashMap::new(),
            jobs_gone: HashSet::new(),
            grants: Arc::default(),
            shown_grants: HashMap::new(),
            soiled: HashSet::new(),
            clean_due: None,
            scopes: scopes.len(),
            refused: HashSet::new(),
            unseen: unseen(scopes, crosses),
            sweep_due: Instant::now(),
            is_sweeping: false,
            sites: Sites::default(),
            questions: Questions::default(),
            lists: WorkQueue::default(),
            listing: HashSet::new(),
            wants: outlets.wants,
            active: outlets.active,
            left: outlets.left,
            unwritten: Changes::new(),
            is_writing_ledger: false,
        }
    }

    /// Runs until `stop`, then lets the passes under way end.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Arrived>, stop: CancellationToken) {
        self.read_ledger();
        loop {
            self.start_work();
            let wake = self.next_wake();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(input) = inputs.recv() => self.take_in_all(input, &mut inputs),
                Some(ended) = self.running.next() => self.finish(ended),
                ended = self.questions.next() => self.take_answer(ended),
                Ok(()) = self.catalog.changed() => {
                    self.take_caps();
                    self.saw(&Source::Catalog);
                    self.wake_blocked();
                }
                waiting = self.context.notes.wait_began() => self.let_wait(&waiting),
                () = self.context.gate.opened(), if !self.may_begin() => {}
                Some(()) = OptionFuture::from(wake.map(|at| tokio::time::sleep_until(at.into()))) => {}
            }
        }
        self.context.notes.hurry();
        while self.running.next().await.is_some() {}
    }

    fn start_work(&mut self) {
        let now = Instant::now();
        self.clean(now);
        let may_begin = self.may_begin();
        self.journeys.fence(!may_begin, now);
        if !may_begin {
            return;
        }
        // The first list of Secrets is made when all else is known, to be compared with it.
        let is_known = self.unseen.iter().all(|source| *source == Source::Secrets);
        if is_known && self.sweep_due <= now && !self.is_sweeping {
            self.is_sweeping = true;
            let context = Arc::clone(&self.context);
            self.running.spawn(Errand::Sweep, async move {
                Finished::Sweep(list(&context.calls).await)
            });
        }
        self.start_lists(now);
        if !self.unseen.is_empty() {
            return;
        }
        while let Some(uid) = self.fair.grant() {
            self.show_wait(&uid, now);
            self.journeys.has_turn(&uid, now);
            ready(&mut self.queue, &uid, Wake::Slot);
        }
        self.start_removals(now);
        self.start_passes(now);
        self.show(now);
    }

    /// Without a claim nothing is begun that would only fail; what is due waits for the next renewal.
    fn may_begin(&self) -> bool {
        self.context.gate.admit().is_ok()
    }

    /// A task with nothing to do needs no slot.
    fn give_slot_back(&mut self, uid: &TaskUid) {
        if let Some(record) = self.index.task(uid) {
            self.fair.leave(record.namespace(), record.created, uid);
        }
    }

    fn fail(&mut self, uid: &TaskUid, kind: &'static str, stage: Option<&'static str>) {
        // The port of the metrics asks for no credential: there it would tell a tenant what answers at an address of its choice.
        let shown = stage
            .filter(|_| !self.is_for_own_cluster(uid))
            .unwrap_or_default();
        let labels = ErrorLabels { kind, stage: shown };
        self.metrics.reconcile_errors.get_or_create(&labels).inc();
        let wait = self.backoff.failed(uid);
        later(&mut self.queue, uid, Instant::now() + wait, Wake::BackOff);
        tracing::warn!(task = %uid, kind, stage, wait_ms = wait.as_millis(), "a pass failed; it is repeated");
    }

    /// Whether a task's Job is for a cluster that its tenant names.
    fn is_for_own_cluster(&self, uid: &TaskUid) -> bool {
        let target = self
            .index
            .task(uid)
            .and_then(|record| record.abroad.target.as_deref());
        matches!(target, Some(Target::Own(_)))
    }

    fn next_wake(&mut self) -> Option<Instant> {
        if !self.may_begin() {
            return self.clean_due;
        }
        let is_known = self.unseen.iter().all(|source| *source == Source::Secrets);
        let sweep = (is_known && !self.is_sweeping).then_some(self.sweep_due);
        let work = self.unseen.is_empty().then(|| self.queue.next_wake());
        let lists = (is_known && self.listing.is_empty()).then(|| self.lists.next_wake());
        let removal = self.retention.due(Instant::now());
        let known = [removal, self.look_due].map(|due| due.filter(|_| self.unseen.is_empty()));
        let times = [sweep, work.flatten(), self.clean_due, lists.flatten()];
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
    use kube::api::ObjectMeta;
    use kube::{Client, Config};
    use serde_json::{Value, json};

    use crate::api::RendererClassSpec;
    use crate::api::names::{HubId, TaskKind};
    use crate::controllers::verify::Verifier;
    use crate::kubernetes::apply::{Calls, Wire};
    use crate::kubernetes::events::Events;
    use crate::kubernetes::notes::Notes;
    use crate::kubernetes::tenant::{Identities, Method};
    use crate::kubernetes::watch::{Change, Input, JobMark};
    use crate::plan::platform::catalog::Catalog;
    use crate::plan::platform::gates::Gates;
    use crate::plan::platform::tenancy::Tenancy;
    use crate::plan::remote::lost::Patience;
    use crate::plan::task::JobState;
    use crate::plan::task::job::Place;
    use crate::plan::task::outcome::EndHint;
    use crate::plan::task::seal::SealKey;
    use crate::remote::Seats;

    use super::super::outcome::{JobNews, Outcome, StatusNews};
    use super::passes::WAITING;
    use super::*;

    /// An engine whose calls go nowhere.
    pub(in crate::controllers) fn engine() -> Engine {
        let client = Client::try_from(Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let hub_id = HubId::new("test", "00000000-0000").unwrap();
        let (metrics, _) = Metrics::new();
        let identities = identities(&client, &metrics);
        let calls = Calls::new(
            client.clone(),
            metrics.clone(),
            "rendering".to_owned(),
            hub_id.clone(),
        );
        let context = Context {
            calls: calls.clone(),
            gate: crate::kubernetes::gate::tests::open(),
            events: events(client, &hub_id, &metrics),
            notes: Notes::default(),
            place: Place {
                hub_id,
                cluster: None,
                namespace: "rendering".to_owned(),
                service_account: "renderer".to_owned(),
            },
            key: SealKey::new([7; 32], Timestamp::UNIX_EPOCH),
            identities: Arc::new(identities),
            tenancy: Tenancy::default(),
            seats: Arc::new(NoSeats),
            gates: Gates::default(),
            patience: Patience::default(),
            verifier: Verifier::new(calls, metrics.clone()),
            doubts: mpsc::channel(1).0,
        };
        let catalog = Catalog {
            fallback: RendererClassSpec::default(),
            ..Catalog::default()
        };
        let (_, catalog) = watch::channel(Some(Arc::new(catalog)));
        Engine::new(Arc::new(context), metrics, limits(), scopes(), catalog, outlets())
    }

    fn events(client: Client, hub_id: &HubId, metrics: &Metrics) -> Events {
        let sender = (client, crate::kubernetes::gate::tests::open());
        Events::new(sender, hub_id.to_string(), metrics.clone()).0
    }

    fn outlets() -> Outlets {
        Outlets {
            ready: watch::channel(false).0,
            wants: mpsc::unbounded_channel().0,
            active: watch::channel(Arc::default()).0,
            left: watch::channel(Arc::default()).0,
        }
    }

    /// No other cluster is there.
    #[derive(Debug)]
    struct NoSeats;

    impl Seats for NoSeats {
        fn seat(&self, _: &Site) -> Option<Arc<dyn Wire>> {
            None
        }

        fn admit(&self, _: &Site) -> Result<Option<Arc<dyn Wire>>, Instant> {
            Ok(None)
        }
    }

    fn limits() -> Limits {
        let (total, per_namespace) = (2, 2);
        Limits {
            caps: Caps { total, per_namespace },
            workers: 4,
            workers_of_namespace: 2,
            passes_elsewhere: 3,
            passes_of_cluster: 2,
            large_passes: 2,
            large_passes_elsewhere: 3,
            large_passes_of_one: 1,
            gc_interval: Duration::from_secs(300),
            keep_finished: None,
            keep_failed: KeptFailures::default(),
        }
    }

    fn identities(client: &Client, metrics: &Metrics) -> Identities {
        let (hub, nobody) = (client.clone(), client.clone());
        Identities::new(hub, nobody, Method::Token, false, metrics.clone())
    }

    pub(in crate::controllers) fn scopes() -> Vec<Scope> {
        vec![Scope {
            kind: TaskKind::RenderTask,
            namespace: None,
        }]
    }

    fn see(engine: &mut Engine, uid: &str) -> TaskUid {
        see_in(engine, "team-a", uid, json!({}))
    }

    fn see_in(engine: &mut Engine, namespace: &str, uid: &str, spec: Value) -> TaskUid {
        let meta =
            json!({"name": uid, "namespace": namespace, "uid": uid, "resourceVersion": "1", "generation": 1});
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        let task = Task::new(TaskKind::RenderTask, &meta, spec, json!({})).unwrap();
        engine.take_in(Input::Task(scopes().remove(0), Change::Seen(Box::new(task))).into());
        TaskUid::new(uid)
    }

    /// Holds: D4.
    #[tokio::test]
    async fn a_panic_costs_one_task_an_error_and_a_retry() {
        let mut engine = engine();
        let (broken, other) = (see(&mut engine, "broken"), see(&mut engine, "other"));
        assert_eq!(engine.queue.take(Instant::now()), Some(broken.clone()));
        engine
            .running
            .spawn(Errand::Pass(broken.clone()), async { panic!("on purpose") });
        let ended = engine.running.next().await.unwrap();
        engine.finish(ended);
        let errors = engine
            .metrics
            .reconcile_errors
            .get_or_create(&ErrorLabels {
                kind: "Panic",
                stage: "",
            })
            .get();
        assert_eq!((errors, engine.running.passes().len()), (1, 0));
        assert_eq!(
            engine.queue.take(Instant::now()),
            Some(other),
            "the other task goes on"
        );
        let soon = Instant::now() + Duration::from_secs(2);
        assert_eq!(
            engine.queue.take(soon),
            Some(broken),
            "the broken one is tried again"
        );
    }

    #[tokio::test]
    async fn nothing_is_decided_before_everything_was_seen() {
        let mut engine = engine();
        let task = see(&mut engine, "task");
        let all = [
            Source::Jobs,
            Source::Pods,
            Source::Secrets,
            Source::Catalog,
            Source::Ledger,
        ];
        for source in all {
            engine.saw(&source);
            engine.start_work();
            assert!(engine.running.passes().len() == 0 && !*engine.ready.borrow());
        }
        engine.saw(&Source::Tasks(scopes().remove(0)));
        engine.start_work();
        assert!(*engine.ready.borrow());
        assert_eq!(engine.running.passes().next(), Some(&task));
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
            let mut engine = engine();
            let task = see(&mut engine, "task");
            engine
                .running
                .spawn(Errand::Pass(task.clone()), std::future::pending());
            // The event of the worker's own write comes before the worker does.
            for (version, status) in [Some(("8", &own)), later].into_iter().flatten() {
                let change = Change::Seen(Box::new(seen(version, status.clone())));
                engine.take_in(Input::Task(scopes().remove(0), change).into());
            }
            engine.running = Running::default();
            let outcome = Outcome {
                task: Some(Arc::new(seen("8", own.clone()))),
                status: StatusNews {
                    was_written: true,
                    ..StatusNews::default()
                },
                ..Outcome::default()
            };
            engine.take_outcome(&task, &outcome);
            engine.take_parked(&task);
            assert_eq!(
                engine.index.restore_due(&task, Instant::now()).is_some(),
                is_forged
            );
            assert_eq!(engine.metrics.forged_statuses.get(), u64::from(is_forged));
        }
    }

    fn mark(task: &TaskUid, hint: EndHint) -> JobMark {
        JobMark {
            task: task.clone(),
            name: "render-x".to_owned(),
            uid: "job".to_owned(),
            spec_hash: String::new(),
            chart_url: None,
            hint,
        }
    }

    /// Waits as a pass does, until the engine has heard of it.
    async fn wait_for_word(engine: &mut Engine, task: &'static str) -> tokio::task::JoinHandle<()> {
        let notes = engine.context.notes.clone();
        let waits = tokio::spawn(async move {
            let limit = Duration::from_secs(60);
            notes.wait(&TaskUid::new(task), limit, |_| true).await;
        });
        let waiting = engine.context.notes.wait_began().await;
        engine.let_wait(&waiting);
        waits
    }

    #[tokio::test]
    async fn a_pass_that_waits_for_the_word_of_a_pod_needs_no_worker() {
        let mut engine = engine();
        for (namespace, uid) in [
            ("team-a", "a"),
            ("team-b", "b"),
            ("team-c", "c"),
            ("team-d", "d"),
            ("team-e", "e"),
            ("team-f", "f"),
        ] {
            see_in(&mut engine, namespace, uid, json!({}));
        }
        engine.unseen.clear();
        engine.start_work();
        assert_eq!(engine.running.passes().len(), engine.limits.workers);
        let waits = wait_for_word(&mut engine, "a").await;
        engine.start_work();
        assert_eq!(engine.running.passes().len(), engine.limits.workers + 1);
        waits.abort();
    }

    #[tokio::test]
    async fn no_more_passes_wait_beside_the_workers_than_the_bound() {
        let mut engine = engine();
        let all = WAITING + 2 * engine.limits.workers;
        for n in 0..all {
            see_in(&mut engine, &format!("team-{n}"), &format!("task-{n}"), json!({}));
        }
        engine.unseen.clear();
        for _ in 0..all {
            engine.start_work();
            let passes: Vec<_> = engine.running.passes().cloned().collect();
            engine.let_wait(&passes);
        }
        assert_eq!(engine.running.passes().len(), WAITING + engine.limits.workers);
    }

    /// Holds: D1.
    #[tokio::test]
    async fn a_namespace_has_some_of_the_workers_for_what_runs_here_and_leaves_others_room() {
        let mut engine = engine();
        for uid in ["a", "b", "c", "d"] {
            see(&mut engine, uid);
        }
        engine.unseen.clear();
        engine.start_work();
        assert_eq!(engine.running.passes().len(), engine.limits.workers_of_namespace);
        see_in(&mut engine, "team-b", "other", json!({}));
        engine.start_work();
        assert_eq!(
            engine.running.passes().len(),
            engine.limits.workers_of_namespace + 1
        );
        let waits = wait_for_word(&mut engine, "a").await;
        engine.start_work();
        assert_eq!(
            engine.running.passes().len(),
            engine.limits.workers_of_namespace + 2,
            "one of them waits"
        );
        waits.abort();
    }

    #[tokio::test]
    async fn a_slow_cluster_does_not_use_up_what_its_namespace_has_for_others() {
        let mut engine = engine();
        let spec = json!({
            "config": {"type": "slides"}, "repository": "team-a/shop", "tag": "1", "registryRef": {"name": "main"}, "clusterName": "slow",
        });
        for uid in ["a", "b", "c"] {
            see_in(&mut engine, "team-a", uid, spec.clone());
        }
        let here = see(&mut engine, "here");
        engine.unseen.clear();
        engine.start_work();
        assert!(engine.running.has(&here));
        assert_eq!(engine.running.passes().len(), engine.limits.passes_of_cluster + 1);
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
        let mut engine = engine();
        for n in 0..8 {
            see_in(&mut engine, "team-a", &format!("slow-{n}"), on("slow"));
        }
        let other = see_in(&mut engine, "team-a", "other", on("other"));
        engine.unseen.clear();
        engine.start_work();
        assert!(engine.running.has(&other));
        assert_eq!(engine.running.passes().len(), engine.limits.passes_of_cluster + 1);
        for n in 0..8 {
            see_in(
                &mut engine,
                "team-b",
                &format!("slower-{n}"),
                on(&format!("slower-{n}")),
            );
        }
        engine.start_work();
        assert_eq!(engine.running.passes().len(), engine.limits.passes_elsewhere);
        for namespace in ["team-a", "team-b", "team-c"] {
            for n in 0..2 {
                see_in(
                    &mut engine,
                    namespace,
                    &format!("here-{namespace}-{n}"),
                    json!({}),
                );
            }
        }
        engine.start_work();
        let all = engine.limits.passes_elsewhere + engine.limits.workers;
        assert_eq!(
            engine.running.passes().len(),
            all,
            "all workers are the hub's own"
        );
    }

    #[tokio::test]
    async fn a_job_that_went_while_its_task_was_worked_on_stays_gone() {
        let mut engine = engine();
        let task = see(&mut engine, "task");
        engine
            .running
            .spawn(Errand::Pass(task.clone()), std::future::pending());
        engine.take_in(Input::Job(None, Change::Gone(task.clone())).into());
        let outcome = Outcome {
            job: JobNews::Known(mark(&task, EndHint::No)),
            ..Outcome::default()
        };
        engine.take_outcome(&task, &outcome);
        assert!(!engine.index.has_job(&task));
    }

    #[tokio::test]
    async fn a_job_that_ended_while_its_task_was_worked_on_is_read_right_after() {
        let mut engine = engine();
        let task = see(&mut engine, "task");
        let may_have_ended = |engine: &Engine, now| {
            let (view, _) = engine.index.view(&task, Timestamp::UNIX_EPOCH, now);
            matches!(view.unwrap().job, JobState::Seen { may_have_ended, .. } if may_have_ended)
        };
        let outcome = |job| Outcome {
            job,
            ..Outcome::default()
        };
        assert_eq!(engine.queue.take(Instant::now()), Some(task.clone()));
        engine.take_in(Input::Job(None, Change::Seen(mark(&task, EndHint::Now))).into());
        engine.take_outcome(&task, &outcome(JobNews::Known(mark(&task, EndHint::No))));
        engine.queue.done(&task);
        let now = Instant::now();
        assert_eq!(engine.queue.take(now), Some(task.clone()));
        assert!(may_have_ended(&engine, now));
        // The read said that it still runs; it is read again without another event, and not at once.
        engine.take_outcome(&task, &outcome(JobNews::Read(mark(&task, EndHint::Now), now)));
        engine.queue.done(&task);
        assert_eq!(engine.queue.take(Instant::now()), None);
        let later = now + Duration::from_secs(60);
        assert_eq!(engine.queue.take(later), Some(task.clone()));
        assert!(may_have_ended(&engine, later));
    }
}
