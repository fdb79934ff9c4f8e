//! A start of the hub that finds only finished tasks: it must read them, and write nothing.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::TryStreamExt;
use kube::api::Patch;
use renderhub::plan::task::Task;
use renderhub_harness::progress::Progress;
use renderhub_harness::wait_for;
use serde::Serialize;
use serde_json::json;

use crate::audit::Requests;
use crate::bare;
use crate::measure::{Memory, cpu_seconds, memory};
use crate::wire::{self, IN_FLIGHT};
use crate::world::World;

/// How long the hub is watched after it is ready, for writes that it should not make.
const WATCHED: Duration = Duration::from_secs(5);
/// Longest until it is ready.
const LIMIT: Duration = Duration::from_secs(120);

/// What a start cost.
#[derive(Debug, Serialize)]
pub struct Restart {
    /// Finished tasks that it found.
    pub tasks: usize,
    /// Writes of any kind.
    pub writes: usize,
    /// From the start of the process to `/readyz`.
    pub ready_seconds: f64,
    /// CPU time until some seconds later.
    pub cpu_seconds: f64,
    /// Memory then.
    pub memory: Memory,
}

/// Makes finished tasks and starts a hub.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(world: &World) -> Result<Restart> {
    let tasks = world.create_tasks(world.restart_tasks).await?;
    finish(world, &tasks).await?;
    let audit = world.plane.audit()?;
    let begin = audit.mark().await?;
    let started = Instant::now();
    let hub = world.spawn_hub()?;
    let ready_seconds = wait_for("the hub to be ready", LIMIT, async || {
        let is_ready = hub.get("/readyz").await.is_ok_and(|(code, _)| code == 200);
        Ok(is_ready.then(|| started.elapsed().as_secs_f64()))
    })
    .await?;
    tokio::time::sleep(WATCHED).await;
    let (cpu_seconds, memory) = (cpu_seconds(&hub.pid().to_string())?, memory(hub.pid())?);
    drop(hub);
    let requests = Requests::since(audit, begin, &world.hub_user).await?;
    Ok(Restart {
        tasks: tasks.len(),
        writes: requests.all_writes,
        ready_seconds,
        cpu_seconds,
        memory,
    })
}

/// Writes the status of a success on every task.
async fn finish(world: &World, tasks: &[Task]) -> Result<()> {
    let _progress = Progress::start(format!("finishing {} tasks", tasks.len()));
    futures::stream::iter(tasks.iter().map(Ok))
        .try_for_each_concurrent(IN_FLIGHT, |task| {
            let body = json!({"status": bare::finished(task)});
            let (manager, name) = (bare::manager(), &task.id.name);
            let request = bare::tasks(task).patch_subresource("status", name, &manager, &Patch::Merge(&body));
            wire::send(&world.admin, request)
        })
        .await
}
