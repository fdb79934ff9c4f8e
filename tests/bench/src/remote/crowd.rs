//! A thousand clusters that do nothing: what a hub costs that is connected to all of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use kube::api::ListParams;
use renderhub::api::conditions::ConditionType::Connected;
use renderhub_harness::progress::Progress;
use renderhub_harness::{Hub, wait_for};
use serde::Serialize;

use super::gate::Gate;
use super::stage::{LIMIT, Stage, until_connected};
use crate::measure::{Memory, cpu_seconds, memory, number};
use crate::wire::IN_FLIGHT;

/// Pause between two reads of the hub's metrics while it connects; each costs it some milliseconds.
const LOOK: Duration = Duration::from_millis(200);

/// What a hub with many idle clusters costs.
#[derive(Debug, Serialize)]
pub struct Crowd {
    /// Clusters.
    pub clusters: usize,
    /// From the start of the process until all are connected.
    pub connect_seconds: f64,
    /// The same until it is ready.
    pub ready_seconds: f64,
    /// CPU time until all are connected.
    pub connect_cpu_seconds: f64,
    /// From the start until every `RenderCluster` says so.
    pub told_seconds: f64,
    /// Seconds that it was watched from then on.
    pub watched_seconds: f64,
    /// CPU time meanwhile, as a part of one core.
    pub idle_cpu_percent: f64,
    /// Memory after that.
    pub memory: Memory,
    /// Its sockets, those to its own API server included.
    pub sockets: usize,
}

/// Starts a hub that has so many clusters, and watches it do nothing.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(stage: &Stage, clusters: u16, watched: Duration) -> Result<Crowd> {
    let gates = register(stage, clusters).await?;
    let progress = Progress::start(format!("{clusters} clusters"));
    let started = Instant::now();
    let hub = stage.spawn_hub()?;
    hub.wait_ready().await?;
    let ready_seconds = started.elapsed().as_secs_f64();
    let pid = hub.pid().to_string();
    until_connected(&hub, clusters.into(), LOOK).await?;
    let (connect_seconds, connect_cpu_seconds) = (started.elapsed().as_secs_f64(), cpu_seconds(&pid)?);
    until_told(stage, clusters.into()).await?;
    let told_seconds = started.elapsed().as_secs_f64();
    drop(progress);
    let progress = Progress::start(format!("{clusters} idle clusters"));
    let (idle, before) = (Instant::now(), cpu_seconds(&pid)?);
    tokio::time::sleep(watched).await;
    let (used, watched_seconds) = (cpu_seconds(&pid)? - before, idle.elapsed().as_secs_f64());
    let crowd = Crowd {
        clusters: clusters.into(),
        connect_seconds,
        ready_seconds,
        connect_cpu_seconds,
        told_seconds,
        watched_seconds,
        idle_cpu_percent: used / watched_seconds * 100.0,
        memory: memory(hub.pid())?,
        sockets: sockets(&hub)?,
    };
    drop(progress);
    // All of them must have been there all the time.
    until_connected(&hub, clusters.into(), LOOK).await?;
    stage.end(hub).await?;
    drop(gates);
    stage.forget_all().await?;
    Ok(crowd)
}

/// One namespace is enough, because nothing runs there; each cluster has an address, a Secret and a watch of its own.
async fn register(stage: &Stage, clusters: u16) -> Result<Vec<Gate>> {
    let _progress = Progress::start(format!("registering {clusters} clusters"));
    let there = &stage.cluster("crowd").await?;
    futures::stream::iter(0..clusters)
        .map(|number| async move {
            let gate = Gate::open(number, stage.address()).await?;
            let kubeconfig = there.identity.by_way_of(gate.url()).kubeconfig_text()?;
            stage
                .register(&format!("idle-{number}"), &there.namespace, &kubeconfig)
                .await?;
            anyhow::Ok(gate)
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}

/// Waits until so many `RenderClusters` say that they are connected.
async fn until_told(stage: &Stage, clusters: usize) -> Result<()> {
    wait_for("every status to say that it is connected", LIMIT, async || {
        let all = stage.render_clusters().list(&ListParams::default()).await?;
        let ready = all.items.iter().filter(|cluster| {
            let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
            let mut connected = conditions.filter(|c| c.type_ == Connected.as_str());
            connected.any(|c| c.status == "True")
        });
        let ready = ready.count();
        if ready < clusters {
            tokio::time::sleep(LOOK).await;
            anyhow::bail!("{ready} of {clusters} do");
        }
        Ok(Some(()))
    })
    .await
}

fn sockets(hub: &Hub) -> Result<usize> {
    let dir = format!("/proc/{}/fd", hub.pid());
    let all = std::fs::read_dir(&dir).with_context(|| format!("cannot read {dir}"))?;
    let targets = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    Ok(targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count())
}

impl Crowd {
    /// Sockets for each cluster.
    pub fn sockets_each(&self) -> f64 {
        number(self.sockets) / number(self.clusters)
    }
}
