//! Follows Jobs and tasks by watches, finishes the Jobs, and records when what was seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as open};
use kube::{Api, Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobSucceeded};
use renderhub::api::labels::{HUB_ID, TASK_UID};
use renderhub_harness::wait_for;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::load::{Made, Target};
use super::stage::{LIMIT, Stage};
use crate::finisher;
use crate::wire;

/// When what was seen first, by the UID of the task.
#[derive(Default)]
struct Seen {
    jobs: HashMap<String, Instant>,
    finished: HashMap<String, Instant>,
    ended: HashMap<String, (Instant, bool)>,
    refused: Option<String>,
}

/// Follows until it is dropped.
pub struct Follower {
    seen: Arc<Mutex<Seen>>,
    _watches: JoinSet<()>,
}

impl Follower {
    /// Follows the hub's Jobs on both sides and its tasks, and finishes each Job when it has run for so long. All watches
    /// have begun when this returns.
    ///
    /// # Errors
    /// If a watch does not begin.
    pub async fn start(stage: &Stage, runs: Duration) -> Result<Self> {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut watches = JoinSet::new();
        let mut starts = Vec::new();
        for client in [&stage.world.admin, &stage.admin] {
            let (begin, has_begun) = oneshot::channel();
            let jobs = Jobs {
                client: client.clone(),
                hub_id: stage.world.hub_id.clone(),
                runs,
                seen: Arc::clone(&seen),
            };
            watches.spawn(jobs.follow(begin));
            starts.push(has_begun);
        }
        let (begin, has_begun) = oneshot::channel();
        watches.spawn(tasks(stage.world.admin.clone(), Arc::clone(&seen), begin));
        starts.push(has_begun);
        for started in starts {
            started.await.context("a watch did not begin")?;
        }
        Ok(Self {
            seen,
            _watches: watches,
        })
    }

    /// How long it took to each Job from the answer to its task's creation; waits for all.
    ///
    /// # Errors
    /// If a Job does not come.
    pub async fn to_job(&self, made: &[&Made]) -> Result<Vec<Duration>> {
        wait_for("every task's Job", LIMIT, async || {
            let seen = self.seen();
            let took = made.iter().map(|made| {
                let at = seen.jobs.get(made.task.id.uid.as_str())?;
                Some(at.saturating_duration_since(made.answered))
            });
            Ok(took.collect::<Option<Vec<_>>>())
        })
        .await
    }

    /// How long it took from the answer that finished each Job to the end of its task; waits for all.
    ///
    /// # Errors
    /// If a task does not end.
    pub async fn to_end(&self, made: &[Made]) -> Result<Vec<Duration>> {
        wait_for("every task's end", LIMIT, async || {
            let seen = self.seen();
            let took = made.iter().map(|made| {
                let uid = made.task.id.uid.as_str();
                let (ended, finished) = (seen.ended.get(uid)?.0, seen.finished.get(uid)?);
                Some(ended.saturating_duration_since(*finished))
            });
            let took = took.collect::<Option<Vec<_>>>();
            anyhow::ensure!(seen.refused.is_none() || took.is_some(), "{:?}", seen.refused);
            Ok(took)
        })
        .await
    }

    /// Tasks that failed, or did not end in time; those on dead clusters are not meant to.
    pub async fn failed(&self, made: &[Made]) -> usize {
        let meant = || made.iter().filter(|made| !matches!(made.target, Target::Dead(_)));
        let succeeded = |seen: &Seen, made: &Made| {
            let end = seen.ended.get(made.task.id.uid.as_str());
            end.map(|(_, is_success)| *is_success)
        };
        let waited = wait_for("every task's end", LIMIT, async || {
            let seen = self.seen();
            Ok(meant().all(|made| succeeded(&seen, made).is_some()).then_some(()))
        });
        // What did not end in time counts as failed.
        _ = waited.await;
        let seen = self.seen();
        meant()
            .filter(|made| succeeded(&seen, made) != Some(true))
            .count()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The Jobs of one side.
struct Jobs {
    client: Client,
    hub_id: String,
    runs: Duration,
    seen: Arc<Mutex<Seen>>,
}

impl Jobs {
    async fn follow(self, begun: oneshot::Sender<()>) {
        let api: Api<PartialObjectMeta<Job>> = Api::all(self.client.clone());
        let own = watcher::Config::default().labels(&format!("{HUB_ID}={}", self.hub_id));
        let mut events = std::pin::pin!(open(api, own).default_backoff());
        let (mut begun, mut finishing) = (Some(begun), JoinSet::new());
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(job) | Event::InitApply(job)) => {
                    let task = job.labels().get(TASK_UID).cloned().unwrap_or_default();
                    let is_new = lock(&self.seen).jobs.insert_new(&task);
                    if is_new {
                        finishing.spawn(self.finish(task, &job));
                    }
                    while finishing.try_join_next().is_some() {}
                }
                // The receiver of the start is gone only if the measurement failed.
                Ok(Event::InitDone) => _ = begun.take().map(|begun| begun.send(())),
                // A watch that breaks is opened again by itself.
                _ => {}
            }
        }
    }

    fn finish(&self, task: String, job: &PartialObjectMeta<Job>) -> impl Future<Output = ()> + use<> {
        let (client, seen, runs) = (self.client.clone(), Arc::clone(&self.seen), self.runs);
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        async move {
            tokio::time::sleep(runs).await;
            match wire::send(&client, finisher::complete(&namespace, &name)).await {
                Ok(()) => _ = lock(&seen).finished.insert(task, Instant::now()),
                Err(error) => lock(&seen).refused = Some(format!("{error:#}")),
            }
        }
    }
}

/// Records what is new, and when.
trait InsertNew {
    fn insert_new(&mut self, key: &str) -> bool;
}

impl InsertNew for HashMap<String, Instant> {
    fn insert_new(&mut self, key: &str) -> bool {
        let is_new = !self.contains_key(key);
        if is_new {
            self.insert(key.to_owned(), Instant::now());
        }
        is_new
    }
}

async fn tasks(client: Client, seen: Arc<Mutex<Seen>>, begun: oneshot::Sender<()>) {
    let api: Api<RenderTask> = Api::all(client);
    let mut begun = Some(begun);
    let mut events = std::pin::pin!(open(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(task) | Event::InitApply(task)) => {
                if let Some(is_success) = end(&task) {
                    let uid = task.uid().unwrap_or_default();
                    let mut seen = lock(&seen);
                    seen.ended.entry(uid).or_insert((Instant::now(), is_success));
                }
            }
            Ok(Event::InitDone) => _ = begun.take().map(|begun| begun.send(())),
            _ => {}
        }
    }
}

/// Whether a task ended with success; `None` where it has not ended.
pub fn end(task: &RenderTask) -> Option<bool> {
    let conditions = task.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let mut ends = conditions.iter().filter(|condition| condition.status == "True");
    ends.find_map(|condition| match condition.type_.as_str() {
        kind if kind == JobSucceeded.as_str() => Some(true),
        kind if kind == JobFailed.as_str() => Some(false),
        _ => None,
    })
}
