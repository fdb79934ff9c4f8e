//! M5: no two hubs serve the same tasks, in whatever order they start, stop, crash, sleep and wake.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use renderhub_harness::{Hub, wait_for};
use serde_json::json;

use support::instances::{ACTIVE, INSTANCE, WAITS, refused, until_renewed, until_says};
use support::proxy::Proxy;
use support::{EVERYWHERE, LIMIT, Stage};

/// Two releases by mistake: they would take each other's Jobs for their own.
///
/// Holds: M5.
#[tokio::test]
async fn a_second_release_with_the_same_id_refuses_and_the_first_goes_on() -> Result<()> {
    let mut stage = Stage::without_hub("twice", &[]).await?;
    stage.make_registry().await?;
    let leases = format!("--lease-namespace={}", stage.scope.rendering);
    let mut other = Stage::without_hub("twice", &[&leases]).await?;
    other.scope.shard.clone_from(&stage.scope.shard);
    stage.hub = Some(stage.instance("first").await?);
    // The name of the instance is no excuse: pods of two releases may be called the same.
    for name in ["second", "first"] {
        let said = refused(&other.spawn_instance(name)?, &["peers"]).await?;
        let rendering = &stage.scope.rendering;
        ensure!(
            said.contains("(first)") && said.contains("the same hub id") && said.contains(rendering),
            "{said}"
        );
    }
    assert_eq!(stage.holder().await?.as_deref(), Some("first"));
    until_renewed(&stage).await?;
    stage.barrier().await?;
    stage.passed();
    other.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn hubs_whose_lists_meet_refuse_in_either_order() -> Result<()> {
    let mut first = Stage::without_hub("meet", &[]).await?;
    let (own, other) = (first.scope.tenant.clone(), first.plane.namespace("apart").await?);
    let mut wider = first.neighbour("wider", &own, &[]).await?;
    wider.also_watch(&other).await?;
    let mut all = first.neighbour("all", &own, &[EVERYWHERE]).await?;
    let mut apart = first.neighbour("apart", &other, &[]).await?;

    let running = first.instance("a").await?;
    let said = refused(&wider.spawn_instance("b")?, &["peers"]).await?;
    ensure!(said.contains(&format!("serves {own} too")), "{said}");
    refused(&all.spawn_instance("c")?, &["peers"]).await?;
    // One that shares nothing starts beside it, without a wait.
    let beside = apart.instance("d").await?;
    ensure!(!beside.log().contains(WAITS), "{}", beside.log());
    ensure!(running.sigterm(LIMIT).await?.code() == Some(0));

    // Who refused left nothing in the way of others.
    refused(&wider.spawn_instance("b")?, &["peers"]).await?;
    ensure!(beside.sigterm(LIMIT).await?.code() == Some(0));
    let running = all.instance("c").await?;
    ensure!(!running.log().contains(WAITS), "{}", running.log());
    for stage in [&mut first, &mut wider, &mut apart] {
        refused(&stage.spawn_instance("a")?, &["peers"]).await?;
    }
    for stage in [first, wider, all, apart] {
        stage.passed();
    }
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn a_restart_in_place_and_a_start_after_a_release_wait_for_nothing() -> Result<()> {
    let mut stage = Stage::without_hub("swift", &[]).await?;
    stage.instance("first").await?.kill9();
    let again = stage.instance("first").await?;
    ensure!(!again.log().contains(WAITS), "{}", again.log());
    ensure!(again.sigterm(LIMIT).await?.code() == Some(0));
    assert_eq!(stage.holder().await?, None);
    let second = stage.instance("second").await?;
    ensure!(!second.log().contains(WAITS), "{}", second.log());
    let spec = stage.lease().await?.spec.context("a spec")?;
    assert_eq!(
        (spec.lease_transitions, spec.lease_duration_seconds),
        (Some(2), Some(15))
    );
    stage.passed();
    Ok(())
}

/// A record of a hub that is gone for good delays one start, not every one.
///
/// Holds: M5.
#[tokio::test]
async fn the_record_of_a_hub_that_is_gone_is_cleared_by_who_takes_its_place() -> Result<()> {
    let mut stage = Stage::without_hub("renamed", &[]).await?;
    let mut other = stage.neighbour("renamed", &stage.scope.tenant, &[]).await?;
    stage.instance("first").await?.kill9();
    let second = other.instance("second").await?;
    ensure!(second.log().contains(WAITS), "{}", second.log());
    assert_eq!(stage.holder().await?, None);
    second.kill9();
    let again = other.instance("second").await?;
    ensure!(!again.log().contains(WAITS), "{}", again.log());
    stage.passed();
    other.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn a_hub_that_sleeps_too_long_ends_when_it_wakes() -> Result<()> {
    let mut stage = Stage::without_hub("asleep", &[]).await?;
    let first = stage.instance("first").await?;
    first.freeze()?;
    let second = stage.spawn_instance("second")?;
    until_says(&second, ACTIVE).await?;
    first.thaw()?;
    ensure!(first.wait_exit(LIMIT).await?.code() == Some(1));
    ensure!(
        first.log().contains("another instance has taken over"),
        "{}",
        first.log()
    );
    until_renewed(&stage).await?;
    assert_eq!(stage.holder().await?.as_deref(), Some("second"));
    ensure!(second.exit_status().is_none());
    stage.passed();
    Ok(())
}

/// Of two processes with one name the later one stays: a container that was started again.
///
/// Holds: M5.
#[tokio::test]
async fn a_process_whose_name_another_takes_ends() -> Result<()> {
    let mut stage = Stage::without_hub("same", &[]).await?;
    let first = stage.instance("hub-0").await?;
    let second = stage.instance("hub-0").await?;
    ensure!(first.wait_exit(LIMIT).await?.code() == Some(1));
    ensure!(
        first.log().contains("another instance has taken over"),
        "{}",
        first.log()
    );
    until_renewed(&stage).await?;
    ensure!(second.exit_status().is_none(), "{}", second.log());
    stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn a_lease_that_people_touch_or_remove_stays_the_hubs() -> Result<()> {
    let mut stage = Stage::without_hub("touched", &[]).await?;
    let hub = stage.instance("first").await?;
    let name = stage.lease().await?.name_any();
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "seen"}}}));
    stage
        .leases()
        .patch(&name, &PatchParams::default(), &note)
        .await?;
    until_renewed(&stage).await?;
    assert_eq!(stage.lease().await?.annotations()["note"], "seen");
    stage.leases().delete(&name, &DeleteParams::default()).await?;
    wait_for("the hub to write its record again", LIMIT, async || {
        Ok((stage.holder().await?.as_deref() == Some("first")).then_some(()))
    })
    .await?;
    until_renewed(&stage).await?;
    ensure!(hub.exit_status().is_none(), "{}", hub.log());
    stage.passed();
    Ok(())
}

/// Waits until one of two has refused and the other is ready, and makes sure that at no time both were.
async fn exactly_one(one: &Hub, other: &Hub) -> Result<()> {
    let hubs = [one, other];
    wait_for(
        "one of the two to refuse, and the other to work",
        LIMIT,
        async || {
            let mut ready = 0;
            for hub in hubs {
                ready += usize::from(hub.get("/readyz").await.is_ok_and(|(code, _)| code == 200));
            }
            let ended = hubs.iter().filter(|hub| hub.exit_status().is_some()).count();
            ensure_one(ready, ended)?;
            Ok((ready == 1 && ended == 1).then_some(()))
        },
    )
    .await?;
    for hub in hubs.into_iter().filter(|hub| hub.exit_status().is_some()) {
        refused(hub, &["peers"]).await?;
    }
    Ok(())
}

/// A wait takes errors for "not yet"; this one must end the test.
#[expect(clippy::unnecessary_wraps, reason = "it stands where an error is asked for")]
fn ensure_one(ready: usize, ended: usize) -> Result<()> {
    assert!(ready < 2, "two hubs are ready for the same tasks");
    assert!(ended < 2, "both have refused");
    Ok(())
}

/// Holds: M5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hubs_that_start_at_once_exactly_one_works() -> Result<()> {
    let rounds = (0..8).map(async |round| {
        let mut first = Stage::without_hub("race", &[]).await?;
        // Each of them is the one with the smaller name in some rounds.
        let flags: &[&str] = if round % 2 == 0 { &[] } else { &[EVERYWHERE] };
        let mut second = first.neighbour("race", &first.scope.tenant, flags).await?;
        let (one, other) = (first.spawn_instance("one")?, second.spawn_instance("other")?);
        let raced = exactly_one(&one, &other).await;
        raced.with_context(|| format!("round {round}:\n{}\n{}", one.log(), other.log()))?;
        let refused = if one.exit_status().is_some() { &one } else { &other };
        let (said, tenant) = (refused.log(), &first.scope.tenant);
        let is_named =
            said.contains(&format!("serves {tenant} too")) || said.contains("one of the two serves all");
        ensure!(is_named && said.contains("the hub "), "{said}");
        anyhow::Ok([first, second])
    });
    // The final scan blocks a thread, so no race is left to disturb.
    for stage in futures::future::try_join_all(rounds).await?.into_iter().flatten() {
        stage.passed();
    }
    Ok(())
}

/// Both write before either reads again, so each finds the other's record as it stays: only who renews while it watches is
/// seen alive.
///
/// Holds: M5.
#[tokio::test]
async fn of_two_that_watch_each_other_exactly_one_goes_on() -> Result<()> {
    let mut first = Stage::without_hub("mutual", &[]).await?;
    let mut second = first.neighbour("mutual", &first.scope.tenant, &[]).await?;
    let proxy = Proxy::start(first.hub_user.client().await?).await?;
    proxy.meet_at("/leases");
    let kubeconfig = proxy.kubeconfig()?;
    let one = first.spawn_hub_with(&kubeconfig, &[(INSTANCE, "one")])?;
    let other = second.spawn_hub_with(&kubeconfig, &[(INSTANCE, "other")])?;
    exactly_one(&one, &other).await?;
    first.passed();
    second.passed();
    Ok(())
}

#[tokio::test]
async fn a_heartbeat_is_one_write_and_no_read() -> Result<()> {
    let mut stage = Stage::without_hub("beat", &[]).await?;
    let _hub = stage.instance("first").await?;
    let begin = stage.plane.audit()?.mark().await?;
    for _ in 0..2 {
        until_renewed(&stage).await?;
    }
    let mut counts = stage.plane.audit()?.counts(begin, stage.hub_user.name()).await?;
    counts.retain(|action, _| action.ends_with(" leases"));
    ensure!(
        counts.keys().eq(["update leases"]) && counts["update leases"] <= 3,
        "{counts:?}"
    );
    stage.passed();
    Ok(())
}
