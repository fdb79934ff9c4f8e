//! What stays in the hub's memory of the names in tasks that came and went: nothing, however many there were.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use renderhub::kubernetes::object::SlimObject;
use renderhub_harness::progress::Progress;
use renderhub_harness::{Hub, wait_for};
use serde_json::{Value, json};

use crate::measure::{Memory, load, memory, number};
use crate::options::{Options, beside_program};
use crate::wire::{self, IN_FLIGHT};
use crate::world::World;

/// Tasks that are there at once; each batch comes and goes as a whole.
const BATCH: usize = 200;
/// Batches after which the memory is what a hub needs that has forgotten nothing it should not.
const FIRST: usize = 10;
/// Memory at the end as a part of that, at most.
const RATIO: f64 = 1.05;
/// Longest that a batch may take to be seen, or to be gone.
const LIMIT: Duration = Duration::from_secs(120);

/// How much of it is measured.
#[derive(Clone, Debug, Args)]
pub struct NamesOptions {
    /// Measures nothing but the memory of names; no other run does.
    #[arg(long, conflicts_with_all = ["only_remote", "only_instances"])]
    pub only_names: bool,
    /// Tasks that come and go, each with names of its own, in batches of 200; the first ten are what the others are compared with.
    #[arg(long, default_value_t = 20_000)]
    names_tasks: usize,
    /// File that the figures are written to as JSON [default: bench/names.json in cargo's target directory].
    #[arg(long)]
    names_output: Option<PathBuf>,
}

/// Has tasks come and go, prints the memory and writes it as JSON.
///
/// # Errors
/// If something cannot be measured, or the memory has grown.
pub async fn measure(options: &Options) -> Result<()> {
    let batches = options.names.names_tasks / BATCH;
    ensure!(
        batches > FIRST,
        "at least {} tasks are needed",
        (FIRST + 1) * BATCH
    );
    let (load_before, world) = (load(), World::start(options, true).await?);
    let hub = world.spawn_hub()?;
    hub.wait_ready().await?;
    let mut all: Vec<Memory> = Vec::new();
    {
        let _progress = Progress::start(format!("{} tasks come and go", batches * BATCH));
        for batch in 0..batches {
            come_and_go(&world, &hub, batch * BATCH).await?;
            all.push(memory(hub.pid())?);
        }
    }
    let (first, last) = all.get(FIRST - 1).zip(all.last()).context("no batch")?;
    let ratio = last.now_mib / first.now_mib;
    println!(
        "names: {:.1} MiB after {} tasks, {:.1} MiB after {}: {ratio:.3} (target at most {RATIO})",
        first.now_mib,
        FIRST * BATCH,
        last.now_mib,
        batches * BATCH
    );
    let figures = json!({
        "tasks": batches * BATCH, "compared_with_tasks": FIRST * BATCH, "load_before": load_before,
        "rss_mib_first": first.now_mib, "rss_mib_last": last.now_mib, "rss_last_over_first_ratio": ratio,
        "rss_mib": all.iter().map(|memory| memory.now_mib).collect::<Vec<_>>(),
        "mib_per_10000_tasks": (last.now_mib - first.now_mib) / number((batches - FIRST) * BATCH) * 10_000.0,
    });
    write(&options.names, &figures)?;
    ensure!(ratio <= RATIO, "the hub's memory grew by a factor of {ratio:.3}");
    Ok(())
}

fn write(options: &NamesOptions, figures: &Value) -> Result<()> {
    let path = options
        .names_output
        .clone()
        .map_or_else(|| beside_program("names.json"), Ok)?;
    std::fs::create_dir_all(path.parent().context("no directory")?)?;
    Ok(std::fs::write(path, serde_json::to_string_pretty(figures)?)?)
}

/// Fields that no other task has the like of: a cluster of the platform's, one of the tenant's, or a registry elsewhere.
fn naming(number: usize) -> Value {
    let account = format!("account-{number}");
    match number % 3 {
        0 => json!({"serviceAccountName": account, "clusterName": format!("cluster-{number}")}),
        1 => json!({
            "serviceAccountName": account, "deploymentNamespace": format!("there-{number}"),
            "kubeConfig": {"secretRef": {"name": format!("cluster-{number}"), "namespace": format!("secrets-{number}")}},
        }),
        _ => json!({
            "serviceAccountName": account,
            "registryRef": {"kind": "Registry", "name": "main", "namespace": format!("registries-{number}")},
        }),
    }
}

/// Creates a batch of tasks that cannot start, waits for their conditions, and deletes them.
async fn come_and_go(world: &World, hub: &Hub, first: usize) -> Result<()> {
    let made: Vec<_> = futures::stream::iter(first..first + BATCH)
        .map(|number| async move { world.create_task_with(number, &naming(number)).await })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await?;
    let pending = format!("renderhub_tasks{{phase=\"pending\"}} {}", made.len());
    wait_for("the hub to know the tasks", LIMIT, async || {
        let text = hub.metrics().await?;
        Ok(text.lines().any(|line| line == pending).then_some(()))
    })
    .await?;
    let all: Api<SlimObject> = Api::all_with(world.admin.clone(), &World::resource());
    wait_for("the tasks to say why they wait", LIMIT, async || {
        let tasks = all.list(&ListParams::default()).await?.items;
        let waiting = tasks
            .into_iter()
            .filter_map(|task| task.into_task(renderhub::api::names::TaskKind::RenderTask, None));
        Ok((waiting.filter(|task| !task.status.conditions.is_empty()).count() == made.len()).then_some(()))
    })
    .await?;
    for request in world.delete_requests(&DeleteParams::default()) {
        wire::send(&world.admin, request).await?;
    }
    wait_for("the tasks to be gone", LIMIT, async || {
        let left = all.list_metadata(&ListParams::default().limit(1)).await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await
}
