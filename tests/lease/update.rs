//! An update of a hub: who is ready to take over, and who must not be.

use anyhow::{Result, ensure};
use renderhub_harness::wait_for;

use support::instances::{STANDBY, until_says};
use support::{LIMIT, Stage};

/// A new list with a namespace of another hub: if the new instance were ready, the old one would be ended for it, and then no hub
/// would serve what the old one had.
///
/// Holds: M5.
#[tokio::test]
async fn an_instance_that_would_meet_another_hub_is_no_successor() -> Result<()> {
    let mut first = Stage::without_hub("update", &[]).await?;
    let (own, other) = (first.scope.tenant.clone(), first.plane.namespace("apart").await?);
    let mut apart = first.neighbour("apart", &other, &[]).await?;
    let mut wider = first.neighbour("wider", &own, &[]).await?;
    wider.scope.shard.clone_from(&first.scope.shard);
    wider.also_watch(&other).await?;
    first.hub = Some(first.instance("old").await?);
    let beside = apart.instance("beside").await?;
    let new = wider.spawn_instance("new")?;
    wait_for("the new instance to say whom it would meet", LIMIT, async || {
        Ok(new.log().contains("not ready to take over").then_some(()))
    })
    .await?;
    ensure!(
        new.log().contains(&format!("serves {other} too")),
        "{}",
        new.log()
    );
    let (code, said) = new.get("/readyz").await?;
    ensure!(code == 503, "{code}: {said}");
    assert_eq!(first.holder().await?.as_deref(), Some("old"));
    // No other hub serves it any more: now it may, after the old one.
    ensure!(beside.sigterm(LIMIT).await?.code() == Some(0));
    until_says(&new, STANDBY).await?;
    ensure!(new.sigterm(LIMIT).await?.code() == Some(0));
    for stage in [first, apart, wider] {
        stage.passed();
    }
    Ok(())
}
