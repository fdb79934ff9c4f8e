//! A remote cluster beside the hub's own, at the same moments; and how long a finished Job waits for its task's end.

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::PartialObjectMeta;
use renderhub_harness::progress::Progress;
use serde::Serialize;

use super::follow::Follower;
use super::load::{Made, Target, load};
use super::stage::{Cluster, Stage};
use crate::measure::Latency;
use crate::options::Rate;

/// How long a Job runs.
const RUNS: Duration = Duration::from_millis(500);
/// Pause between two round trips that are timed.
const PROBE: Duration = Duration::from_millis(250);

/// Tasks of the hub's own cluster and of another one, alternately.
#[derive(Debug, Serialize)]
pub struct Pair {
    /// Tasks on either.
    pub tasks: usize,
    /// From the answer to a task's creation to its Job as a watch sees it, on the hub's own cluster.
    pub local: Latency,
    /// The same on the other one.
    pub remote: Latency,
    /// A small GET at the other one meanwhile.
    pub round_trip: Latency,
}

/// Jobs that finish, all on another cluster.
#[derive(Debug, Serialize)]
pub struct Finish {
    /// Tasks.
    pub tasks: usize,
    /// From the answer to the write that finishes a Job to the end of its task as a watch sees it.
    pub to_end: Latency,
}

/// Measures both clusters in one load, every other task on each.
///
/// # Errors
/// If something cannot be measured.
pub async fn beside_local(stage: &Stage, rate: Rate) -> Result<Pair> {
    let cluster = one(stage).await?;
    let hub = stage.hub(1).await?;
    let follower = Follower::start(stage, RUNS).await?;
    let progress = Progress::start("tasks here and there in turns");
    let trips = tokio::spawn(round_trips(stage.admin.clone(), cluster.namespace.clone(), rate));
    let made = load(&stage.world, rate, 0, |number| match number % 2 {
        0 => Target::Here,
        _ => Target::There(cluster.name.clone()),
    })
    .await?;
    let of = async |is_here: bool| {
        let made: Vec<&Made> = made
            .iter()
            .filter(|m| (m.target == Target::Here) == is_here)
            .collect();
        Latency::of(follower.to_job(&made).await?)
    };
    let (local, remote) = (of(true).await?, of(false).await?);
    follower.to_end(&made).await?;
    drop(progress);
    stage.until_cleared().await?;
    stage.end(hub).await?;
    let pair = Pair {
        tasks: rate.tasks / 2,
        local,
        remote,
        round_trip: Latency::of(trips.await??)?,
    };
    stage.clear(made).await?;
    stage.forget_all().await?;
    Ok(pair)
}

/// Measures the ends of Jobs on one other cluster.
///
/// # Errors
/// If something cannot be measured.
pub async fn finish(stage: &Stage, rate: Rate) -> Result<Finish> {
    let cluster = one(stage).await?;
    let hub = stage.hub(1).await?;
    let follower = Follower::start(stage, RUNS).await?;
    let progress = Progress::start("tasks there alone");
    let made = load(&stage.world, rate, 0, |_| Target::There(cluster.name.clone())).await?;
    let to_end = Latency::of(follower.to_end(&made).await?)?;
    drop(progress);
    stage.until_cleared().await?;
    stage.end(hub).await?;
    let tasks = made.len();
    stage.clear(made).await?;
    stage.forget_all().await?;
    Ok(Finish { tasks, to_end })
}

async fn one(stage: &Stage) -> Result<Cluster> {
    let cluster = stage.cluster("alone").await?;
    let kubeconfig = cluster.identity.kubeconfig_text()?;
    stage
        .register(&cluster.name, &cluster.namespace, &kubeconfig)
        .await?;
    Ok(cluster)
}

/// Times a small GET now and then, for as long as a load lasts.
async fn round_trips(client: kube::Client, namespace: String, rate: Rate) -> Result<Vec<Duration>> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(client);
    let (begin, mut took) = (Instant::now(), Vec::new());
    // The first one connects.
    api.get_metadata(&namespace).await?;
    while begin.elapsed() < rate.duration() || took.is_empty() {
        tokio::time::sleep(PROBE).await;
        let asked = Instant::now();
        api.get_metadata(&namespace).await?;
        took.push(asked.elapsed());
    }
    Ok(took)
}
