//! The quiet tenant, and a bare writer that does the same at the same moments without a hub.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use renderhub::api::RenderTask;
use renderhub::plan::task::model::Task;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::Ground;
use super::tenants::Whose;
use crate::bare::Writer;
use crate::measure::Latency;
use crate::paced::JobWatch;
use crate::remote::follow::end;

/// Time between two tasks of the quiet tenant.
const PAUSE: Duration = Duration::from_millis(500);
/// Seconds after which its finished tasks go; long enough that the watch sees their end.
const GONE_AFTER: u32 = 120;

/// A task that was made, and when the API server answered.
type Made = (Task, Instant);

/// What it waited for, and what became of its tasks.
#[derive(Debug)]
pub struct Waits {
    /// Tasks that it made.
    pub tasks: usize,
    /// From the answer to a task's creation to its Job, as a watch sees it.
    pub hub: Latency,
    /// From the answer to the creation of a task of the bare writer's to its Job, as a watch sees it.
    pub bare: Latency,
    /// Tasks that had no Job in time, or did not succeed.
    pub lost: usize,
    /// Its requests, or the bare writer's, that the API server refused.
    pub refused: usize,
}

/// What both asked for.
#[derive(Default)]
struct Asked {
    quiet: Vec<Made>,
    bare: Vec<Made>,
    refused: usize,
}

/// Both, until the end of the soak.
pub struct Quiet {
    jobs: JobWatch,
    ends: Ends,
    making: JoinHandle<Result<Asked>>,
}

impl Quiet {
    /// Starts both, and the watches that see what becomes of it.
    ///
    /// # Errors
    /// If a watch does not begin.
    pub async fn start(ground: Arc<Ground>) -> Result<Self> {
        let world = &ground.stage.world;
        let client = world.bare_user.client().await?;
        let writer = Writer::new(client, &world.hub_id_of("bare")?, &world.rendering)?;
        let jobs = JobWatch::open(world).await?;
        let tasks = Api::namespaced(world.admin.clone(), &world.namespaces()[Whose::Quiet as usize]);
        let ends = Ends::open(tasks).await?;
        Ok(Self {
            jobs,
            ends,
            making: tokio::spawn(make(ground, Arc::new(writer))),
        })
    }

    /// Waits for the last requests, no longer than so; returns the result.
    ///
    /// # Errors
    /// If nothing was measured.
    pub async fn end(self, patience: Duration) -> Result<Waits> {
        let Asked { quiet, bare, refused } = self.making.await??;
        let until = Instant::now() + patience;
        let is_whole = || {
            let ends = self.ends.seen();
            quiet
                .iter()
                .all(|(task, _)| ends.contains_key(task.id.uid.as_str()))
        };
        while !is_whole() && Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
        }
        let ends = self.ends.seen();
        let took = self.jobs.so_far(&quiet);
        let is_lost = |(task, took): (&Made, &Option<Duration>)| {
            took.is_none() || ends.get(task.0.id.uid.as_str()) != Some(&true)
        };
        Ok(Waits {
            tasks: quiet.len(),
            lost: quiet.iter().zip(&took).filter(|pair| is_lost(*pair)).count(),
            hub: Latency::of(took.into_iter().flatten().collect())?,
            bare: Latency::of(self.jobs.so_far(&bare).into_iter().flatten().collect())?,
            refused,
        })
    }
}

/// Makes a task of each at a steady pace, whatever the answers take.
async fn make(ground: Arc<Ground>, writer: Arc<Writer>) -> Result<Asked> {
    let (mut under_way, mut number) = (JoinSet::new(), 0);
    while ground.goes_on_after(PAUSE).await {
        number += 1;
        let (ground, writer) = (Arc::clone(&ground), Arc::clone(&writer));
        under_way.spawn(async move {
            let world = &ground.stage.world;
            let brief = json!({"ttlSecondsAfterFinished": GONE_AFTER});
            let quiet = async {
                let task = world
                    .create_task_with(Whose::Quiet.number(number), &brief)
                    .await?;
                anyhow::Ok((task, Instant::now()))
            };
            let bare = async {
                let task = world.create_task(Whose::Bare.number(number)).await?;
                let answered = Instant::now();
                writer.whole_life(task.clone()).await?;
                anyhow::Ok((task, answered))
            };
            tokio::join!(quiet, bare)
        });
    }
    let mut asked = Asked::default();
    while let Some(pair) = under_way.join_next().await {
        let (quiet, bare) = pair?;
        asked.refused += usize::from(quiet.is_err()) + usize::from(bare.is_err());
        asked.quiet.extend(quiet);
        asked.bare.extend(bare);
    }
    Ok(asked)
}

/// Whether each task ended with success, by its UID.
struct Ends {
    seen: Arc<Mutex<HashMap<String, bool>>>,
    watching: JoinHandle<()>,
}

impl Ends {
    async fn open(tasks: Api<RenderTask>) -> Result<Self> {
        let seen = Arc::<Mutex<HashMap<String, bool>>>::default();
        let (begun, has_begun) = oneshot::channel();
        let keep = Arc::clone(&seen);
        let watching = tokio::spawn(async move {
            let mut begun = Some(begun);
            let mut events = std::pin::pin!(watcher(tasks, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(task) | watcher::Event::InitApply(task)) => {
                        if let (Some(uid), Some(is_success)) = (task.uid(), end(&task)) {
                            let mut seen = keep.lock().unwrap_or_else(PoisonError::into_inner);
                            seen.entry(uid).or_insert(is_success);
                        }
                    }
                    // Who waits for the start has gone only if the measurement failed.
                    Ok(watcher::Event::InitDone) => _ = begun.take().map(|begun| begun.send(())),
                    // A watch that breaks is opened again by itself.
                    _ => {}
                }
            }
        });
        has_begun.await.context("the watch of tasks did not begin")?;
        Ok(Self { seen, watching })
    }

    fn seen(&self) -> HashMap<String, bool> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_tasks_of_both_have_names_of_their_own() {
        let numbers: HashSet<usize> = (0..50)
            .flat_map(|number| [Whose::Quiet.number(number), Whose::Bare.number(number)])
            .collect();
        assert_eq!(numbers.len(), 100);
    }
}
