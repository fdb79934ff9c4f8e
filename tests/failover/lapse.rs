//! A Lease that is not renewed for a while, and that no other instance takes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::SignedDuration;
use kube::api::ListParams;
use renderhub_harness::wait_for;
use serde_json::json;

use crate::world::{SENT, World, end_of};
use support::LIMIT;
use support::proxy::Proxy;

/// The log lines when the fence closes, and when it opens again.
const CLOSED: &str = "nothing is written until it is";
const OPENED: &str = "the Lease was renewed; work goes on";
/// How long nothing is written.
const CLOSED_FOR: Duration = Duration::from_secs(5);
/// Longest from the renewal until work goes on, on a machine that does much else.
const GOES_ON: SignedDuration = SignedDuration::from_secs(10);

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lapse_stops_all_writes_and_costs_nothing_else() -> Result<()> {
    let mut world = World::new("lapse", json!({})).await?;
    let a = world.seat("a").await?;
    let proxy = Proxy::start(a.user.client().await?).await?;
    let hub = world.spawn_by(&a, &proxy.kubeconfig()?)?;
    hub.wait_ready().await?;
    let load = world.load(6, 300);
    world.until_more_ended(10).await?;
    // The server answers everything but renewals.
    proxy.lie(|method, path| {
        (*method != http::Method::GET && path.contains("/leases")).then(|| (500, b"{}".to_vec()))
    });
    wait_for("the gate to close", LIMIT, async || {
        Ok(hub.log().contains(CLOSED).then_some(()))
    })
    .await?;
    tokio::time::sleep(CLOSED_FOR).await;
    proxy.lie(|_, _| None);
    wait_for("the gate to open", LIMIT, async || {
        Ok(hub.log().contains(OPENED).then_some(()))
    })
    .await?;
    world.until_more_ended(20).await?;

    let renewals = world.renewals(&a).await?;
    let lapse = renewals.windows(2).find_map(|pair| {
        let end = end_of(pair[0]).ok()?;
        (pair[1] > end).then_some((end, pair[1]))
    });
    let (end, again) = lapse.context("a lapse")?;
    let writes = world.writes(&a).await?;
    let during: Vec<_> = writes
        .iter()
        .filter(|write| write.received > end + SENT && write.received < again)
        .collect();
    ensure!(during.is_empty(), "written without a claim: {during:#?}");
    let next = writes
        .iter()
        .find(|write| write.received > again)
        .context("work")?;
    let pause = next.received.duration_since(again);
    ensure!(pause <= GOES_ON, "work went on {pause} after the renewal");

    let log = hub.log();
    for line in [CLOSED, OPENED] {
        ensure!(log.matches(line).count() == 1, "{line}\n{log}");
    }
    ensure!(!log.contains("a pass failed"), "{log}");
    let metrics = hub.metrics().await?;
    ensure!(!metrics.contains("NoClaim"), "{metrics}");
    let message = said(&world).await?;
    ensure!(!message.contains("claim"), "{message}");
    world.each_once(load).await?;
    ensure!(hub.sigterm(LIMIT).await?.code() == Some(0));
    world.stage.passed();
    Ok(())
}

/// What tenants can read: statuses and events.
async fn said(world: &World) -> Result<String> {
    let tasks = world.stage.tasks().list(&ListParams::default()).await?;
    let statuses: Vec<_> = tasks.items.into_iter().map(|task| task.status).collect();
    let events = world.stage.events().await?;
    Ok(format!("{statuses:?} {}", serde_json::to_string(&events)?))
}
