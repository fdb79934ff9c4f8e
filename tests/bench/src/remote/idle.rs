//! Many clusters, five of which answer probes and watches and no work, and one more that lets itself be asked once a second and
//! has a hundred tasks: what the tasks of all others notice of it.
//!
//! Without them as many clusters work, so that the machine does the same work in all loads.

use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Http, idle};
use renderhub_harness::progress::Progress;
use serde_json::json;

use super::dead::DEAD;
use super::follow::Follower;
use super::gate::Gate;
use super::load::{Made, Target, load};
use super::stage::{Cluster, RateLimit, Stage};
use super::turns::{Beside, Sides, Turn, turns};
use crate::options::Rate;
use crate::share::{Runs, Share};

/// How long a Job runs.
const RUNS: Duration = Duration::from_millis(500);
/// Tasks that each of the five has from the start: more than a hub works on at once.
const AT_ONCE: usize = 20;
/// Tasks that the slow one has from the start.
const SLOW_TASKS: usize = 100;
/// Name of the slow one.
const SLOW: &str = "slow";

/// Measures both alternately, in so many rounds; the slow cluster is one more.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(stage: &Stage, clusters: u16, rate: Rate, rounds: usize) -> Result<Beside> {
    let mut living = Vec::new();
    for (number, cluster) in (0..).zip(stage.clusters("working", clusters.into()).await?) {
        let gate = Gate::open(number, stage.address()).await?;
        let kubeconfig = cluster.identity.by_way_of(gate.url()).kubeconfig_text()?;
        stage
            .register(&cluster.name, &cluster.namespace, &kubeconfig)
            .await?;
        living.push((cluster, gate));
    }
    let slow = stage.cluster(SLOW).await?;
    let mut sides = Sides::default();
    for is_with in turns(rounds) {
        let turn = turn(stage, &living, &slow, rate, is_with).await?;
        sides.add(is_with, turn)?;
    }
    stage.forget_all().await?;
    sides.end(clusters)
}

/// One load, by a hub of its own.
async fn turn(
    stage: &Stage,
    living: &[(Cluster, Gate)],
    slow: &Cluster,
    rate: Rate,
    is_with: bool,
) -> Result<Turn> {
    let (servers, mut names) = if is_with {
        register_idle(stage, slow).await?
    } else {
        (Vec::new(), Vec::new())
    };
    let more = if is_with { DEAD + 1 } else { 0 };
    let hub = stage.hub(living.len() + more).await?;
    // Who may not do so measures with more noise.
    _ = hub.run_first();
    let follower = Follower::start(stage, RUNS).await?;
    let progress = Progress::start(format!("{} clusters, {more} of no use", living.len()));
    let mut made = if is_with {
        flood(stage, &names).await?
    } else {
        Vec::new()
    };
    let before = Share::of(&hub, Runs::Elsewhere).await?;
    let first = made.len();
    let loaded = load(&stage.world, rate, first, |number| target(living, &names, number));
    made.extend(loaded.await?);
    let others: Vec<&Made> = made
        .iter()
        .filter(|made| matches!(made.target, Target::There(_)))
        .collect();
    let took = follower.to_job(&others).await?;
    let share = Share::of(&hub, Runs::Elsewhere).await?.since(&before);
    let failed = follower.failed(&made).await;
    drop(progress);
    // With calls under way to who never answers it might drain for long.
    hub.kill9();
    drop((hub, follower, servers));
    stage.clear(made).await?;
    if is_with {
        names.push(SLOW.to_owned());
        stage.forget(&names).await?;
    }
    Ok(Turn { took, share, failed })
}

/// Registers the clusters that are of no use: those that do no work, and the slow one.
async fn register_idle(stage: &Stage, slow: &Cluster) -> Result<(Vec<Hostile>, Vec<String>)> {
    let (mut servers, mut names) = (Vec::new(), Vec::new());
    for number in 0..DEAD {
        let server = Hostile::start(Http::Two, idle).await?;
        let name = format!("idle-{number}");
        stage.register(&name, "renders", &kubeconfig(&server)).await?;
        servers.push(server);
        names.push(name);
    }
    let pace = RateLimit { qps: 1, burst: 1 };
    let kubeconfig = slow.identity.kubeconfig_text()?;
    stage
        .register_with(SLOW, &slow.namespace, &kubeconfig, pace)
        .await?;
    Ok((servers, names))
}

/// Where a task goes: the clusters in rotation; those that do no work take the places of the first that do.
fn target(living: &[(Cluster, Gate)], idle: &[String], number: usize) -> Target {
    let place = number % living.len();
    match idle.get(place) {
        Some(name) => Target::Dead(name.clone()),
        None => Target::There(living[place].0.name.clone()),
    }
}

/// Tasks for all that are of no use, at once.
async fn flood(stage: &Stage, names: &[String]) -> Result<Vec<Made>> {
    let idle = names.len() * AT_ONCE;
    let rate = Rate {
        per_second: 1000,
        tasks: idle + SLOW_TASKS,
    };
    let target = |number: usize| {
        let name = if number < idle {
            &*names[number % names.len()]
        } else {
            SLOW
        };
        Target::Dead(name.to_owned())
    };
    load(&stage.world, rate, 0, target).await
}

fn kubeconfig(server: &Hostile) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "idle",
        "clusters": [{"name": "idle", "cluster": {
            "server": format!("https://{}", server.address()),
            "certificate-authority-data": STANDARD.encode(server.authority()),
        }}],
        "users": [{"name": "idle", "user": {"token": "anybody"}}],
        "contexts": [{"name": "idle", "context": {"cluster": "idle", "user": "idle"}}],
    })
    .to_string()
}
