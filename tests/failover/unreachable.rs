//! An API server that is out of reach for the active instance only.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use renderhub_harness::wait_for;
use serde_json::json;

use crate::forward::{Forward, Mode};
use crate::world::{SENT, World, end_of, until_standby};
use support::LIMIT;
use support::instances::until_renewed;

/// Less than what a claim lasts.
const SHORT: Duration = Duration::from_secs(3);
/// Requests that the cluster gets a second while the first instance works: work for it is still waiting when its API server
/// is gone.
const SLOW: u32 = 2;

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_does_not_reach_its_api_server_stops_to_write_elsewhere_before_another_begins()
-> Result<()> {
    let mut world = World::new("cut", json!({"qps": SLOW, "burst": SLOW})).await?;
    let (a, b) = (world.seat("a").await?, world.seat("b").await?);
    let plane = world.stage.plane;
    let way = Forward::to((plane.address(), plane.port()).into()).await?;
    let user = a.user.by_way_of(format!("https://{}", way.address));
    let first = world.spawn_by(&a, &user.kubeconfig()?)?;
    first.wait_ready().await?;
    let second = world.spawn(&b)?;
    until_standby(&second).await?;

    // A short time without it changes nothing. It begins with a claim that is new, as the machine may need seconds to renew it.
    until_renewed(&world.stage).await?;
    way.set(Mode::Frozen);
    tokio::time::sleep(SHORT).await;
    way.set(Mode::Open);
    let load = world.load_for(10, 60, |_| true);
    world.until_more_ended(1).await?;
    ensure!(world.active().await?.as_deref() == Some("a"));
    ensure!(!first.log().contains("nothing is written"), "{}", first.log());

    // A long one ends its work, on clusters that it reaches too.
    wait_for("work to pile up for the cluster", LIMIT, async || {
        Ok((world.remote_writes(&a).await?.len() >= 6).then_some(()))
    })
    .await?;
    load.pause();
    way.set(Mode::Frozen);
    world.until_active("b", LIMIT).await?;
    let fast = json!({"qps": 200, "burst": 200});
    world.stage.change_cluster(&world.cluster.name, fast).await?;
    world.until_more_ended(10).await?;
    let renewed = *world.renewals(&a).await?.last().context("a claim")?;
    let (of_first, of_second) = (world.remote_writes(&a).await?, world.remote_writes(&b).await?);
    let (last, begun) = (
        of_first.last().context("work")?,
        of_second.first().context("work")?,
    );
    ensure!(last.received < begun.received, "{last:?}\n{begun:?}");
    let over = end_of(renewed)? + SENT;
    ensure!(last.received <= over, "it wrote after {over}: {last:?}");
    ensure!(first.exit_status().is_none(), "{}", first.log());
    ensure!(
        first.log().contains("nothing is written until it is"),
        "{}",
        first.log()
    );

    // When it comes back, there is nothing to come back to.
    way.set(Mode::Open);
    let status = first.wait_exit(LIMIT).await?;
    ensure!(status.code() == Some(1), "{status}\n{}", first.log());
    world.each_once(load).await?;
    let late = world.late(&a, end_of(renewed)?).await?;
    ensure!(late.is_empty(), "it wrote {late:#?}");
    world.stage.passed();
    Ok(())
}
