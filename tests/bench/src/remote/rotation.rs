//! A kubeconfig that is replaced again and again while tasks run there.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use renderhub_harness::Remote;
use renderhub_harness::progress::Progress;
use serde::Serialize;

use super::follow::Follower;
use super::gate::Gate;
use super::load::{Target, load};
use super::options::PER_SECOND;
use super::stage::{Cluster, Stage, total};
use crate::options::Rate;

/// How long a Job runs.
const RUNS: Duration = Duration::from_millis(500);
/// Every so many rotations the cluster is reached by another address too, so that the connection is made anew.
const MOVES: usize = 10;

/// The result.
#[derive(Debug, Serialize)]
pub struct Rotation {
    /// Times that the kubeconfig was replaced, each with another token.
    pub rotations: usize,
    /// Seconds that this took.
    pub seconds: f64,
    /// Those of them with another address too.
    pub moves: usize,
    /// Connections that took the place of one before.
    pub reconnects: u64,
    /// Tasks meanwhile.
    pub tasks: usize,
    /// Those that failed, or never ended.
    pub failed: usize,
}

/// Replaces a kubeconfig as often as tasks arrive.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(stage: &Stage, rotations: usize) -> Result<Rotation> {
    let cluster = stage.cluster("turning").await?;
    let gate = Gate::open(0, stage.address()).await?;
    let first = cluster.identity.kubeconfig_text()?;
    stage.register(&cluster.name, &cluster.namespace, &first).await?;
    let hub = stage.hub(1).await?;
    let follower = Follower::start(stage, RUNS).await?;
    let progress = Progress::start(format!("{rotations} rotations of a kubeconfig"));
    let begin = Instant::now();
    let rate = Rate {
        per_second: PER_SECOND,
        tasks: rotations,
    };
    let (made, turned) = tokio::join!(
        load(&stage.world, rate, 0, |_| Target::There(cluster.name.clone())),
        turn(stage, &cluster, &gate, rate),
    );
    let (made, moves) = (made?, turned?);
    let seconds = begin.elapsed().as_secs_f64();
    let failed = follower.failed(&made).await;
    drop(progress);
    let reconnects = total(&hub.metrics().await?, "cluster_reconnects");
    if failed == 0 {
        stage.until_cleared().await.context("after the rotations")?;
    }
    stage.end(hub).await?;
    let tasks = made.len();
    stage.clear(made).await?;
    stage.forget_all().await?;
    Ok(Rotation {
        rotations,
        seconds,
        moves,
        reconnects,
        tasks,
        failed,
    })
}

/// Replaces it at the pace of the load; how often by another address.
async fn turn(stage: &Stage, cluster: &Cluster, gate: &Gate, rate: Rate) -> Result<usize> {
    let remote = Remote {
        plane: &stage.plane,
        namespace: cluster.namespace.clone(),
    };
    let (begin, mut moves) = (Instant::now(), 0);
    for number in 0..rate.tasks {
        let at = begin + Duration::from_secs(1) * u32::try_from(number)? / rate.per_second;
        tokio::time::sleep_until(at.into()).await;
        let identity = remote.identity().await?;
        moves += usize::from(number % MOVES == 0);
        let identity = match number / MOVES % 2 {
            0 => identity.by_way_of(gate.url()),
            _ => identity,
        };
        stage.replace(&cluster.name, &identity.kubeconfig_text()?).await?;
    }
    Ok(moves)
}
