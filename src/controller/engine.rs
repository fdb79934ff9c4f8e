//! The loop that owns what the hub remembers: it takes in what the watches see, hands tasks to workers, and takes in
//! what they bring.
//!
//! One owner means no locks. Workers are tasks of their own, so a panic in one costs its task an error and a retry.

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
use crate::plan::gc::{Marked, orphans};
use crate::plan::queue::{Caps, FairQueue};
use crate::plan::task::{Phase, Task};
use crate::watch::{Change, Input, JobMark, Scope, task_of};
use crate::workqueue::WorkQueue;

use super::index::{Index, QUEUED_AFTER, Record};
use super::registries::Published;
use super::sweep::{Sweep, remove_orphans};
use super::worker::{Context, Outcome, WorkError, work};

/// Time after which a task that was held by something nobody watches is tried again.
const HELD_RETRY: Duration = Duration::from_secs(300);

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

/// Which of its sources the engine has seen whole.
#[derive(Debug, Default)]
struct Synced {
    /// Scopes of tasks that were not seen whole yet.
    open: HashSet<Scope>,
    jobs: bool,
    pods: bool,
    secrets: bool,
    catalog: bool,
}

impl Synced {
    fn all(&self) -> bool {
        self.open.is_empty() && self.jobs && self.pods && self.secrets && self.catalog
    }
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
    synced: Synced,
    sweep_due: Instant,
    is_sweeping: bool,
}

impl Engine {
    /// An engine that has seen nothing yet, for the tasks of these scopes.
    pub fn new(
        context: Arc<Context>,
        metrics: Metrics,
        limits: Limits,
        scopes: Vec<Scope>,
        catalog: watch::Receiver<Published>,
        ready: watch::Sender<bool>,
    ) -> Self {
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
            synced: Synced {
                open: scopes.into_iter().collect(),
                ..Synced::default()
            },
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
                    self.settle_sync(|synced| synced.catalog = true);
                    self.wake_blocked();
                }
                Some(()) = OptionFuture::from(wake.map(|at| tokio::time::sleep_until(at.into()))) => {}
            }
        }
        while self.running.join_next().await.is_some() {}
    }

    // === inputs ===

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Task(scope, change) => self.take_in_task(scope, change),
            Input::Job(change) => self.take_in_job(change),
            Input::Pod(change) => match change {
                Change::Seen((task, note)) => self.index.keep_note(&task, note),
                Change::Synced => self.settle_sync(|synced| synced.pods = true),
                Change::Restart | Change::Gone(_) => {}
            },
        }
    }

    fn take_in_task(&mut self, scope: Scope, change: Change<Box<Task>>) {
        match change {
            Change::Restart => self.index.restart(Some(&scope)),
            Change::Seen(task) => {
                let uid = task.id.uid.clone();
                if self.index.see_task(&scope, *task) {
                    self.queue.add(&uid);
                }
            }
            Change::Gone(uid) => self.forget(&uid),
            Change::Synced => {
                for uid in self.index.vanished_tasks(&scope) {
                    self.forget(&uid);
                }
                self.settle_sync(|synced| _ = synced.open.remove(&scope));
            }
        }
    }

    fn take_in_job(&mut self, change: Change<JobMark>) {
        match change {
            Change::Restart => self.index.restart(None),
            Change::Seen(mark) => {
                let (task, now) = (mark.task.clone(), Instant::now());
                if let Some(look) = self.index.see_job(mark, now) {
                    self.queue.add_at(&task, look);
                }
            }
            Change::Gone(task) => self.lose_job(&task),
            Change::Synced => {
                for task in self.index.vanished_jobs() {
                    self.lose_job(&task);
                }
                self.settle_sync(|synced| synced.jobs = true);
            }
        }
    }

    fn lose_job(&mut self, task: &TaskUid) {
        self.index.forget_job(task);
        if self.passes.values().any(|busy| busy == task) {
            self.jobs_gone.insert(task.clone());
        }
        self.queue.add(task);
    }

    /// Counts a source as seen; with the last one the hub is ready, and Jobs that run already take their slots.
    fn settle_sync(&mut self, seen: impl FnOnce(&mut Synced)) {
        let was_ready = self.synced.all();
        seen(&mut self.synced);
        if was_ready || !self.synced.all() {
            return;
        }
        self.index.prune_secrets();
        for (task, _) in self.index.jobs() {
            if let Some(record) = self.index.task(task).filter(|r| !r.phase.is_finished()) {
                self.fair.adopt(record.namespace(), record.created, task);
            }
        }
        self.ready.send_replace(true);
        tracing::info!(tasks = self.index.tasks().count(), "ready");
    }

    fn forget(&mut self, uid: &TaskUid) {
        if let Some((namespace, created)) = self.index.forget_task(uid) {
            self.fair.leave(&namespace, created, uid);
        }
        self.backoff.clear(uid);
        self.queue.forget(uid);
    }

    /// What the platform offers changed: tasks that waited for it look again.
    fn wake_blocked(&mut self) {
        let blocked = |r: &Record| r.blocked || r.held.is_some();
        let uids: Vec<_> = self
            .index
            .tasks()
            .filter(|(_, r)| blocked(r))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in uids {
            if let Some(record) = self.index.task_mut(&uid) {
                record.held = None;
            }
            self.queue.add(&uid);
        }
    }

    // === work ===

    fn start_work(&mut self) {
        let now = Instant::now();
        if self.sweep_due <= now && !self.is_sweeping {
            self.is_sweeping = true;
            let context = Arc::clone(&self.context);
            self.running
                .spawn(async move { Finished::Sweep(context.calls.list_own_secrets().await) });
        }
        if !self.synced.all() {
            return;
        }
        while let Some(uid) = self.fair.next() {
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
                self.take_outcome(&uid, *outcome);
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

    fn take_outcome(&mut self, uid: &TaskUid, outcome: Outcome) {
        let error = outcome.error;
        if outcome.is_gone {
            self.forget(uid);
            return;
        }
        self.take_objects(uid, &outcome);
        self.take_slot(uid, &outcome);
        if let Some(wake) = outcome.wake {
            self.queue.add_at(uid, instant(wake));
        }
        if outcome.held.is_some() {
            self.queue.add_at(uid, Instant::now() + HELD_RETRY);
        }
        match error {
            None => {
                self.backoff.clear(uid);
                // The pass took up every wake-up of the task, so the look at its Job is asked for anew.
                if let Some(look) = self.index.look_due(uid) {
                    self.queue.add_at(uid, look);
                }
            }
            Some(error) => {
                if error == WorkError::Call(CallError::Conflict)
                    && let Some(record) = self.index.task_mut(uid)
                {
                    // What is remembered is stale; the next pass reads.
                    record.whole = None;
                }
                self.fail(uid, error.kind());
            }
        }
    }

    fn take_objects(&mut self, uid: &TaskUid, outcome: &Outcome) {
        let now = Instant::now();
        if let Some(task) = &outcome.task {
            self.index.changed_task(Arc::clone(task));
        }
        if let Some(secret) = &outcome.secret {
            self.index.keep_secret(uid, secret);
        }
        if outcome.deleted_secret {
            self.index.forget_secret(uid);
        }
        if let Some(job) = &outcome.job
            && !self.jobs_gone.remove(uid)
        {
            self.index.keep_job(job.clone(), now, outcome.error.is_none());
        }
        if outcome.no_job {
            self.index.forget_job(uid);
        }
        if let Some(job) = &outcome.deleted_job {
            self.index.clear_job(uid, job);
        }
    }

    fn take_slot(&mut self, uid: &TaskUid, outcome: &Outcome) {
        let has_job = self.index.has_job(uid);
        let Some(record) = self.index.task_mut(uid) else {
            return;
        };
        record.held = outcome.held;
        let is_waiting = record.phase == Phase::Pending && !record.deleting && !has_job;
        record.blocked = is_waiting && !outcome.wants_slot;
        if !outcome.wants_slot {
            record.waits_since = None;
        } else {
            let now = Instant::now();
            let due = *record.waits_since.get_or_insert(now) + QUEUED_AFTER;
            if due > now {
                self.queue.add_at(uid, due);
            }
        }
        let (namespace, created) = (Arc::clone(record.namespace()), record.created);
        if has_job && !record.phase.is_finished() {
            self.fair.adopt(&namespace, created, uid);
        } else if outcome.wants_slot {
            self.fair.wait(&namespace, created, uid);
        } else {
            self.fair.leave(&namespace, created, uid);
        }
    }

    // === sweep ===

    /// Takes in which config Secrets exist, and removes what belongs to no task any more.
    fn take_secrets(&mut self, secrets: Result<Vec<ObjectMeta>, CallError>) {
        self.is_sweeping = false;
        let Ok(secrets) = secrets else {
            self.sweep_due = Instant::now() + Duration::from_secs(5);
            return;
        };
        self.sweep_due = Instant::now() + self.limits.gc_interval;
        for meta in &secrets {
            if let (Some(task), Some(uid)) = (task_of(meta), meta.uid.as_deref()) {
                self.index.keep_secret(&task, uid);
                self.queue.add(&task);
            }
        }
        if self.synced.all() {
            self.index.prune_secrets();
        }
        let was_ready = self.synced.all();
        self.settle_sync(|synced| synced.secrets = true);
        if was_ready {
            self.remove_orphans(secrets);
        } else {
            // The tasks were not all seen when the list was made: the orphans among them wait for the next sweep.
            self.sweep_due = Instant::now() + self.limits.gc_interval.min(Duration::from_secs(60));
        }
    }

    fn remove_orphans(&mut self, secrets: Vec<ObjectMeta>) {
        let phase = |uid: &TaskUid| self.index.task(uid).map(|r| r.phase);
        let pick = |all: Vec<(Marked, ObjectMeta)>| -> Vec<ObjectMeta> {
            let marked: Vec<_> = all.iter().map(|(m, _)| m.clone()).collect();
            let uids: HashSet<_> = orphans(&marked, phase).map(|m| m.uid.clone()).collect();
            all.into_iter()
                .filter(|(m, _)| uids.contains(&m.uid))
                .map(|(_, meta)| meta)
                .collect()
        };
        let now = Timestamp::now();
        let sweep = Sweep {
            secrets: pick(
                secrets
                    .into_iter()
                    .map(|m| (super::sweep::marked(&m, now), m))
                    .collect(),
            ),
            jobs: self
                .index
                .jobs()
                .filter(|(task, _)| phase(task).is_none())
                .map(|(_, j)| j.mark.clone())
                .collect(),
        };
        if sweep.is_empty() {
            return;
        }
        let (context, metrics) = (Arc::clone(&self.context), self.metrics.clone());
        self.running.spawn(async move {
            remove_orphans(&context.calls, &metrics, sweep).await;
            Finished::Removal
        });
    }

    // === clock and metrics ===

    fn next_wake(&mut self) -> Option<Instant> {
        let sweep = (!self.is_sweeping).then_some(self.sweep_due);
        let work =
            (self.synced.all() && self.passes.len() < self.limits.workers).then(|| self.queue.next_wake());
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
