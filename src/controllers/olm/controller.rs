//! The loop: events into the store, a decision after a short while, workers for what differs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::JoinMap;

use super::namespace_recorder::NamespaceRecorder;
use super::pod_looks::PodLooks;
use super::reports::{CONDITIONS, OlmReports};
use super::source_values::SourceValues;
use super::store::OlmStore;
use super::watches::OlmWatches;
use super::work::OlmOutcome;
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::pull_secrets::PullSecretClient;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::{
    EvictionLimiter, NamespaceChanges, PullSecretLimits, PullSecretPlan, changes, decide,
};
use crate::plan::queue::backoff::BackoffPolicy;

/// Workers: an API server is saturated at about eight writes in flight.
pub(super) const WORKERS: usize = 16;
/// Events that are taken in before anything else is done.
const AT_ONCE: usize = 512;
/// Time in which events are gathered before a decision.
const SETTLE: Duration = Duration::from_millis(30);
/// The same while all workers are busy, who have enough to do by the last decision; one that takes long waits eight times as long.
const BUSY_SETTLE: Duration = Duration::from_millis(100);
/// Time between two looks at namespaces that were made again, and at Secrets of others with the name of a copy.
pub(super) const RECHECK: Duration = Duration::from_secs(3);
/// The pause before a write is tried again of which the object changed meanwhile: a watch shows it in milliseconds.
pub(super) const STALE: BackoffPolicy = BackoffPolicy {
    base: Duration::from_millis(100),
    cap: Duration::from_secs(3),
};
/// The pause after a failed call.
pub(super) const FAILED: BackoffPolicy = BackoffPolicy {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(10),
};
/// After so long without an attempt a failure is forgotten: what failed is gone.
const FORGOTTEN: Duration = Duration::from_secs(120);
/// Longest wait while nothing is due.
const IDLE: Duration = Duration::from_secs(3_600);

/// What a worker works on; one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum WorkKey {
    /// The copies and links of a namespace.
    Namespace(String),
    /// A Secret that is read.
    Secret(ObjectKey),
    /// The pods of a namespace.
    Pods(String),
    /// Evictions from the pods of a `ReplicaSet`, by its UID.
    ReplicaSet(String),
    /// The ConfigMap's conditions.
    Report,
    /// Namespaces that were made again.
    Recheck,
}

/// What is to be looked at, besides what is to be written.
#[derive(Default)]
pub(super) struct FoundWork {
    /// Secrets that were not read in their version.
    pub unread: Vec<ObjectKey>,
    /// Secrets of others with the name of a copy.
    pub foreign: Vec<ObjectKey>,
    /// Namespaces that were made again.
    pub recreated: Vec<String>,
}

/// What the loop works with.
pub struct OlmControllerParts {
    /// Its calls.
    pub calls: PullSecretClient,
    /// The record of namespaces.
    pub recorder: Arc<NamespaceRecorder>,
    /// Where it says what is wrong.
    pub events: EventRecorder,
    /// How much is served.
    pub limits: PullSecretLimits,
    /// The namespaces that copies may go to.
    pub destinations: Vec<String>,
    /// The namespaces of catalogs.
    pub catalogs: Vec<String>,
    /// Set once everything was seen.
    pub ready: watch::Sender<bool>,
}

/// The loop's state.
pub struct OlmController {
    pub(super) calls: PullSecretClient,
    pub(super) recorder: Arc<NamespaceRecorder>,
    limits: PullSecretLimits,
    ready: watch::Sender<bool>,
    pub(super) store: OlmStore,
    pub(super) values: SourceValues,
    pub(super) reports: OlmReports,
    pub(super) looks: PodLooks,
    pub(super) evictions: EvictionLimiter,
    pub(super) plan: PullSecretPlan,
    /// What the last decision found, so that no worker that ends makes it be looked for again.
    pub(super) found: FoundWork,
    /// What is to be written, as of the last decision.
    pub(super) pending: BTreeMap<String, NamespaceChanges>,
    pub(super) workers: JoinMap<WorkKey, OlmOutcome>,
    /// Failures in a row, and when the next attempt is due.
    pub(super) retries: HashMap<WorkKey, (u32, Instant)>,
    /// Since when writes are refused in a row, by namespace, with the version of the ServiceAccount that one of them was for.
    pub(super) refusals: HashMap<String, (Option<u64>, Instant)>,
    /// When to decide; `None` while nothing changed.
    decision_due: Option<Instant>,
    decision_took: Duration,
    pub(super) recheck_due: Instant,
    pub(super) foreign_due: Instant,
    pub(super) was_settled: bool,
}

impl OlmController {
    /// A loop that knows nothing yet.
    #[must_use]
    pub fn new(parts: OlmControllerParts) -> Self {
        Self {
            calls: parts.calls,
            recorder: parts.recorder,
            limits: parts.limits,
            ready: parts.ready,
            store: OlmStore::new(&parts.destinations, &parts.catalogs),
            values: SourceValues::default(),
            reports: OlmReports::new(parts.events),
            looks: PodLooks::default(),
            evictions: EvictionLimiter::default(),
            plan: PullSecretPlan::default(),
            found: FoundWork::default(),
            pending: BTreeMap::new(),
            workers: JoinMap::new(),
            retries: HashMap::new(),
            refusals: HashMap::new(),
            decision_due: None,
            decision_took: Duration::ZERO,
            recheck_due: Instant::now(),
            foreign_due: Instant::now(),
            was_settled: false,
        }
    }

    /// Runs until `stop`, and lets workers end then.
    pub async fn run(mut self, mut watches: OlmWatches, stop: CancellationToken) {
        if stop.run_until_cancelled(self.load_record()).await.is_none() {
            return;
        }
        loop {
            let wait = self.wait(Instant::now());
            tokio::select! {
                () = stop.cancelled() => break,
                Some(event) = watches.events.recv() => {
                    self.store.handle(event);
                    for _ in 0..AT_ONCE {
                        let Ok(event) = watches.events.try_recv() else { break };
                        self.store.handle(event);
                    }
                    self.change();
                }
                Some((key, ended)) = self.workers.join_next() => self.finish(key, ended),
                () = tokio::time::sleep(wait) => {}
            }
            self.decide_if_due(Instant::now());
            self.dispatch(Instant::now());
        }
        while self.workers.join_next().await.is_some() {}
    }

    /// Reads the record, and what was wrong before; asks until the API server answers.
    async fn load_record(&mut self) {
        let mut failures = 0;
        loop {
            match self.recorder.load().await {
                Ok(data) => {
                    let written = data.get(CONDITIONS).cloned();
                    self.reports.written = Some(written.unwrap_or_else(|| "[]".to_owned()));
                    return;
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(
                        kind = error.kind(),
                        stage = error.stage(),
                        "the record of namespaces is not read yet; it is tried again"
                    );
                    tokio::time::sleep(FAILED.wait(failures, &"record")).await;
                }
            }
        }
    }

    /// Has a decision made in a short while.
    pub(super) fn change(&mut self) {
        let is_busy = self.workers.len() + 1 >= WORKERS;
        let least = if is_busy { BUSY_SETTLE } else { SETTLE };
        let pause = least.max(8 * self.decision_took);
        self.decision_due.get_or_insert_with(|| Instant::now() + pause);
    }

    /// Decides, where something changed and all namespaces were listed or refused once: what gets a copy where not all can have one
    /// depends on all.
    fn decide_if_due(&mut self, now: Instant) {
        if self.decision_due.is_none_or(|due| due > now) || !self.store.is_settled() {
            return;
        }
        self.decision_due = None;
        self.retries.retain(|_, (_, due)| now < *due + FORGOTTEN);
        self.plan = decide(&self.store.observed, &self.limits);
        self.pending = changes(&self.store.observed, &self.plan);
        self.reports.take(std::mem::take(&mut self.plan.complaints));
        self.found = FoundWork {
            unread: self.store.unread(),
            foreign: self.store.foreign(),
            recreated: self.store.recreated(),
        };
        self.forget_refusals();
        let catalogs = &self.store.observed.catalogs;
        self.values.retain(|source| {
            let mut there = catalogs
                .iter()
                .filter(|(key, _)| key.namespace == source.namespace);
            there.any(|(_, catalog)| catalog.secrets.contains(&source.name))
        });
        if !std::mem::replace(&mut self.was_settled, true) {
            let namespaces = self.store.observed.namespaces.len();
            tracing::info!(namespaces, "everything was seen once");
            _ = self.ready.send(true);
            // Pods may have come while no process was there.
            for key in self.plan.links.keys() {
                self.looks.start(&key.namespace, now);
            }
        }
        self.decision_took = now.elapsed();
    }

    /// Forgets that writes were refused where nothing is to be written any more. What rests on a Secret that is to be read may be.
    fn forget_refusals(&mut self) {
        if !self.found.unread.is_empty() {
            return;
        }
        self.refusals
            .retain(|namespace, _| self.pending.contains_key(namespace));
        for namespace in self.store.refused() {
            if !self.pending.contains_key(&namespace) {
                self.store.set_refused(&namespace, false);
                self.decision_due.get_or_insert_with(Instant::now);
            }
        }
    }

    /// How long nothing is due.
    fn wait(&self, now: Instant) -> Duration {
        let decision = self.decision_due.filter(|_| self.store.is_settled());
        let idle = self
            .retries
            .iter()
            .filter(|(key, _)| !self.workers.contains_key(*key));
        let retry = idle.map(|(_, (_, due))| *due).filter(|due| *due > now).min();
        let eviction = self
            .plan
            .evictions
            .iter()
            .filter_map(|eviction| self.evictions.due(eviction, now))
            .filter(|due| *due > now)
            .min();
        let recheck = (!self.found.recreated.is_empty()).then_some(self.recheck_due.max(now + SETTLE));
        let foreign = (!self.found.foreign.is_empty()).then_some(self.foreign_due.max(now + SETTLE));
        let look = self.looks.next().map(|due| due.max(now + SETTLE));
        let due = [decision, retry, eviction, recheck, foreign, look]
            .into_iter()
            .flatten()
            .min();
        due.map_or(IDLE, |due| due.saturating_duration_since(now))
    }

    /// Counts a failure of this work, so that it waits.
    pub(super) fn fail(&mut self, key: WorkKey, pause: BackoffPolicy) {
        let before = self.retries.get(&key).map_or(0, |(failures, _)| *failures);
        let failures = before.saturating_add(1);
        let due = Instant::now() + pause.wait(failures, &key);
        self.retries.insert(key, (failures, due));
        self.change();
    }
}
