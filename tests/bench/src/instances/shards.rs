//! The same tasks by one hub, and by three that share the namespaces by lists: what each costs the API server, and all of them together.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use renderhub_harness::process::Process;
use renderhub_harness::progress::Progress;
use renderhub_harness::{Hub, Identity, wait_for};
use serde::Serialize;

use crate::audit::Requests;
use crate::burst::{in_phase, patience, tail};
use crate::measure::{cpu_seconds, number};
use crate::objects;
use crate::options::Options;
use crate::rights;
use crate::world::World;

/// Hubs that share the namespaces, each with a list.
const SEVERAL: usize = 3;
/// Pause between two reads of the hubs' metrics, which cost them a little.
const LOOK: Duration = Duration::from_millis(250);
/// Longest that a hub may take to end.
const END: Duration = Duration::from_secs(60);

/// What it cost to do all tasks once.
#[derive(Debug, Serialize)]
pub struct Work {
    /// Processes.
    pub hubs: usize,
    /// From the first task to the last one's end, in seconds.
    pub seconds: f64,
    /// CPU time of all hubs, starts included.
    pub hub_cpu_seconds: f64,
    /// Requests for each task, those on Leases, about rights and for events left out: they are a hub's, not a task's.
    pub requests_per_task: f64,
    /// All requests for each task.
    pub all_requests_per_task: f64,
    /// All requests from the start of the hubs to their end, of each verb and resource.
    pub requests: BTreeMap<String, usize>,
}

/// One and several.
#[derive(Debug, Serialize)]
pub struct Shards {
    /// Tasks of each run.
    pub tasks: usize,
    /// Their namespaces.
    pub namespaces: usize,
    /// By one hub.
    pub one: Work,
    /// By several.
    pub several: Work,
}

impl Shards {
    /// Requests of several as a multiple of one's.
    pub fn requests(&self) -> f64 {
        self.several.requests_per_task / self.one.requests_per_task
    }

    /// All requests of several as a multiple of one's.
    pub fn all_requests(&self) -> f64 {
        self.several.all_requests_per_task / self.one.all_requests_per_task
    }

    /// CPU time of several as a multiple of one's.
    pub fn cpu(&self) -> f64 {
        self.several.hub_cpu_seconds / self.one.hub_cpu_seconds
    }
}

/// Measures one hub and several on the same number of tasks.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options) -> Result<Shards> {
    let wanted = &options.instances;
    let namespaces = usize::from(wanted.shard_namespaces);
    let world = World::start(&options.sized(wanted.shard_tasks, namespaces), true).await?;
    let all = world.namespaces();
    let one = vec![Member::new(&world, "one", all).await?];
    let mut several = Vec::new();
    for turn in 0..SEVERAL {
        let own: Vec<_> = all.iter().skip(turn).step_by(SEVERAL).cloned().collect();
        several.push(Member::new(&world, &format!("list-{turn}"), &own).await?);
    }
    Ok(Shards {
        tasks: wanted.shard_tasks,
        namespaces,
        one: work(&world, &one).await?,
        several: work(&world, &several).await?,
    })
}

/// A process that takes part.
struct Member {
    hub_id: String,
    user: Identity,
    flags: Vec<String>,
}

impl Member {
    async fn new(world: &World, name: &str, namespaces: &[String]) -> Result<Self> {
        let rights = rights::hub_of(&world.rendering, namespaces).await?;
        let mut flags = objects::hub_flags_of(name, &world.rendering);
        flags.extend([
            format!("--instance-name={name}"),
            format!("--watch-namespaces={}", namespaces.join(",")),
        ]);
        Ok(Self {
            hub_id: world.hub_id_of(name)?,
            user: world.plane.user_with_rights(name, &rights).await?,
            flags,
        })
    }
}

/// Lets these do all tasks.
async fn work(world: &World, members: &[Member]) -> Result<Work> {
    let ids: Vec<_> = members.iter().map(|member| member.hub_id.as_str()).collect();
    let audit = world.plane.audit()?;
    let begin = audit.mark().await?;
    let finisher = world.spawn_finisher_of(&ids.join(","))?;
    let hubs: Result<Vec<Hub>> = members
        .iter()
        .map(|member| World::spawn_hub_as(&member.user, &member.flags))
        .collect();
    let hubs = hubs?;
    for hub in &hubs {
        hub.wait_ready().await?;
    }
    let first = Instant::now();
    let tasks = world.create_tasks(world.burst_tasks).await?;
    let progress = Progress::start(format!("{} tasks by {}", tasks.len(), hubs.len()));
    until_done(world, &hubs, &finisher, tasks.len()).await?;
    let seconds = first.elapsed().as_secs_f64();
    drop(progress);
    let cpu: Result<Vec<f64>> = hubs
        .iter()
        .map(|hub| cpu_seconds(&hub.pid().to_string()))
        .collect();
    // One after another, as a node ends them, so that the next ones need not wait for their Leases.
    for hub in &hubs {
        let status = hub.sigterm(END).await?;
        ensure!(
            status.success(),
            "a hub ended with {status}:\n{}",
            tail(&hub.log())
        );
    }
    let users: Vec<&Identity> = members.iter().map(|member| &member.user).collect();
    let requests = Requests::of_users(audit, begin, &users).await?;
    world.remove_tasks(&tasks).await?;
    let spent = (seconds, cpu?.iter().sum());
    Ok(Work::of(hubs.len(), tasks.len(), spent, requests))
}

impl Work {
    /// So many hubs did so many tasks, in these seconds and with these seconds of CPU.
    fn of(hubs: usize, tasks: usize, (seconds, hub_cpu_seconds): (f64, f64), requests: Requests) -> Self {
        Self {
            hubs,
            seconds,
            hub_cpu_seconds,
            requests_per_task: number(requests.of_tasks()) / number(tasks),
            all_requests_per_task: number(requests.counts.values().sum()) / number(tasks),
            requests: requests.counts,
        }
    }
}

/// Waits until every task succeeded and nothing of them is left.
async fn until_done(world: &World, hubs: &[Hub], finisher: &Process, tasks: usize) -> Result<()> {
    wait_for("the hubs to be done", patience(tasks), async || {
        tokio::time::sleep(LOOK).await;
        let ended = hubs.iter().find(|hub| hub.exit_status().is_some());
        if let Some(hub) = ended {
            return Ok(Some(Err(anyhow::anyhow!("a hub ended:\n{}", tail(&hub.log())))));
        }
        if let Err(ended) = finisher.check_running() {
            return Ok(Some(Err(ended)));
        }
        let (mut succeeded, mut failed) = (0, 0);
        for hub in hubs {
            let metrics = hub.metrics().await?;
            succeeded += in_phase(&metrics, "succeeded");
            failed += in_phase(&metrics, "failed");
        }
        if failed > 0 {
            return Ok(Some(Err(anyhow::anyhow!("{failed} tasks failed"))));
        }
        if succeeded < tasks || !world.is_cleared().await? {
            bail!("{succeeded} of {tasks} tasks succeeded");
        }
        Ok(Some(Ok(())))
    })
    .await
    .with_context(|| {
        hubs.iter()
            .map(|hub| tail(&hub.log()))
            .collect::<Vec<_>>()
            .join("\n")
    })?
}
