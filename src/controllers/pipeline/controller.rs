//! The loop of the pipeline controller.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::base::metrics::{ErrorLabels, Metrics};
use crate::controllers::platform::PublishedCatalog;
use crate::kubernetes::apply::{CallError, HubClient, TransportStage};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::decide::{NewTask, TargetDecision, TargetInput, decide};
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::source::TargetView;
use crate::plan::queue::backoff::Backoff;
use crate::plan::queue::workqueue::WorkQueue;
use crate::plan::task::status_seal::SealKey;

use super::namespace_status::NamespaceWork;
use super::store::{PipelineChange, PipelineStore};
use super::watches::{PipelineWatchEvent, watch_all};
use super::work::{PipelineKey, TargetWork, WorkOutcome};

/// Workers: an API server is saturated at about eight writes in flight.
const WORKERS: usize = 16;
/// Time in which changes that concern the Targets of a namespace are gathered.
const SETTLE: Duration = Duration::from_millis(200);
/// Passes in a row in which a key may be worked on without a pause; what is made for a Target takes five.
const ROUNDS: u32 = 16;
/// Longest wait while nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// What governs the pipeline.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    /// Which references may leave their namespace, and which namespaces are watched.
    pub rules: ReferenceRules,
}

/// The loop's state.
pub struct PipelineController {
    hub_client: HubClient,
    settings: PipelineSettings,
    key: Arc<SealKey>,
    metrics: Metrics,
    catalog: watch::Receiver<PublishedCatalog>,
    store: PipelineStore,
    charts: ChartCache,
    queue: WorkQueue<PipelineKey>,
    backoff: Backoff<PipelineKey>,
    /// Passes in a row in which a key was worked on.
    rounds: HashMap<PipelineKey, u32>,
    workers: JoinSet<WorkOutcome>,
    /// What each worker has, and the shared tasks that it makes.
    running: HashMap<Id, (PipelineKey, Vec<ObjectKey>)>,
    /// Namespaces in which something changed, and when they are looked at.
    dirty: BTreeSet<String>,
    flush_due: Option<Instant>,
    /// Tasks that a worker makes at the moment.
    in_flight: HashSet<ObjectKey>,
    /// Names of the shared tasks that each Target needs, as decided last.
    needed: HashMap<ObjectKey, Vec<String>>,
}

impl PipelineController {
    /// A controller that makes tasks for the Targets of its namespaces.
    #[must_use]
    pub fn new(
        hub_client: HubClient,
        settings: PipelineSettings,
        key: Arc<SealKey>,
        metrics: Metrics,
        catalog: watch::Receiver<PublishedCatalog>,
    ) -> Self {
        Self {
            hub_client,
            settings,
            key,
            metrics,
            catalog,
            store: PipelineStore::default(),
            charts: ChartCache::default(),
            queue: WorkQueue::default(),
            backoff: Backoff::default(),
            rounds: HashMap::new(),
            workers: JoinSet::new(),
            running: HashMap::new(),
            dirty: BTreeSet::new(),
            flush_due: None,
            in_flight: HashSet::new(),
            needed: HashMap::new(),
        }
    }

    /// Runs until `stop`, and lets workers end then.
    pub async fn run(mut self, client: Client, stop: CancellationToken) {
        let crosses = self.settings.rules.crosses_namespaces;
        let (scopes, mut events) = watch_all(&client, &self.settings.rules.served, crosses, &self.metrics);
        self.store.unlisted.extend(scopes);
        loop {
            let wait = self.wait();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(event) = events.next() => self.handle_watch_event(event),
                Some(ended) = self.workers.join_next_with_id() => self.finish(ended),
                changed = self.catalog.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    self.mark_all();
                }
                () = tokio::time::sleep(wait) => {}
            }
            self.flush(Instant::now());
            self.dispatch();
        }
        while self.workers.join_next().await.is_some() {}
        std::future::pending::<()>().await;
    }

    fn handle_watch_event(&mut self, event: PipelineWatchEvent) {
        let was_listed = self.store.unlisted.is_empty();
        let change = match event {
            PipelineWatchEvent::Object(kind, scope, event) => {
                (kind.handle_event)(&mut self.store, &scope, event)
            }
            PipelineWatchEvent::Grant(scope, event) => self.store.handle_grant_event(&scope, event),
            PipelineWatchEvent::Task(scope, event) => self.store.handle_task_event(&scope, event, &self.key),
        };
        match change {
            PipelineChange::Target(key) => {
                let namespace = PipelineKey::Namespace(key.namespace.clone());
                self.queue.add_at(&namespace, Instant::now() + SETTLE);
                self.queue.add(&PipelineKey::Target(key));
            }
            PipelineChange::Namespace(namespace) => self.mark(&namespace),
            PipelineChange::Listed if self.store.unlisted.is_empty() => {
                self.mark_all();
                if !was_listed {
                    let targets = self.store.objects.targets.len();
                    tracing::info!(targets, "the pipeline knows all its objects");
                }
            }
            PipelineChange::Nothing | PipelineChange::Listed => {}
        }
    }

    fn mark(&mut self, namespace: &str) {
        if self.dirty.is_empty() {
            self.flush_due = Some(Instant::now() + SETTLE);
        }
        if !self.dirty.contains(namespace) {
            self.dirty.insert(namespace.to_owned());
        }
    }

    fn mark_all(&mut self) {
        let targets = self.store.objects.targets.keys();
        let releases = self.store.objects.releases.keys();
        let all: BTreeSet<String> = targets.chain(releases).map(|key| key.namespace.clone()).collect();
        for namespace in all {
            self.mark(&namespace);
        }
    }

    /// Whether every watch has listed, and the platform's catalog is there.
    fn is_synced(&self) -> bool {
        self.store.unlisted.is_empty() && self.catalog.borrow().is_some()
    }

    /// Makes due what rests on the namespaces in which something changed.
    fn flush(&mut self, now: Instant) {
        if !self.is_synced() || self.flush_due.is_none_or(|due| now < due) {
            return;
        }
        self.flush_due = None;
        let dirty = std::mem::take(&mut self.dirty);
        let is_dirty =
            |namespace: &String| self.settings.rules.crosses_namespaces || dirty.contains(namespace);
        let targets = self.store.objects.targets.keys();
        for key in targets.filter(|key| is_dirty(&key.namespace)) {
            self.queue.add(&PipelineKey::Target(key.clone()));
        }
        for namespace in dirty {
            self.queue.add(&PipelineKey::Namespace(namespace));
        }
    }

    fn wait(&self) -> Duration {
        let now = Instant::now();
        let due = self.flush_due.filter(|_| self.is_synced());
        let next = due.into_iter().chain(self.queue.next_wake()).min();
        next.map_or(IDLE, |at| at.saturating_duration_since(now).min(IDLE))
    }

    /// Gives what is due to free workers.
    fn dispatch(&mut self) {
        if !self.is_synced() {
            return;
        }
        while self.workers.len() < WORKERS {
            let Some(key) = self.queue.take(Instant::now()) else {
                return;
            };
            let is_idle = match &key {
                PipelineKey::Target(target) => !self.start_target(target),
                PipelineKey::Namespace(namespace) => !self.start_namespace(namespace),
            };
            if is_idle {
                self.rounds.remove(&key);
                self.backoff.clear(&key);
                self.queue.done(&key);
            }
        }
    }

    /// Decides about a Target; returns whether a worker has it.
    fn start_target(&mut self, key: &ObjectKey) -> bool {
        let Some((uid, mut decision, has_new_status)) = self.decide(key) else {
            self.needed.remove(key);
            return false;
        };
        self.needed
            .insert(key.clone(), std::mem::take(&mut decision.needed));
        if let Some(at) = decision.look_again {
            let wait = at.duration_since(Timestamp::now());
            let wait = wait.try_into().unwrap_or(Duration::ZERO);
            self.queue
                .add_at(&PipelineKey::Target(key.clone()), Instant::now() + wait);
        }
        let in_flight = &self.in_flight;
        let is_new = |task: &NewTask| !in_flight.contains(&ObjectKey::new(&key.namespace, &task.name));
        decision.new_tasks.retain(is_new);
        let work = TargetWork {
            key: key.clone(),
            uid,
            seal_key: Arc::clone(&self.key),
            decision,
            has_new_status,
        };
        if !work.has_work() {
            return false;
        }
        let shared = work.shared_tasks();
        self.in_flight.extend(shared.iter().cloned());
        let worker = self.workers.spawn(work.run(self.hub_client.clone()));
        self.running
            .insert(worker.id(), (PipelineKey::Target(key.clone()), shared));
        true
    }

    /// The UID of a Target, what is to be done for it, and whether its status differs.
    fn decide(&self, key: &ObjectKey) -> Option<(String, TargetDecision, bool)> {
        let catalog = self.catalog.borrow().clone()?;
        let object = self.store.objects.targets.get(key)?;
        let decision = decide(TargetInput {
            target: TargetView { key, object },
            objects: &self.store.objects,
            rules: &self.settings.rules,
            catalog: &catalog,
            charts: &self.charts,
            now: Timestamp::now(),
        })?;
        let has_new_status = decision.status != object.status;
        Some((object.uid.clone(), decision, has_new_status))
    }

    /// Looks at a namespace; returns whether a worker has it.
    fn start_namespace(&mut self, namespace: &str) -> bool {
        let objects = &self.store.objects;
        let targets = || within(&objects.targets, namespace).map(|(key, _)| key);
        let is_decided = targets().all(|key| self.needed.contains_key(key));
        let needed: BTreeSet<&str> = targets()
            .filter_map(|key| self.needed.get(key))
            .flatten()
            .map(String::as_str)
            .collect();
        let needed = is_decided.then_some(&needed);
        let work = NamespaceWork::of(namespace, objects, &self.settings.rules, needed, Timestamp::now());
        let Some(work) = work else { return false };
        let worker = self.workers.spawn(work.run(self.hub_client.clone()));
        let key = PipelineKey::Namespace(namespace.to_owned());
        self.running.insert(worker.id(), (key, Vec::new()));
        true
    }

    /// Takes in what a worker wrote. One that panicked wrote nothing that is known, and its Target is decided about again.
    fn finish(&mut self, ended: Result<(Id, WorkOutcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok((id, outcome)) => (id, Some(outcome)),
            Err(error) => (error.id(), None),
        };
        let Some((key, shared)) = self.running.remove(&id) else {
            return;
        };
        for task in &shared {
            self.in_flight.remove(task);
            self.mark(&task.namespace);
        }
        let (written, result) = outcome.map_or_else(
            || (Vec::new(), Err(CallError::Transport(TransportStage::Internal))),
            |outcome| (outcome.written, outcome.result),
        );
        for written in written {
            self.store.take_in(written);
        }
        match result {
            Ok(()) => self.follow_up(&key),
            Err(error) => self.retry(&key, error),
        }
        self.queue.done(&key);
    }

    /// Looks once more, for what follows from what was written. Each pass brings its key nearer to rest, so one that is worked on
    /// over and over has found another writer against it, and is slowed down.
    fn follow_up(&mut self, key: &PipelineKey) {
        let rounds = self.rounds.entry(key.clone()).or_default();
        *rounds += 1;
        if *rounds <= ROUNDS {
            self.queue.add(key);
        } else {
            let wait = self.backoff.failed(key);
            self.queue.add_at(key, Instant::now() + wait);
        }
    }

    fn retry(&mut self, key: &PipelineKey, error: CallError) {
        let wait = self.backoff.failed(key);
        self.queue.add_at(key, Instant::now() + wait);
        let (kind, stage) = (error.kind(), error.stage());
        let labels = ErrorLabels {
            kind,
            stage: stage.unwrap_or_default(),
        };
        self.metrics.reconcile_errors.get_or_create(&labels).inc();
        let (namespace, name) = match key {
            PipelineKey::Target(key) => (&key.namespace, key.name.as_str()),
            PipelineKey::Namespace(namespace) => (namespace, ""),
        };
        tracing::warn!(
            namespace,
            target = name,
            kind,
            stage,
            "a write of the pipeline failed; it is tried again"
        );
    }
}
