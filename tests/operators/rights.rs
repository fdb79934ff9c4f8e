//! The chart's rights are the ones that are used: each by something that the program does, and no other.

use anyhow::{Result, ensure};
use kube::api::DeleteParams;

use crate::pods;
use crate::world::{PULL, World};

#[tokio::test]
async fn each_right_of_the_chart_is_used_and_no_other_is_needed() -> Result<()> {
    let mut world = World::start("rights", 1).await?;
    let team = world.team().to_owned();
    world.write_catalog("main", &[PULL, "away"]).await?;
    world.write_account(&team, "etcd", &[]).await?;
    let early = pods::refused_pod(&world, "etcd").await?;
    world.install(&team, "etcd", "main", "etcd").await?;
    world
        .until_event(&world.catalogs, "main", "PullSecretNotFound")
        .await?;
    world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
    world.write_secret(PULL, "2").await?;
    world.until_copied(&team, PULL, "2").await?;
    pods::until_evicted(&world, &early).await?;
    world.until_event(&team, "etcd", "PodEvicted").await?;
    // It reads what it made once more after a restart.
    world.restart().await?;
    world.write_secret(PULL, "3").await?;
    world.until_copied(&team, PULL, "3").await?;
    world
        .secrets(&world.catalogs)
        .delete(PULL, &DeleteParams::default())
        .await?;
    world.remove_subscription(&team, "etcd").await?;
    world.remove_version(&team, "etcd").await?;
    world.until_no_copy(&team).await?;
    let requests = world.requests().await?;
    let (unused, exceeded) = (world.rights.unused(&requests), world.rights.exceeded(&requests));
    ensure!(exceeded.is_empty(), "needed and not given: {exceeded:#?}");
    ensure!(unused.is_empty(), "given and not needed: {unused:#?}");
    world.passed_with_its_rights()
}
