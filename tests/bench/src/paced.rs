//! A pace: tasks arrive one by one while the hub runs, and the time from each task to its Job counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as open};
use kube::{Api, ResourceExt};
use renderhub::api::labels::{HUB_ID, TASK_UID};
use renderhub::plan::task::model::Task;
use renderhub_harness::progress::Progress;
use renderhub_harness::wait_for;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bare::Writer;
use crate::burst::until_all_done;
use crate::measure::Latency;
use crate::options::Rate;
use crate::share::{Own, Runs, Share};
use crate::world::World;

/// Longest from the last task to its Job.
const LIMIT: Duration = Duration::from_secs(60);

/// From the answer to a task's creation to its Job as a watcher sees it.
#[derive(Debug, Serialize)]
pub struct Paced {
    /// Tasks created in a second.
    pub per_second: u32,
    /// Tasks created.
    pub tasks: usize,
    /// With the hub, whose watch must show it the task.
    pub hub: Latency,
    /// The hub's own share of what its events waited.
    pub own: Own,
    /// With a bare writer that goes on where the task's creation was answered, and makes all its writes.
    pub bare: Latency,
}

/// Measures one pace, first with the bare writer, then with the hub.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(world: &World, rate: Rate) -> Result<Paced> {
    let bare = with_bare_writer(world, rate).await?;
    let (hub, own) = with_hub(world, rate).await?;
    Ok(Paced {
        per_second: rate.per_second,
        tasks: rate.tasks,
        hub,
        own,
        bare,
    })
}

async fn with_hub(world: &World, rate: Rate) -> Result<(Latency, Own)> {
    let finisher = world.spawn_finisher()?;
    let hub = world.spawn_hub()?;
    hub.wait_ready().await?;
    let jobs = JobWatch::open(world).await?;
    let progress = Progress::start(format!("the hub at {} tasks/s", rate.per_second));
    let created = pace(world, rate, None).await?;
    let latency = jobs.latency(&created).await?;
    until_all_done(world, &hub, &finisher, rate.tasks).await?;
    let own = Share::of(&hub, Runs::Here).await?.own()?;
    drop((hub, finisher, progress));
    remove(world, created).await?;
    Ok((latency, own))
}

async fn with_bare_writer(world: &World, rate: Rate) -> Result<Latency> {
    let client = world.bare_user.client().await?;
    let writer = Arc::new(Writer::new(client, &world.hub_id, &world.rendering)?);
    let jobs = JobWatch::open(world).await?;
    let progress = Progress::start(format!("the bare writer at {} tasks/s", rate.per_second));
    let created = pace(world, rate, Some(writer)).await?;
    let latency = jobs.latency(&created).await?;
    drop(progress);
    remove(world, created).await?;
    Ok(latency)
}

async fn remove(world: &World, created: Vec<(Task, Instant)>) -> Result<()> {
    let tasks: Vec<Task> = created.into_iter().map(|(task, _)| task).collect();
    world.remove_tasks(&tasks).await
}

/// Creates tasks at a rate that does not slow down when the answers do; when each was answered.
async fn pace(world: &World, rate: Rate, bare: Option<Arc<Writer>>) -> Result<Vec<(Task, Instant)>> {
    let begin = Instant::now();
    let one = |number: u32| {
        let bare = bare.clone();
        async move {
            let at = begin + Duration::from_secs(1) * number / rate.per_second;
            tokio::time::sleep_until(at.into()).await;
            let task = world.create_task(usize::try_from(number)?).await?;
            let answered = Instant::now();
            if let Some(writer) = bare {
                let task = task.clone();
                tokio::spawn(async move { writer.whole_life(task).await }).await??;
            }
            anyhow::Ok((task, answered))
        }
    };
    futures::stream::iter(0..u32::try_from(rate.tasks)?)
        .map(one)
        .buffer_unordered(rate.tasks.max(1))
        .try_collect()
        .await
}

/// When each task's Job was seen first.
pub struct JobWatch {
    seen: Arc<Mutex<HashMap<String, Instant>>>,
    watching: JoinHandle<()>,
}

impl JobWatch {
    /// A watch of every hub's Jobs that has begun.
    ///
    /// # Errors
    /// If it does not begin.
    pub async fn open(world: &World) -> Result<Self> {
        let api: Api<PartialObjectMeta<Job>> = Api::namespaced(world.admin.clone(), &world.rendering);
        let own = watcher::Config::default().labels(HUB_ID);
        let seen = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let (begun, has_begun) = oneshot::channel();
        let (keep, mut begun) = (Arc::clone(&seen), Some(begun));
        let watching = tokio::spawn(async move {
            let mut events = std::pin::pin!(open(api, own).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(job) | Event::InitApply(job)) => {
                        let task = job.labels().get(TASK_UID).cloned().unwrap_or_default();
                        let mut seen = keep.lock().unwrap_or_else(PoisonError::into_inner);
                        seen.entry(task).or_insert_with(Instant::now);
                    }
                    // The receiver of the start is gone only if the measurement failed.
                    Ok(Event::InitDone) => _ = begun.take().map(|begun| begun.send(())),
                    // A watch that breaks is opened again by itself.
                    _ => {}
                }
            }
        });
        has_begun.await.context("the watch of Jobs did not begin")?;
        Ok(Self { seen, watching })
    }

    /// Waits until every task's Job was seen; what counts of how long each took.
    async fn latency(self, created: &[(Task, Instant)]) -> Result<Latency> {
        Latency::of(self.took(created).await?)
    }

    /// How long each took whose Job was seen so far.
    pub fn so_far(&self, created: &[(Task, Instant)]) -> Vec<Option<Duration>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let took = created.iter().map(|(task, answered)| {
            let at = seen.get(task.id.uid.as_str())?;
            Some(at.saturating_duration_since(*answered))
        });
        took.collect()
    }

    /// Waits until every task's Job was seen; how long each took.
    ///
    /// # Errors
    /// If one is not seen.
    pub async fn took(&self, created: &[(Task, Instant)]) -> Result<Vec<Duration>> {
        wait_for("every task's Job", LIMIT, async || {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let took = created.iter().map(|(task, answered)| {
                let at = seen.get(task.id.uid.as_str())?;
                Some(at.saturating_duration_since(*answered))
            });
            Ok(took.collect::<Option<Vec<_>>>())
        })
        .await
    }
}

impl Drop for JobWatch {
    fn drop(&mut self) {
        self.watching.abort();
    }
}
