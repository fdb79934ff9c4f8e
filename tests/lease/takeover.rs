//! Instances of one hub: one is active, the others are standbys.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::ResourceExt;
use renderhub::api::labels::LEASE_STATE;
use renderhub_harness::{Hub, wait_for};

use support::instances::{ACTIVE, STANDBY, until_says};
use support::{LIMIT, Stage};

/// Longest time without an active instance after a kill.
const AFTER_KILL: Duration = Duration::from_secs(20);
/// Longest time without an active instance after a release.
const AFTER_RELEASE: Duration = Duration::from_secs(2);
/// The same on a machine with much else to do; less than a holder that is watched until it counts as gone.
const BUSY: Duration = Duration::from_secs(10);
/// Answers that an instance waits for from when it may work until it says so, each of which may be as late as the latest that the
/// test got.
const ANSWERS: u32 = 4;

/// How long the instance took to become the active one since then, without what the API server's slowest answers took.
async fn until_active(stage: &Stage, hub: &Hub, since: Instant) -> Result<Duration> {
    let (slowest, active) = (Cell::new(Duration::ZERO), until_says(hub, ACTIVE));
    let answers = async {
        loop {
            let asked = Instant::now();
            stage.holder().await?;
            slowest.set(slowest.get().max(asked.elapsed()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let active = tokio::select! {
        active = active => active?,
        failed = answers => return failed,
    };
    Ok(active
        .duration_since(since)
        .saturating_sub(ANSWERS * slowest.get()))
}

async fn shows_state(hub: &Hub, state: &str) -> Result<()> {
    let series = format!("renderhub_instance_state{{state=\"{state}\"}} 1");
    wait_for(&series, LIMIT, async || {
        Ok(hub
            .metrics()
            .await?
            .lines()
            .any(|line| line == series)
            .then_some(()))
    })
    .await
}

async fn lease_state(stage: &Stage, suffix: &str) -> Result<String> {
    Ok(stage.lease_at(suffix).await?.annotations()[LEASE_STATE].clone())
}

/// Holds: M5.
#[tokio::test]
async fn a_standby_takes_over_from_an_instance_that_was_killed() -> Result<()> {
    let mut stage = Stage::without_hub("killed", &[]).await?;
    stage.make_registry().await?;
    let first = stage.instance("first").await?;
    shows_state(&first, "active").await?;
    let second = stage.standby("second").await?;
    shows_state(&second, "standby").await?;
    assert_eq!(lease_state(&stage, "").await?, "active");
    assert_eq!(lease_state(&stage, ".standby-0").await?, "standby");
    assert_eq!(stage.holder_at(".standby-0").await?.as_deref(), Some("second"));
    stage.barrier().await?;

    let killed = Instant::now();
    first.kill9();
    let took = until_active(&stage, &second, killed).await?;
    ensure!(took <= AFTER_KILL, "{took:?}");
    assert_eq!(stage.holder().await?.as_deref(), Some("second"));
    shows_state(&second, "active").await?;
    stage.barrier().await?;
    wait_for("the standby's record to be released", LIMIT, async || {
        Ok(stage.holder_at(".standby-0").await?.is_none().then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}

/// Holds: M5.
#[tokio::test]
async fn a_standby_takes_over_at_once_from_an_instance_that_stops() -> Result<()> {
    let mut stage = Stage::without_hub("handed", &[]).await?;
    stage.make_registry().await?;
    let mut first = stage.instance("instance-0").await?;
    let mut took = Vec::new();
    for round in 1..=4 {
        let next = stage.standby(&format!("instance-{round}")).await?;
        let asked = Instant::now();
        let (ended, active) = tokio::join!(first.sigterm(LIMIT), until_active(&stage, &next, asked));
        ensure!(ended?.code() == Some(0), "{}", first.log());
        took.push(active?);
        first = next;
        stage.barrier().await?;
    }
    // A machine that is busy with other tests slows some of them down, but not the best.
    ensure!(took.iter().min() <= Some(&AFTER_RELEASE), "{took:?}");
    ensure!(took.iter().all(|took| *took <= BUSY), "{took:?}");
    stage.passed();
    Ok(())
}

/// A standby that ends leaves no conflict, and its record goes to the next one.
#[tokio::test]
async fn standbys_come_and_go_and_leave_one_record() -> Result<()> {
    let mut stage = Stage::without_hub("spare", &[]).await?;
    let first = stage.instance("first").await?;
    for name in ["second", "third", "fourth"] {
        let standby = stage.standby(name).await?;
        ensure!(
            standby.sigterm(LIMIT).await?.code() == Some(0),
            "{}",
            standby.log()
        );
        assert_eq!(stage.holder_at(".standby-0").await?, None, "{name}");
    }
    let (one, other) = (stage.standby("fifth").await?, stage.standby("sixth").await?);
    let mut names = Vec::new();
    for lease in stage.leases().list(&kube::api::ListParams::default()).await? {
        names.push(lease.name_any());
    }
    let hub = stage.lease_name("").await?;
    let expected = [String::new(), ".standby-0".to_owned(), ".standby-1".to_owned()];
    assert_eq!(names, expected.map(|suffix| format!("{hub}{suffix}")));
    for hub in [&one, &other] {
        assert_eq!(hub.get("/readyz").await?, (200, STANDBY.to_owned()));
    }
    ensure!(first.exit_status().is_none(), "{}", first.log());
    stage.passed();
    Ok(())
}
