//! An instance that is paused in the middle of its work, and wakes when another one has taken over.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use renderhub_harness::wait_for;
use serde_json::json;

use crate::world::{World, end_of, until_standby};
use support::LIMIT;
use support::proxy::{Proxy, Stop};

/// How long it sleeps.
const ASLEEP: Duration = Duration::from_secs(60);
/// How long it is awake before it can learn that its Lease is lost.
const AWAKE: Duration = Duration::from_secs(6);

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_that_wakes_writes_nothing_and_ends() -> Result<()> {
    let mut world = World::new("sleep", json!({})).await?;
    let (a, b) = (world.seat("a").await?, world.seat("b").await?);
    // Between the sleeper and its API server, to hold an answer back, and to keep from it that its Lease is lost.
    let proxy = Proxy::start(a.user.client().await?).await?;
    let first = world.spawn_by(&a, &proxy.kubeconfig()?)?;
    first.wait_ready().await?;
    let second = world.spawn(&b)?;
    until_standby(&second).await?;
    let load = world.load(8, 240);
    world.until_more_ended(10).await?;
    // In the middle of a pass: the API server has done it, and the hub goes on with the answer.
    proxy.stop_at(proxy.writes().len() + 10, Stop::After);
    proxy.stopped().await?;
    first.freeze()?;
    let asleep = tokio::time::sleep(ASLEEP);
    let others = async {
        world.until_active("b", LIMIT).await?;
        world.until_more_ended(20).await
    };
    let ((), worked) = tokio::join!(asleep, others);
    worked?;
    proxy.lie(|_, path| path.contains("/leases").then(|| (503, Vec::new())));
    first.thaw()?;
    proxy.release();
    // It is awake, has the answer that it waited for, and events of the pause to handle; only its clock tells it to stop.
    wait_for("the sleeper to notice", LIMIT, async || {
        Ok(first
            .log()
            .contains("nothing is written until it is")
            .then_some(()))
    })
    .await?;
    tokio::time::sleep(AWAKE).await;
    ensure!(first.exit_status().is_none(), "{}", first.log());
    proxy.lie(|_, _| None);
    let status = first.wait_exit(LIMIT).await?;
    ensure!(status.code() == Some(1), "{status}\n{}", first.log());
    let renewed = *world.renewals(&a).await?.last().context("a claim")?;
    world.each_once(load).await?;
    let late = world.late(&a, end_of(renewed)?).await?;
    ensure!(
        late.is_empty(),
        "the sleeper, whose last claim was of {renewed}, wrote {late:#?}"
    );
    world.stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_without_a_conflict_writes_nothing_either() -> Result<()> {
    let mut world = World::new("nap", json!({})).await?;
    let (a, b) = (world.seat("a").await?, world.seat("b").await?);
    let first = world.spawn(&a)?;
    first.wait_ready().await?;
    let second = world.spawn(&b)?;
    until_standby(&second).await?;
    let load = world.load(8, 240);
    world.until_more_ended(10).await?;
    first.freeze()?;
    let asleep = tokio::time::sleep(ASLEEP);
    let ((), worked) = tokio::join!(asleep, world.until_active("b", LIMIT));
    worked?;
    first.thaw()?;
    let status = first.wait_exit(LIMIT).await?;
    ensure!(status.code() == Some(1), "{status}\n{}", first.log());
    let renewed = *world.renewals(&a).await?.last().context("a claim")?;
    ensure!(world.each_once(load).await? > 0);
    let late = world.late(&a, end_of(renewed)?).await?;
    ensure!(
        late.is_empty(),
        "the sleeper, whose last claim was of {renewed}, wrote {late:#?}"
    );
    let tasks = world
        .stage
        .tasks()
        .list(&kube::api::ListParams::default())
        .await?;
    ensure!(tasks.iter().all(|task| !task.finalizers().is_empty()));
    world.stage.passed();
    Ok(())
}
