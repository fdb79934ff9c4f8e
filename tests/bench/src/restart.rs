//! A start of the hub that finds only finished tasks: it must read them, and write nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch};
use renderhub::kubernetes::seal_key;
use renderhub::plan::task::model::Task;
use renderhub::plan::task::status_seal::{KEY_BYTES, SealKey};
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
    /// Writes of any kind but those on the hub's own Lease.
    pub writes: usize,
    /// Every write by verb, resource and name, those on the Lease among them.
    pub written: BTreeMap<String, usize>,
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
        written: requests.written,
        ready_seconds,
        cpu_seconds,
        memory,
    })
}

/// The key that the hubs of the runs before have made.
async fn seal_key(world: &World) -> Result<SealKey> {
    let secrets: Api<Secret> = Api::namespaced(world.admin.clone(), &world.rendering);
    let secret = secrets.get(seal_key::NAME).await?;
    let bytes = secret.data.and_then(|mut data| data.remove("key"));
    let key: [u8; KEY_BYTES] = bytes.context("a Secret without a key")?.0.as_slice().try_into()?;
    Ok(SealKey::new(key, Timestamp::now()))
}

/// Writes the status of a success on every task, as a hub would have.
async fn finish(world: &World, tasks: &[Task]) -> Result<()> {
    let _progress = Progress::start(format!("finishing {} tasks", tasks.len()));
    let key = seal_key(world).await?;
    let key = &key;
    futures::stream::iter(tasks.iter().map(Ok))
        .try_for_each_concurrent(IN_FLIGHT, |task| {
            let body = json!({"status": key.sealed(&task.id.uid, bare::finished(task)).0});
            let (manager, name) = (bare::manager(), &task.id.name);
            let request = bare::tasks(task).patch_subresource("status", name, &manager, &Patch::Merge(&body));
            wire::send(&world.admin, request)
        })
        .await
}
