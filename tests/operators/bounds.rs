//! One more than is served, on a real API server; ten thousand are in the decisions' own tests.

use anyhow::{Result, ensure};
use renderhub_harness::wait_for;

use crate::world::{LIMIT, PULL, World};

/// Holds: S13.
#[tokio::test]
async fn of_more_namespaces_than_get_a_copy_those_that_have_one_keep_it() -> Result<()> {
    let mut world = World::prepare("many", 3).await?;
    world.flags.push("--max-destinations=2".to_owned());
    world.spawn().await?;
    let mut teams = world.teams.clone();
    teams.sort();
    teams.reverse();
    for team in &teams[..2] {
        world.install(team, "etcd", "main", "etcd").await?;
        world.until_copied(team, PULL, "1").await?;
    }
    world.install(&teams[2], "etcd", "main", "etcd").await?;
    let said = world
        .until_conditions(&["CatalogSource main PullSecretLimitExceeded"])
        .await?;
    ensure!(said.contains("--max-destinations"), "{said}");
    world
        .until_event(&world.catalogs, "main", "PullSecretLimitExceeded")
        .await?;
    world.until_no_copy(&teams[2]).await?;
    for team in &teams[..2] {
        world.until_copied(team, PULL, "1").await?;
    }
    world.passed_with_its_rights()
}

/// Holds: S13.
#[tokio::test]
async fn of_more_subscriptions_than_are_served_one_is_told() -> Result<()> {
    let world = World::start("subscriptions", 1).await?;
    let team = world.team().to_owned();
    for number in 0..=64 {
        let name = format!("op-{number:02}");
        world.install(&team, &name, "main", &name).await?;
    }
    world
        .until_conditions(&["Subscription op-64 PullSecretLimitExceeded"])
        .await?;
    for name in ["op-00", "op-63"] {
        world.until_entries(&team, name, &[world.copy(PULL)]).await?;
    }
    ensure!(world.entries(&team, "op-64").await?.is_empty());
    // One that goes makes room.
    world.remove_subscription(&team, "op-00").await?;
    world.remove_version(&team, "op-00").await?;
    wait_for("the last one to be served", LIMIT, async || {
        Ok((world.entries(&team, "op-64").await? == [world.copy(PULL)]).then_some(()))
    })
    .await?;
    world.passed_with_its_rights()
}

/// Holds: S13.
#[tokio::test]
async fn of_more_secrets_than_are_copied_the_first_are() -> Result<()> {
    let world = World::start("secrets", 1).await?;
    let team = world.team().to_owned();
    let names: Vec<String> = (0..=16).map(|number| format!("s-{number:02}")).collect();
    for name in &names {
        world.write_secret(name, name).await?;
    }
    let listed: Vec<&str> = names.iter().map(String::as_str).collect();
    world.write_catalog("main", &listed).await?;
    world.install(&team, "etcd", "main", "etcd").await?;
    for name in &listed[..16] {
        world.until_copied(&team, name, name).await?;
    }
    world
        .until_conditions(&["CatalogSource main PullSecretLimitExceeded"])
        .await?;
    ensure!(
        world
            .secrets(&team)
            .get_metadata_opt(&world.copy("s-16"))
            .await?
            .is_none()
    );
    world.passed_with_its_rights()
}
