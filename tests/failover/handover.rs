//! An instance that dies, and instances that hand over one after the other.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use renderhub_harness::{Hub, turn, wait_for};
use serde_json::json;

use crate::world::{Seat, World, until_standby};
use support::LIMIT;

/// Longest until a standby works in the place of one that was killed, in seconds.
const FAILOVER: f64 = 20.0;
/// Hubs that hand over at a time, how often each does, and the tasks that each gets a second.
const LANES: usize = 4;
const TURNS: usize = 25;
const RATE: u32 = 5;
/// More tasks than a hub gets while its instances hand over.
const MOST: u32 = 500;

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_works_within_twenty_seconds_of_a_kill_and_nothing_is_lost_or_made_twice() -> Result<()> {
    let _turn = turn().await?;
    let mut world = World::new("kill", json!({})).await?;
    let (a, b) = (world.seat("a").await?, world.seat("b").await?);
    let first = world.spawn(&a)?;
    first.wait_ready().await?;
    let second = world.spawn(&b)?;
    until_standby(&second).await?;
    let load = world.load(20, 500);
    world.until_more_ended(40).await?;
    let killed = Timestamp::now();
    first.kill9();
    let slowest = Cell::new(Duration::ZERO);
    wait_for("the standby to work", LIMIT, async || {
        let asked = Instant::now();
        let active = world.active().await?;
        slowest.set(slowest.get().max(asked.elapsed()));
        Ok((active.as_deref() == Some("b")).then_some(()))
    })
    .await?;
    let slowest = slowest.get().as_secs_f64();
    world.until_more_ended(40).await?;
    let tasks = world.each_once(load).await?;
    let writes = world.writes(&b).await?;
    let worked = writes
        .iter()
        .find(|event| event.code < 300 && event.namespace == world.stage.scope.tenant);
    let took = worked
        .context("a write of the standby")?
        .reached
        .duration_since(killed);
    let took = took.as_secs_f64();
    eprintln!("failover after a kill: {took:.1} s, {tasks} tasks, slowest answer {slowest:.1} s");
    // A standby sees the Lease, takes it, lists and writes: four answers, each of which may be as late as the latest that the test got.
    ensure!(
        (0.0..=FAILOVER + 4.0 * slowest).contains(&took),
        "the standby worked {took:.1} s after the kill, and the slowest answer took {slowest:.1} s"
    );
    world.stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_hand_overs_under_load_make_nothing_twice_and_lose_nothing() -> Result<()> {
    let _turn = turn().await?;
    let lanes = try_join_all((0..LANES).map(|_| hand_over())).await?;
    let slowest = lanes.iter().map(|(took, _)| *took).max().unwrap_or_default();
    let tasks: usize = lanes.iter().map(|(_, tasks)| tasks).sum();
    eprintln!(
        "{} hand-overs, {LANES} at a time: {:.2} s each, {tasks} tasks",
        LANES * TURNS,
        slowest.as_secs_f64() / f64::from(u32::try_from(TURNS)?)
    );
    Ok(())
}

/// One hub whose instances end one after the other, as they are asked to; returns how long that took, and how many tasks there
/// were.
async fn hand_over() -> Result<(Duration, usize)> {
    let mut world = World::new("hand", json!({})).await?;
    let seats = [
        world.seat("a").await?,
        world.seat("b").await?,
        world.seat("c").await?,
    ];
    let mut hubs = Vec::new();
    for seat in &seats {
        let hub = world.spawn(seat)?;
        hub.wait_ready().await?;
        hubs.push(hub);
    }
    let load = world.load(RATE, MOST);
    world.until_more_ended(5).await?;
    let begin = Instant::now();
    for turn in 0..TURNS {
        let active = ready(&world, &seats, &hubs)
            .await
            .with_context(|| format!("turn {turn}"))?;
        let status = hubs[active].sigterm(LIMIT).await?;
        ensure!(
            status.code() == Some(0),
            "{status} after turn {turn}:\n{}",
            hubs[active].log()
        );
        hubs[active] = world.spawn(&seats[active])?;
    }
    let took = begin.elapsed();
    let tasks = world.each_once(load).await?;
    world.stage.passed();
    Ok((took, tasks))
}

/// The active instance, once another one is a standby.
async fn ready(world: &World, seats: &[Seat], hubs: &[Hub]) -> Result<usize> {
    wait_for(
        "an instance to work, and another to stand by",
        LIMIT,
        async || {
            let Some(active) = world.active().await? else {
                return Ok(None);
            };
            let active = seats
                .iter()
                .position(|seat| seat.name == active)
                .context("a seat")?;
            for (number, hub) in hubs.iter().enumerate() {
                if number != active && hub.get("/readyz").await.is_ok_and(|(code, _)| code == 200) {
                    return Ok(Some(active));
                }
            }
            Ok(None)
        },
    )
    .await
}
