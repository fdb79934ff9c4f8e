//! The loop of the pipeline controller.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::JoinMap;
use tracing::Instrument as _;

use crate::base::metrics::Metrics;
use crate::controllers::platform::PublishedCatalog;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::watch::PipelineTaskEvent;
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::concerned::Concerned;
use crate::plan::pipeline::decide::{CreateRefusal, NeededTasks, TargetDecision, TargetInput, decide};
use crate::plan::pipeline::left_out::LeftOutIndex;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::source::TargetView;
use crate::plan::pipeline::status::StatusInput;
use crate::plan::queue::backoff::Backoff;
use crate::plan::queue::workqueue::WorkQueue;
use crate::plan::task::status_seal::SealKey;

use super::backlog::NamespaceBacklog;
use super::debug_log::{log_decision, span_of};
use super::namespace_status::NamespaceWork;
use super::progress::LeftStatuses;
use super::prune_queue::{PipelinePruning, PruneQueue};
use super::rollouts::RolloutState;
use super::store::PipelineStore;
use super::watches::watch_all;
use super::work::{PipelineKey, TargetWork, WorkOutcome};
use super::work_rounds::WorkRounds;
use super::writes::{PipelineWriter, Written};

/// Workers: an API server is saturated at about eight writes in flight.
const WORKERS: usize = 16;
/// Time in which changes that concern the Targets of a namespace are gathered.
pub(super) const SETTLE: Duration = Duration::from_millis(200);
/// Keys that are looked at before events are handled again.
const AT_ONCE: usize = 64;
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
    pub(super) writer: PipelineWriter,
    /// What workers wrote that the store does not have yet.
    pub(super) written: mpsc::UnboundedReceiver<Written>,
    pub(super) settings: PipelineSettings,
    pub(super) metrics: Metrics,
    pub(super) catalog: watch::Receiver<PublishedCatalog>,
    pub(super) store: PipelineStore,
    pub(super) charts: ChartCache,
    pub(super) rollouts: RolloutState,
    /// The Releases that lost to others, by Target, as decided last.
    pub(super) left_out: LeftOutIndex,
    pub(super) queue: WorkQueue<PipelineKey>,
    pub(super) backoff: Backoff<PipelineKey>,
    /// What the API server did not let the hub make for a Target, and how often in a row.
    pub(super) refusals: HashMap<ObjectKey, (CreateRefusal, u32)>,
    pub(super) rounds: HashMap<PipelineKey, WorkRounds>,
    /// Statuses that say how far a Target is and are not written yet.
    pub(super) left_statuses: LeftStatuses,
    workers: JoinMap<PipelineKey, WorkOutcome>,
    /// The shared tasks that the worker of each Target makes.
    making: HashMap<ObjectKey, Vec<ObjectKey>>,
    /// What is to be looked at besides Targets.
    pub(super) backlog: NamespaceBacklog,
    /// When rollouts are looked at again.
    rollouts_due: Option<Instant>,
    /// Tasks that a worker makes at the moment.
    pub(super) in_flight: HashSet<ObjectKey>,
    /// The shared tasks that each Target needs, as decided last.
    pub(super) needed: HashMap<ObjectKey, NeededTasks>,
    /// The Targets for which nothing changes before all of those have ended, as decided last.
    pub(super) awaiting: HashSet<ObjectKey>,
    pub(super) prunes: PruneQueue,
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
        pruning: PipelinePruning,
    ) -> Self {
        let (sender, written) = mpsc::unbounded_channel();
        let writer = PipelineWriter {
            written: sender,
            client: hub_client,
            seal_key: Arc::clone(&key),
            events: pruning.events.clone(),
            stopping: CancellationToken::new(),
        };
        Self {
            writer,
            written,
            store: PipelineStore::new(key, settings.rules.clone()),
            settings,
            metrics,
            catalog,
            charts: ChartCache::default(),
            rollouts: RolloutState::default(),
            left_out: LeftOutIndex::default(),
            queue: WorkQueue::default(),
            backoff: Backoff::default(),
            refusals: HashMap::new(),
            rounds: HashMap::new(),
            left_statuses: LeftStatuses::new(WORKERS),
            workers: JoinMap::new(),
            making: HashMap::new(),
            backlog: NamespaceBacklog::default(),
            rollouts_due: None,
            in_flight: HashSet::new(),
            needed: HashMap::new(),
            awaiting: HashSet::new(),
            prunes: PruneQueue::new(pruning),
        }
    }

    /// Runs until `stop`, and lets workers end then. `tasks` come from the watch of all tasks.
    pub async fn run(
        mut self,
        client: Client,
        mut tasks: mpsc::Receiver<PipelineTaskEvent>,
        stop: CancellationToken,
    ) {
        let (scopes, mut events) = watch_all(&client, &self.settings.rules, &self.metrics);
        self.store.unlisted.extend(scopes);
        loop {
            let wait = self.wait();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(event) = events.next() => self.handle_watch_event(event),
                Some(event) = tasks.recv() => self.handle_task_events(event, &mut tasks),
                Some((key, ended)) = self.workers.join_next() => self.finish(&key, ended),
                Some((version, ended)) = self.prunes.workers.join_next() => self.finish_prune(&version, ended),
                Some((question, ended)) = self.prunes.lookups.workers.join_next() => {
                    self.finish_lookup(&question, ended);
                }
                changed = self.catalog.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    self.wake_all();
                }
                () = tokio::time::sleep(wait) => {}
            }
            self.look_at_rollouts(Instant::now());
            self.dispatch();
            self.start_prunes(Instant::now());
            if self.takes_list() {
                events = watch_all(&client, &self.settings.rules, &self.metrics).1;
            }
        }
        self.writer.stopping.cancel();
        while self.workers.join_next().await.is_some() {}
        // What they were at is done again by the next hub.
        self.prunes.workers.shutdown().await;
    }

    /// Looks at rollouts in a while, together with what changes until then.
    pub(super) fn settle(&mut self) {
        self.rollouts_due.get_or_insert_with(|| Instant::now() + SETTLE);
    }

    /// Whether every watch that is not refused has listed, and the platform's catalog is there.
    pub(super) fn is_synced(&self) -> bool {
        self.store.is_listed() && self.catalog.borrow().is_some()
    }

    fn look_at_rollouts(&mut self, now: Instant) {
        if self.is_synced() && self.rollouts_due.is_some_and(|due| due <= now) {
            self.rollouts_due = None;
            self.refresh_rollouts();
        }
    }

    fn wait(&self) -> Duration {
        let now = Instant::now();
        let is_ready = !self.queue.is_empty() && self.workers.len() < WORKERS;
        let due = self.rollouts_due.into_iter().chain(self.queue.next_wake());
        let due = due.chain(self.store.overfull.due);
        let next = due.chain(self.prunes.next_wake()).chain(is_ready.then_some(now));
        // Until then nothing is done about what is due.
        next.min()
            .filter(|_| self.is_synced())
            .map_or(IDLE, |at| at.saturating_duration_since(now).min(IDLE))
    }

    /// Gives what is due to free workers.
    fn dispatch(&mut self) {
        if !self.is_synced() {
            return;
        }
        for _ in 0..AT_ONCE {
            if self.workers.len() >= WORKERS {
                return;
            }
            let Some((key, _)) = self.queue.take_fair(Instant::now(), PipelineKey::owner) else {
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
        self.begin_lookups(key);
        let Some(mut decision) = self.decide(key) else {
            self.forget(key);
            return false;
        };
        if decision.awaits_rollout {
            self.rollouts.defer(key);
            self.settle();
            return false;
        }
        self.rollouts.begin(key, &decision);
        self.note(key, &mut decision);
        if let Some(at) = decision.look_again {
            let wait = at.duration_since(Timestamp::now());
            let wait = wait.try_into().unwrap_or(Duration::ZERO);
            self.queue
                .add_at(&PipelineKey::Target(key.clone()), Instant::now() + wait);
        }
        let (in_flight, deletions) = (&self.in_flight, &mut self.prunes.deletions);
        decision.new_tasks.retain(|task| {
            let is_new = !in_flight.contains(&ObjectKey::new(&key.namespace, &task.name));
            is_new && !deletions.holds_back(&key.namespace, &task.spec)
        });
        log_decision(key, &decision);
        let objects = &self.store.objects;
        let Some(object) = objects.targets.get(key) else {
            return false;
        };
        let mut work = TargetWork::new(TargetView { key, object }, decision, objects);
        self.leave_progress(key, &mut work);
        if !work.has_work() {
            return false;
        }
        let shared = work.shared_tasks();
        self.in_flight.extend(shared.iter().cloned());
        self.making.insert(key.clone(), shared);
        let work = work.run(self.writer.clone()).instrument(span_of(key));
        self.workers.spawn(PipelineKey::Target(key.clone()), work);
        true
    }

    fn decide(&self, key: &ObjectKey) -> Option<TargetDecision> {
        let catalog = self.catalog.borrow().clone()?;
        let object = self.store.objects.targets.get(key)?;
        decide(TargetInput {
            target: TargetView { key, object },
            objects: &self.store.objects,
            rules: &self.settings.rules,
            refusal: self.refusal(key),
            catalog: &catalog,
            charts: &self.charts,
            rollouts: &self.rollouts.index,
            answers: &self.prunes.lookups.answers,
            now: Timestamp::now(),
        })
    }

    /// Looks at a namespace that is served; returns whether a worker has it.
    fn start_namespace(&mut self, namespace: &str) -> bool {
        if !self.settings.rules.serves(namespace) || !self.settings.rules.reads(namespace) {
            self.backlog.forget(namespace);
            return false;
        }
        let Some(catalog) = self.catalog.borrow().clone() else {
            return false;
        };
        let (statuses, has_leftovers) = self.backlog.take(namespace);
        let key = PipelineKey::Namespace(namespace.to_owned());
        if self.backlog.has(namespace) {
            self.queue.add(&key);
        }
        if has_leftovers {
            self.queue_prunes(namespace, Instant::now());
            self.wake_waiting_for_room(namespace);
        }
        let now = Timestamp::now();
        let leftovers = has_leftovers.then(|| self.leftovers(namespace, now));
        let orphans = leftovers
            .as_ref()
            .and_then(|leftovers| leftovers.orphans.look_again);
        let input = StatusInput {
            objects: &self.store.objects,
            rules: &self.settings.rules,
            rollouts: &self.rollouts.index,
            left_out: &self.left_out,
            now,
        };
        let work = NamespaceWork::of(&statuses, &input, leftovers.as_ref(), &catalog);
        if let Some(at) = orphans {
            let wait = at.duration_since(now).try_into().unwrap_or(Duration::ZERO);
            self.look_at_leftovers(namespace, wait);
        }
        let Some(work) = work else { return false };
        self.workers.spawn(key, work.run(self.writer.clone()));
        true
    }

    /// Ends the work for a key. A worker that panicked has said what it wrote, and its Target is decided about again.
    fn finish(&mut self, key: &PipelineKey, ended: Result<WorkOutcome, JoinError>) {
        let shared = match key {
            PipelineKey::Target(target) => self.making.remove(target).unwrap_or_default(),
            PipelineKey::Namespace(_) => Vec::new(),
        };
        for task in &shared {
            self.in_flight.remove(task);
        }
        self.take_in_writes();
        let outcome = ended.unwrap_or_else(|_| WorkOutcome::panicked());
        if self.rollouts.mark(key.namespace(), &Concerned::default()) {
            self.settle();
        }
        if let PipelineKey::Target(target) = key {
            self.remember_refusal(target, outcome.refusal);
        }
        match outcome.result {
            Ok(()) => {
                if let PipelineKey::Target(target) = key {
                    self.rollouts.end(target);
                }
                self.follow_up(key, outcome.follow_up);
            }
            Err(error) => {
                self.wake_sharers(&shared);
                self.retry(key, error);
            }
        }
        self.queue.done(key);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::pipeline::{HydratedTarget, HydratedTargetStatus, PruneProgress, Target, TargetStatus};
    use crate::controllers::pipeline::kinds::KINDS;
    use crate::controllers::pipeline::store::WatchScope;
    use crate::controllers::pipeline::watches::PipelineWatchEvent;
    use crate::controllers::pipeline::written_objects::tests::version;
    use crate::controllers::prune;
    use crate::kubernetes::apply::CallError;
    use crate::kubernetes::events::EventRecorder;
    use crate::kubernetes::tests::client_to_nowhere;
    use crate::kubernetes::write_fence;
    use crate::plan::pipeline::decide::FollowUp;
    use crate::plan::pipeline::kept_bytes::OBJECTS_OF_NAMESPACE;
    use crate::plan::pipeline::sealed_status::sealed;
    use crate::plan::platform::tenancy::TenancyPolicy;
    use crate::plan::task::status_seal::KEY_BYTES;

    /// A controller without an API server, whose watches have listed.
    pub(in crate::controllers::pipeline) fn controller() -> PipelineController {
        let client = client_to_nowhere();
        let (pruner, metrics) = prune::tests::pruner(write_fence::tests::open());
        let hub_client = pruner.0.hub_client.clone();
        let fence = write_fence::tests::open();
        let pruning = PipelinePruning {
            pruner,
            tenancy: TenancyPolicy::default(),
            events: EventRecorder::new(client, fence, "hub".to_owned(), metrics.clone()).0,
        };
        let settings = PipelineSettings {
            rules: ReferenceRules::default(),
        };
        let key = Arc::new(SealKey::new([0; KEY_BYTES], Timestamp::UNIX_EPOCH));
        let (_, catalog) = watch::channel(Some(Arc::default()));
        PipelineController::new(hub_client, settings, key, metrics, catalog, pruning)
    }

    fn key() -> ObjectKey {
        ObjectKey::new("team", "edge")
    }

    #[tokio::test]
    async fn a_controller_that_stops_lets_its_workers_begin_nothing_and_ends_with_the_last_of_them() {
        let mut controller = controller();
        let (writer, stop) = (controller.writer.clone(), CancellationToken::new());
        stop.cancel();
        let (sender, is_last) = watch::channel(false);
        controller.workers.spawn(PipelineKey::Target(key()), async move {
            writer.stopping.cancelled().await;
            sender.send_replace(true);
            WorkOutcome::panicked()
        });
        let running = controller.run(client_to_nowhere(), mpsc::channel(1).1, stop);
        tokio::time::timeout(Duration::from_secs(30), running)
            .await
            .unwrap();
        assert!(*is_last.borrow());
    }

    /// The event of a Target at this version, with this status.
    fn shown(name: &str, version: u64, status: &Value) -> PipelineWatchEvent {
        let kind = KINDS.iter().find(|kind| kind.plural == "targets").unwrap();
        let scope = WatchScope {
            plural: kind.plural,
            namespace: None,
        };
        let object = json!({
            "metadata": {
                "name": name, "namespace": "team", "uid": "uid", "resourceVersion": version.to_string(), "generation": 1,
                "creationTimestamp": "2026-11-27T12:00:00Z",
            },
            "spec": {"renderRegistryRef": {"name": "main"}},
            "status": status,
        });
        let event = Event::Apply(serde_json::from_str(&object.to_string()).unwrap());
        PipelineWatchEvent::Object(kind, scope, event)
    }

    /// The answer of a write and the event that shows it come on two connections, and most often the answer first.
    #[tokio::test]
    async fn an_event_is_handled_after_the_writes_that_it_may_show() {
        for (is_written, is_due) in [(true, false), (false, true)] {
            let mut controller = controller();
            controller.handle_watch_event(shown("edge", 1, &json!({})));
            let taken = controller.queue.take(Instant::now()).unwrap();
            assert_eq!(taken, PipelineKey::Target(key()));
            controller.queue.done(&taken);
            let status = TargetStatus {
                bootstrap_version: Some(7),
                ..TargetStatus::default()
            };
            let seen = (key(), "uid".to_owned());
            if is_written {
                let written = Written::status::<Target>(seen, status.clone(), Some(2));
                controller.writer.say(written);
            }
            let status = sealed(&controller.writer.seal_key, "uid", &status);
            controller.handle_watch_event(shown("edge", 2, &json!(status)));
            assert_eq!(controller.queue.take(Instant::now()).is_some(), is_due);
        }
    }

    /// Those of all Targets that are due within a second.
    fn due(controller: &mut PipelineController) -> Vec<String> {
        let soon = Instant::now() + Duration::from_secs(1);
        let due = std::iter::from_fn(|| controller.queue.take(soon));
        let mut due: Vec<_> = due
            .filter_map(|key| match key {
                PipelineKey::Target(key) => Some(key.name),
                PipelineKey::Namespace(_) => None,
            })
            .collect();
        due.sort();
        due
    }

    #[tokio::test]
    async fn a_target_is_decided_about_once_more_only_where_something_follows() {
        let failed = || Err(CallError::NotFound);
        for (follow_up, result, is_making, expected) in [
            (FollowUp::OnChange, Ok(()), true, vec![]),
            (FollowUp::AtOnce, Ok(()), true, vec!["edge"]),
            (FollowUp::OnChange, failed(), true, vec!["edge", "other"]),
            (FollowUp::OnChange, failed(), false, vec!["edge"]),
        ] {
            let mut controller = controller();
            for name in ["edge", "other"] {
                controller.handle_watch_event(shown(name, 1, &json!({})));
            }
            assert_eq!(due(&mut controller), ["edge", "other"]);
            controller
                .queue
                .done(&PipelineKey::Target(ObjectKey::new("team", "other")));
            let status = TargetStatus {
                bootstrap_version: Some(7),
                ..TargetStatus::default()
            };
            let seen = (key(), "uid".to_owned());
            controller
                .writer
                .say(Written::status::<Target>(seen, status, Some(2)));
            let shared = is_making.then(|| ObjectKey::new("team", "shared"));
            controller.making.insert(key(), shared.into_iter().collect());
            let outcome = WorkOutcome {
                result,
                follow_up,
                refusal: None,
            };
            controller.finish(&PipelineKey::Target(key()), Ok(outcome));
            let known = &controller.store.objects.targets[&key()];
            assert_eq!(known.status.bootstrap_version, Some(7));
            assert_eq!(due(&mut controller), expected, "{follow_up:?} {is_making}");
        }
    }

    /// No event of the status is news, so it is looked at with what it says.
    #[tokio::test]
    async fn a_version_whose_charts_are_to_be_deleted_is_in_line_once_its_status_says_so() {
        let mut controller = controller();
        let (key, _, written) = version();
        controller.writer.say(written);
        let namespace = PipelineKey::Namespace("team".to_owned());
        for prune in [None, Some(progress())] {
            let status = HydratedTargetStatus {
                prune: prune.clone(),
                ..HydratedTargetStatus::default()
            };
            let seen = (key.clone(), "uid".to_owned());
            controller
                .writer
                .say(Written::status::<HydratedTarget>(seen, status, Some(2)));
            controller.take_in_writes();
            let taken = controller.queue.take(Instant::now() + SETTLE);
            assert_eq!(taken.as_ref(), Some(&namespace));
            controller.start_namespace("team");
            controller.queue.done(&namespace);
            let in_line = controller.prunes.take(Instant::now());
            assert_eq!(in_line, prune.map(|_| key.clone()));
        }
    }

    /// No event of the status is news, so the room that it takes is seen with it.
    #[tokio::test]
    async fn a_namespace_that_the_hubs_own_statuses_fill_is_known_as_such() {
        for (bytes, is_overfull) in [(1, false), (OBJECTS_OF_NAMESPACE, true)] {
            let mut controller = controller();
            controller.handle_watch_event(shown("edge", 1, &json!({})));
            let status = TargetStatus {
                chart_url: Some("x".repeat(bytes)),
                ..TargetStatus::default()
            };
            let seen = (key(), "uid".to_owned());
            controller
                .writer
                .say(Written::status::<Target>(seen, status, Some(2)));
            controller.take_in_writes();
            assert_eq!(controller.settings.rules.overfull.contains("team"), is_overfull);
        }
    }

    fn progress() -> PruneProgress {
        serde_json::from_value(json!({"since": "2026-11-27T12:00:00Z"})).unwrap()
    }
}
