//! What the pipeline costs: a fleet from nothing beside the same writes without a hub and beside the very tasks of it made by hand,
//! one Release that changes, and a restart.

mod bare;
mod fleet;
mod plan;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures::{TryStreamExt, stream};
use kube::ResourceExt;
use renderhub::api::RenderTask;
use renderhub_harness::{Hub, wait_for};

pub use bare::{FleetWrites, run as run_bare};
use fleet::{Fleet, OneChanged, WATCHED, all, until_garbage_is_collected};
use report::Figures;

use crate::audit::Requests;
use crate::burst::{Server, in_phase, patience};
use crate::measure::{cpu_seconds, load, memory, number};
use crate::options::{Options, beside_program};
use crate::report::write_json;
use crate::rights;
use crate::wire::IN_FLIGHT;
use crate::world::World;

/// The write that says that a Target is ready.
const READY_WRITE: &str = "patch targets/status";
/// The write that says that a task succeeded.
const ENDED: &str = "patch rendertasks/status";
/// Between two looks at the metrics, each of which takes time of the hub and of the bench that the bare writer has for itself.
const PAUSE: Duration = Duration::from_secs(3);

/// How much of it is measured.
#[derive(Clone, Debug, Args)]
pub struct PipelineOptions {
    /// Measures the pipeline and nothing else; no other run does.
    #[arg(long, conflicts_with_all = ["only_remote", "only_instances", "only_names"])]
    pub only_pipeline: bool,
    /// Targets in all namespaces together.
    #[arg(long, default_value_t = 1000)]
    pipeline_targets: usize,
    /// Releases of each namespace, each with a Profile that matches every Target of it.
    #[arg(long, default_value_t = 20)]
    pipeline_releases: usize,
    /// Fleets of the hub, of the bare writer and by hand each, in turns: two say little where a machine's speed changes within minutes.
    #[arg(long, default_value_t = 4)]
    pipeline_rounds: usize,
    /// File that the figures are written to as JSON [default: bench/pipeline.json in cargo's target directory].
    #[arg(long)]
    pipeline_output: Option<PathBuf>,
}

/// Tasks that ended, and what that took.
struct Made {
    tasks: usize,
    /// From the first write to the last of those that count.
    seconds: f64,
    /// CPU time of the hub; of the bare writer that of its plan too.
    cpu_seconds: f64,
    /// CPU time of kube-apiserver meanwhile.
    apiserver_cpu_seconds: f64,
    requests: Requests,
}

impl Made {
    fn rate(&self) -> f64 {
        number(self.tasks) / self.seconds
    }

    /// With those of another run.
    fn with(mut self, other: &Self) -> Self {
        self.tasks += other.tasks;
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.apiserver_cpu_seconds += other.apiserver_cpu_seconds;
        self.requests.add_counts(&other.requests);
        self
    }
}

/// What a hub did with a fleet.
struct HubRun {
    made: Made,
    tasks: Vec<FleetTask>,
    changed: OneChanged,
    /// Writes of a hub that starts with the fleet.
    idle_writes: usize,
    rss_mib: f64,
    rss_mib_after_restart: f64,
}

impl HubRun {
    /// With another run: of what has a limit, the worse of the two.
    fn with(self, other: &Self) -> Self {
        Self {
            made: self.made.with(&other.made),
            tasks: self.tasks,
            changed: OneChanged {
                requests: self.changed.requests.max(other.changed.requests),
                others: self.changed.others.max(other.changed.others),
            },
            idle_writes: self.idle_writes.max(other.idle_writes),
            rss_mib: self.rss_mib.max(other.rss_mib),
            rss_mib_after_restart: self.rss_mib_after_restart.max(other.rss_mib_after_restart),
        }
    }
}

/// Who makes the tasks.
#[derive(Clone, Copy)]
enum Maker {
    Hub,
    BareWriter,
    ByHand,
}

/// All runs of each.
struct Runs {
    hub: HubRun,
    bare: Made,
    by_hand: Made,
}

/// Lets each make the tasks once in a round, and in the next in reverse order, so that a machine that becomes slower does so for all.
async fn run_in_turns(options: &Options) -> Result<Runs> {
    let (mut hubs, mut bare, mut by_hand) = (Vec::<HubRun>::new(), Vec::new(), Vec::new());
    for round in 0..options.pipeline.pipeline_rounds {
        let mut makers = [Maker::Hub, Maker::BareWriter, Maker::ByHand];
        if round % 2 == 1 {
            makers.reverse();
        }
        for maker in makers {
            match (maker, hubs.first()) {
                (Maker::BareWriter, Some(hub)) => bare.push(bare_run(options, &hub.made.requests).await?),
                (Maker::ByHand, Some(hub)) => by_hand.push(run_by_hand(options, &hub.tasks).await?),
                _ => hubs.push(hub_run(options).await?),
            }
        }
    }
    let together = |runs: Vec<Made>| runs.into_iter().reduce(|all, run| all.with(&run));
    let all = hubs.into_iter().reduce(|all, run| all.with(&run));
    let all = all.zip(together(bare)).zip(together(by_hand));
    let ((hub, bare), by_hand) = all.context("--pipeline-rounds must be at least 1")?;
    Ok(Runs { hub, bare, by_hand })
}

/// Measures the pipeline, prints the figures and writes them as JSON.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options) -> Result<()> {
    let load_before = load();
    let Runs { hub, bare, by_hand } = run_in_turns(options).await?;
    let figures = Figures {
        targets: options.pipeline.pipeline_targets,
        releases: options.pipeline.pipeline_releases,
        namespaces: options.namespaces,
        load_before,
        by_hand,
        hub,
        bare,
    };
    println!("{figures}");
    let output = options.pipeline.pipeline_output.clone();
    let path = output.map_or_else(|| beside_program("pipeline.json"), Ok)?;
    write_json(&figures.to_json(), &path)
}

async fn world(options: &Options) -> Result<World> {
    let world = World::start_with(options, true, rights::hub_with_pipeline).await?;
    until_garbage_is_collected(&world).await?;
    Ok(world)
}

fn fleet<'w>(world: &'w World, options: &Options) -> Fleet<'w> {
    Fleet {
        world,
        targets: options.pipeline.pipeline_targets,
        releases: options.pipeline.pipeline_releases,
    }
}

/// Tasks that a fleet has where no two are alike.
fn wanted_tasks(options: &Options) -> usize {
    options.pipeline.pipeline_targets + options.pipeline.pipeline_releases * options.namespaces
}

async fn ready_hub(world: &World) -> Result<Hub> {
    let hub = world.spawn_hub_with(&["--pipeline=true".to_owned()])?;
    hub.wait_ready().await?;
    Ok(hub)
}

/// Waits until so many tasks succeeded.
async fn until_succeeded(hub: &Hub, tasks: usize) -> Result<()> {
    wait_for("the tasks to end", patience(tasks), async || {
        tokio::time::sleep(PAUSE).await;
        let text = hub.metrics().await?;
        ensure!(in_phase(&text, "failed") == 0, "tasks failed");
        Ok((in_phase(&text, "succeeded") >= tasks).then_some(()))
    })
    .await
}

/// A fleet from nothing, one Release of it that changes, and a restart of the hub.
async fn hub_run(options: &Options) -> Result<HubRun> {
    let world = world(options).await?;
    let _finisher = world.spawn_finisher()?;
    let fleet = fleet(&world, options);
    fleet.make().await?;
    let audit = world.plane.audit()?;
    let (begin, server) = (audit.mark().await?, Server::look(&world)?);
    let hub = ready_hub(&world).await?;
    until_succeeded(&hub, wanted_tasks(options)).await?;
    fleet.until_ready().await?;
    let (cpu_seconds, apiserver_cpu_seconds) = (cpu_seconds(&hub.pid().to_string())?, server.used()?);
    let requests = Requests::since(audit, begin, &world.hub_user).await?;
    let tasks = tasks_of(&world).await?;
    let rss_mib = memory(hub.pid())?.now_mib;
    let changed = fleet.change_one().await?;
    drop(hub);
    let begin = audit.mark().await?;
    let hub = ready_hub(&world).await?;
    tokio::time::sleep(WATCHED).await;
    Ok(HubRun {
        made: Made {
            tasks: tasks.len(),
            seconds: requests.seconds_until(READY_WRITE)?,
            cpu_seconds,
            apiserver_cpu_seconds,
            requests,
        },
        tasks,
        changed,
        idle_writes: Requests::since(audit, begin, &world.hub_user).await?.all_writes,
        rss_mib,
        rss_mib_after_restart: memory(hub.pid())?.now_mib,
    })
}

/// The writes of that hub for another fleet that is the same, without it.
async fn bare_run(options: &Options, of_hub: &Requests) -> Result<Made> {
    let world = world(options).await?;
    let _finisher = world.spawn_watching_finisher()?;
    fleet(&world, options).make().await?;
    let audit = world.plane.audit()?;
    let (begin, server) = (audit.mark().await?, Server::look(&world)?);
    let writer = world.spawn_bare_fleet(FleetWrites {
        target_statuses: of_hub.count(READY_WRITE),
        release_statuses: of_hub.count("patch releases/status"),
        component_version_statuses: of_hub.count("patch componentversions/status"),
        profile_statuses: of_hub.count("patch profiles/status"),
        target_patches: of_hub.count("patch targets"),
        events: of_hub.count("create events"),
    })?;
    let status = writer.wait(patience(wanted_tasks(options))).await?;
    ensure!(
        status.success(),
        "the bare writer failed:\n{}",
        writer.log_tail(20)
    );
    let apiserver_cpu_seconds = server.used()?;
    let cpu_seconds = writer.log().trim().parse();
    let requests = Requests::since(audit, begin, &world.bare_user).await?;
    Ok(Made {
        tasks: requests.count("create rendertasks"),
        seconds: requests.seconds_until(READY_WRITE)?,
        cpu_seconds: cpu_seconds.context("the bare writer did not say what it used")?,
        apiserver_cpu_seconds,
        requests,
    })
}

/// A task that a hub made for a fleet.
struct FleetTask {
    name: String,
    namespace: String,
    /// As JSON.
    spec: String,
}

impl FleetTask {
    /// The same task for a namespace of another world, whose repositories have its name.
    fn in_namespace(&self, namespace: &str) -> Result<RenderTask> {
        let spec = self.spec.replace(&self.namespace, namespace);
        Ok(RenderTask::new(&self.name, serde_json::from_str(&spec)?))
    }
}

/// All tasks that there are.
async fn tasks_of(world: &World) -> Result<Vec<FleetTask>> {
    let tasks = all::<RenderTask>(&world.admin).await?.into_iter();
    tasks
        .map(|task| {
            Ok(FleetTask {
                name: task.name_any(),
                namespace: task.namespace().context("a task without a namespace")?,
                spec: serde_json::to_string(&task.spec)?,
            })
        })
        .collect()
}

/// The tasks of the fleet by a tenant who makes them by hand, as fast as the API server takes them, where a hub waits for them.
async fn run_by_hand(options: &Options, tasks: &[FleetTask]) -> Result<Made> {
    let world = world(options).await?;
    let _finisher = world.spawn_finisher()?;
    let hub = ready_hub(&world).await?;
    let audit = world.plane.audit()?;
    let (begin, server) = (audit.mark().await?, Server::look(&world)?);
    let fleet_namespaces: BTreeSet<&str> = tasks.iter().map(|task| task.namespace.as_str()).collect();
    let places: BTreeMap<&str, usize> = fleet_namespaces.into_iter().zip(0..).collect();
    stream::iter(tasks.iter().map(Ok))
        .try_for_each_concurrent(IN_FLIGHT, async |task| {
            let place = places[task.namespace.as_str()];
            let object = task.in_namespace(&world.namespaces()[place])?;
            world.create_whole_task(place, &object).await
        })
        .await?;
    until_succeeded(&hub, tasks.len()).await?;
    let (cpu_seconds, apiserver_cpu_seconds) = (cpu_seconds(&hub.pid().to_string())?, server.used()?);
    let requests = Requests::since(audit, begin, &world.hub_user).await?;
    Ok(Made {
        tasks: tasks.len(),
        seconds: requests.seconds_until(ENDED)?,
        cpu_seconds,
        apiserver_cpu_seconds,
        requests,
    })
}
