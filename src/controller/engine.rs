//! The loop that owns what the hub remembers: it takes in what the watches see, hands tasks to workers, and takes in
//! what they bring.
//!
//! One owner means no locks. [`inputs`] and [`outcomes`] are the two ways in which what it remembers changes.
//! Workers are tasks of their own, so a panic in one costs its task an error and a retry.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::OptionFuture;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::apply::CallError;
use crate::backoff::Backoff;
use crate::metrics::{KindLabel, Metrics};
use crate::names::TaskUid;
use crate::plan::queue::{Caps, FairQueue};
use crate::watch::{Input, Scope};
use crate::workqueue::WorkQueue;

use super::index::Index;
use super::record::Record;
use super::registries::Published;
use super::worker::{Context, Outcome, work};

mod inputs;
mod outcomes;

/// What bounds the engine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Jobs at once.
    pub caps: Caps,
    /// Passes at once; more only queue up in the API server.
    pub workers: usize,
    /// Time between sweeps.
    pub gc_interval: Duration,
}

/// Something that must be seen whole before anything is decided.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Source {
    Tasks(Scope),
    Jobs,
    Pods,
    Secrets,
    Catalog,
}

/// What a spawned piece of work was.
enum Finished {
    Pass(TaskUid, Instant, Box<Outcome>),
    Sweep(Result<Vec<ObjectMeta>, CallError>),
    Removal,
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
    backoff: Backoff<TaskUid>,
    running: JoinSet<Finished>,
    passes: HashMap<Id, TaskUid>,
    /// Tasks whose Job went while a worker had them.
    jobs_gone: HashSet<TaskUid>,
    /// What was not seen whole yet.
    unseen: HashSet<Source>,
    sweep_due: Instant,
    is_sweeping: bool,
}

impl Engine {
    /// An engine that has seen nothing yet, for the tasks of these scopes.
    #[must_use]
    pub fn new(
        context: Arc<Context>,
        metrics: Metrics,
        limits: Limits,
        scopes: Vec<Scope>,
        catalog: watch::Receiver<Published>,
        ready: watch::Sender<bool>,
    ) -> Self {
        let others = [Source::Jobs, Source::Pods, Source::Secrets, Source::Catalog];
        Self {
            context,
            metrics,
            limits,
            catalog,
            ready,
            index: Index::default(),
            queue: WorkQueue::default(),
            fair: FairQueue::new(limits.caps),
            backoff: Backoff::default(),
            running: JoinSet::new(),
            passes: HashMap::new(),
            jobs_gone: HashSet::new(),
            unseen: scopes.into_iter().map(Source::Tasks).chain(others).collect(),
            sweep_due: Instant::now(),
            is_sweeping: false,
        }
    }

    /// Runs until `stop`, then lets the passes under way end.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Input>, stop: CancellationToken) {
        loop {
            self.start_work();
            let wake = self.next_wake();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(input) = inputs.recv() => self.take_in(input),
                Some(done) = self.running.join_next_with_id() => self.finish(done),
                Ok(()) = self.catalog.changed() => {
                    self.saw(&Source::Catalog);
                    self.wake_blocked();
                }
                Some(()) = OptionFuture::from(wake.map(|at| tokio::time::sleep_until(at.into()))) => {}
            }
        }
        while self.running.join_next().await.is_some() {}
    }

    fn start_work(&mut self) {
        let now = Instant::now();
        if self.sweep_due <= now && !self.is_sweeping {
            self.is_sweeping = true;
            let context = Arc::clone(&self.context);
            self.running
                .spawn(async move { Finished::Sweep(context.calls.list_own_secrets().await) });
        }
        if !self.unseen.is_empty() {
            return;
        }
        while let Some(uid) = self.fair.grant() {
            self.queue.add(&uid);
        }
        while self.passes.len() < self.limits.workers {
            let Some(uid) = self.queue.take(now) else { break };
            self.start_pass(uid, now);
        }
        self.show();
    }

    fn start_pass(&mut self, uid: TaskUid, now: Instant) {
        let (view, due) = self.index.view(&uid, Timestamp::now(), now);
        let Some(view) = view else {
            self.queue.done(&uid);
            if let Some(due) = due {
                self.queue.add_at(&uid, instant(due));
            }
            return;
        };
        let has_slot = self.fair.is_running(&view.id.namespace, &uid);
        let (context, catalog) = (
            Arc::clone(&self.context),
            self.catalog.borrow().clone().unwrap_or_default(),
        );
        let key = uid.clone();
        self.jobs_gone.remove(&uid);
        let handle = self.running.spawn(async move {
            let outcome = work(context, catalog, view, has_slot).await;
            Finished::Pass(key, now, Box::new(outcome))
        });
        self.passes.insert(handle.id(), uid);
    }

    fn finish(&mut self, done: Result<(Id, Finished), JoinError>) {
        match done {
            Ok((id, Finished::Pass(uid, started, outcome))) => {
                self.passes.remove(&id);
                self.metrics.pass(started.elapsed());
                self.take_outcome(&uid, &outcome);
                self.queue.done(&uid);
            }
            Ok((_, Finished::Sweep(secrets))) => self.take_secrets(secrets),
            Ok((_, Finished::Removal)) => {}
            Err(error) => {
                if let Some(uid) = self.passes.remove(&error.id()) {
                    self.fail(&uid, "Panic");
                    self.queue.done(&uid);
                }
            }
        }
    }

    fn fail(&mut self, uid: &TaskUid, kind: &'static str) {
        self.metrics
            .reconcile_errors
            .get_or_create(&KindLabel { kind })
            .inc();
        let wait = self.backoff.failed(uid);
        self.queue.add_at(uid, Instant::now() + wait);
        tracing::warn!(task = %uid, kind, wait_ms = wait.as_millis(), "a pass failed; it is repeated");
    }

    fn next_wake(&mut self) -> Option<Instant> {
        let sweep = (!self.is_sweeping).then_some(self.sweep_due);
        let work = (self.unseen.is_empty() && self.passes.len() < self.limits.workers)
            .then(|| self.queue.next_wake());
        sweep.into_iter().chain(work.flatten()).min()
    }

    fn show(&self) {
        let depth = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.work_queue_depth.set(depth(self.queue.len()));
        self.metrics.waiting_tasks.set(depth(self.fair.len().0));
        for (kind, count) in self.index.phases() {
            self.metrics
                .tasks
                .get_or_create(&KindLabel { kind })
                .set(depth(count));
        }
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
