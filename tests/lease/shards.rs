//! Instances that divide a hub among them: who gets which record, and who waits.

use std::time::Duration;

use anyhow::{Result, ensure};
use renderhub_harness::{Hub, wait_for};

use crate::support::instances::{INSTANCE, STANDBY, until_says};
use crate::support::{LIMIT, Stage};

/// Variables that say how many instances there are, and which of them one is.
const COUNT: &str = "RENDERHUB_SHARD_COUNT";
const INDEX: &str = "RENDERHUB_SHARD_INDEX";
/// Longest that a shard is nobody's after a kill: watched for 15 s, and looked at twice a second.
const AFTER_KILL: Duration = Duration::from_secs(20);

impl Stage {
    fn one_of(&mut self, name: &str, count: &str, index: &str) -> Result<Hub> {
        let env = [(INSTANCE, name), (COUNT, count), (INDEX, index)];
        self.spawn_hub_with(&self.hub_user.kubeconfig()?, &env)
    }

    /// Waits until the record is of this instance, or nobody's.
    async fn until_held(&self, suffix: &str, holder: Option<&str>) -> Result<()> {
        wait_for(&format!("{suffix} to be held by {holder:?}"), LIMIT, async || {
            Ok((self.holder_at(suffix).await?.as_deref() == holder).then_some(()))
        })
        .await
    }
}

/// Holds: M5.
#[tokio::test]
async fn each_shard_has_one_holder_and_its_own_successor() -> Result<()> {
    let mut stage = Stage::without_hub("shards", &[]).await?;
    let zero = stage.one_of("a", "2", "auto")?;
    stage.until_held(".0", Some("a")).await?;
    let one = stage.one_of("b", "2", "auto")?;
    stage.until_held(".1", Some("b")).await?;
    // One more, and one that wants to be a shard that somebody is, stand by.
    let spare = stage.one_of("c", "2", "auto")?;
    until_says(&spare, STANDBY).await?;
    let picky = stage.one_of("d", "2", "0")?;
    until_says(&picky, STANDBY).await?;
    one.kill9();
    let killed = std::time::Instant::now();
    stage.until_held(".1", Some("c")).await?;
    ensure!(killed.elapsed() <= AFTER_KILL, "{:?}", killed.elapsed());
    assert_eq!(picky.get("/readyz").await?, (200, STANDBY.to_owned()));
    ensure!(zero.sigterm(LIMIT).await?.code() == Some(0), "{}", zero.log());
    stage.until_held(".0", Some("d")).await?;
    for hub in [&spare, &picky] {
        ensure!(hub.exit_status().is_none(), "{}", hub.log());
    }
    stage.passed();
    Ok(())
}

/// A rollout that changes the number of shards: who takes all never works beside who takes a part.
///
/// Holds: M5.
#[tokio::test]
async fn instances_of_another_shard_count_wait_for_each_other() -> Result<()> {
    let mut stage = Stage::without_hub("recount", &[]).await?;
    let all = stage.instance("all").await?;
    let part = stage.one_of("part", "2", "auto")?;
    until_says(&part, STANDBY).await?;
    ensure!(stage.lease_at(".0").await.is_err(), "nobody divides yet");
    ensure!(all.sigterm(LIMIT).await?.code() == Some(0), "{}", all.log());
    stage.until_held(".0", Some("part")).await?;
    let again = stage.standby("again").await?;
    assert_eq!(stage.holder().await?, None);
    ensure!(part.sigterm(LIMIT).await?.code() == Some(0), "{}", part.log());
    stage.until_held("", Some("again")).await?;
    ensure!(again.exit_status().is_none(), "{}", again.log());
    stage.passed();
    Ok(())
}
