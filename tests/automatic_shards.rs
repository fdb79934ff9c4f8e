//! Several instances of one hub divide its namespaces by themselves: each task is done once, whoever comes and goes.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

mod support;

#[path = "automatic_shards/helpers.rs"]
mod helpers;
#[path = "automatic_shards/world.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use renderhub::plan::lease::RENEW_DEADLINE;
use renderhub::plan::shards::{Shard, View};
use renderhub_harness::wait_for;

use support::instances::{STANDBY, until_says};
use world::{COUNT, EACH, FAILOVER, LIMIT, Seat, World, all_shards};

/// How long the sleeper sleeps.
const ASLEEP: Duration = Duration::from_secs(30);
/// Requests that were sent just before are received a little later.
const SENT: SignedDuration = SignedDuration::from_millis(500);

fn without(shard: Shard) -> View {
    let mut left = all_shards();
    left.0.remove(&shard);
    left
}

/// Whoever made the last Job of each namespace, by what the audit log calls him.
fn last(makers: &BTreeMap<String, Vec<String>>) -> BTreeMap<&String, &str> {
    makers
        .iter()
        .filter_map(|(space, users)| Some((space, users.last()?.as_str())))
        .collect()
}

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_divide_what_comes_and_a_standby_takes_the_place_of_one_that_is_killed() -> Result<()>
{
    let mut world = World::new("standby").await?;
    let mut seats = Vec::new();
    for (name, members) in [("a", 1), ("b", 2), ("c", 3)] {
        seats.push(world.join(name, members).await?);
    }
    let (fourth, standby) = world.spawn("d").await?;
    until_says(&standby, STANDBY).await?;
    let load = world.load("load", 3)?;
    let held = world.hold().await?;
    world.until_more_ended(30).await?;
    for (seat, hub) in &seats {
        let shard = world.shard_of(seat).await?;
        let metrics = hub.metrics().await?;
        for series in [
            format!("renderhub_shard{{shard=\"{}\"}} 1", shard.0),
            "renderhub_shard_members 3".to_owned(),
        ] {
            ensure!(metrics.lines().any(|line| line == series), "{series}: {metrics}");
        }
    }

    let (first, hub) = &seats[0];
    let shard = world.shard_of(first).await?;
    let orphaned = world.share(&all_shards(), shard);
    ensure!(orphaned.len() == EACH);
    let killed = Instant::now();
    hub.kill9();
    let orphans = world.submit("orphan", &orphaned).await?;
    let served = world.until_ended(&orphans).await?.duration_since(killed);
    ensure!(served <= FAILOVER, "served after {served:?}");
    ensure!(
        world.shard_of(&fourth).await? == shard,
        "the standby has another shard"
    );
    world.until_divided(COUNT).await?;
    let load = load.end().await?;
    world.release(&held).await?;
    let late = world.submit("late", &world.namespaces).await?;
    world.until_ended(&late).await?;
    let makers = world.each_once(load, &[&held, &orphans, &late]).await?;
    let users: BTreeSet<&str> = makers.values().flatten().map(String::as_str).collect();
    let all = seats.iter().map(|(seat, _)| seat).chain([&fourth]);
    ensure!(
        users == all.map(|seat| seat.user.name()).collect(),
        "{users:?} made Jobs"
    );
    for (space, maker) in last(&makers) {
        let is_served = orphaned.contains(space) == (maker == fourth.user.name());
        ensure!(is_served, "{space} is served by {maker}");
    }
    world.stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_standby_the_others_take_over_and_who_comes_gets_a_third() -> Result<()> {
    let mut world = World::new("others").await?;
    let mut seats = Vec::new();
    for (name, members) in [("a", 1), ("b", 2), ("c", 3)] {
        seats.push(world.join(name, members).await?);
    }
    let load = world.load("before", 2)?;
    let held = world.hold().await?;
    let (third, hub) = seats.pop().context("three")?;
    let shard = world.shard_of(&third).await?;
    let orphaned = world.share(&all_shards(), shard);
    let killed = Instant::now();
    hub.kill9();
    let orphans = world.submit("orphan", &orphaned).await?;
    let served = world.until_ended(&orphans).await?.duration_since(killed);
    ensure!(served <= FAILOVER, "served after {served:?}");
    world.until_divided(COUNT - 1).await?;
    let mut tasks = load.end().await?;
    let between = world.submit("between", &world.namespaces).await?;
    world.until_ended(&between).await?;

    // One more comes while tasks do.
    let load = world.load("during", 10)?;
    world.until_more_ended(10).await?;
    let (fourth, _newcomer) = world.join("d", COUNT).await?;
    world.until_more_ended(20).await?;
    tasks.extend(load.end().await?);
    world.release(&held).await?;
    let after = world.submit("after", &world.namespaces).await?;
    world.until_ended(&after).await?;
    let makers = world
        .each_once(tasks, &[&held, &orphans, &between, &after])
        .await?;

    let mut users = BTreeMap::new();
    for seat in seats.iter().map(|(seat, _)| seat).chain([&fourth]) {
        users.insert(world.shard_of(seat).await?, seat.user.name());
    }
    ensure!(world.shard_of(&fourth).await? == shard, "it took another shard");
    for space in &world.namespaces {
        let [two, three] = [without(shard), all_shards()].map(|view| view.owner(space).context("an owner"));
        let (two, three) = (users[&two?], users[&three?]);
        let (made, has_moved) = (&makers[space], orphaned.contains(space));
        ensure!(has_moved == (two != three), "{space} is another's without need");
        ensure!(
            made.last().map(String::as_str) == Some(three),
            "{space} is served by {:?}",
            made.last()
        );
        // Who keeps a namespace has it without a break; who got it made no Job in it before.
        let strangers: BTreeSet<&str> = made
            .iter()
            .map(String::as_str)
            .filter(|user| *user != three)
            .collect();
        let expected: BTreeSet<&str> = if has_moved {
            BTreeSet::from([third.user.name(), two])
        } else {
            BTreeSet::new()
        };
        ensure!(strangers == expected, "{space} was served by {strangers:?}");
    }
    world.stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_whose_namespaces_have_gone_to_others_writes_nothing_when_it_wakes() -> Result<()> {
    let mut world = World::new("sleeper").await?;
    let mut seats = Vec::new();
    for (name, members) in [("a", 1), ("b", 2), ("c", 3)] {
        seats.push(world.join(name, members).await?);
    }
    let load = world.load("load", 3)?;
    let held = world.hold().await?;
    let (sleeper, hub): &(Seat, _) = &seats[1];
    let share = world.share(&all_shards(), world.shard_of(sleeper).await?);
    let asleep = Timestamp::now();
    hub.freeze()?;
    let others = async {
        let orphans = world.submit("orphan", &share).await?;
        world.until_ended(&orphans).await?;
        anyhow::Ok(orphans)
    };
    let ((), orphans) = tokio::join!(tokio::time::sleep(ASLEEP), others);
    let (orphans, load) = (orphans?, load.end().await?);
    world.release(&held).await?;
    hub.thaw()?;
    let status = hub.wait_exit(LIMIT).await?;
    ensure!(status.code() == Some(1), "{status}\n{}", hub.log());
    let claim = asleep + SignedDuration::try_from(RENEW_DEADLINE)? + SENT;
    let writes = world.writes(sleeper).await?;
    ensure!(
        writes.iter().any(|event| event.received < asleep),
        "it worked before"
    );
    let late: Vec<_> = writes.iter().filter(|event| event.received > claim).collect();
    ensure!(late.is_empty(), "the sleeper wrote {late:#?}");
    let makers = world.each_once(load, &[&held, &orphans]).await?;
    for (space, maker) in last(&makers) {
        ensure!(maker != sleeper.user.name(), "{space} is served by who sleeps");
    }
    wait_for("nothing to be left", LIMIT, async || {
        let left = world.stage.jobs().list(&kube::api::ListParams::default()).await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await?;
    world.stage.passed();
    Ok(())
}
