//! What follows what: copies and links from their beginning to their end.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use renderhub_harness::{rundir, wait_for};
use serde_json::json;

use crate::world::{LIMIT, PULL, World, plane, rights};

#[tokio::test]
async fn an_operator_gets_the_pull_secrets_of_its_catalog_and_they_follow() -> Result<()> {
    let mut world = World::start("follow", 2).await?;
    let team = world.team().to_owned();
    // An entry of others at each end.
    world.write_account(&team, "etcd", &["mine", "", "other"]).await?;
    world.write_version(&team, "etcd", "etcd").await?;
    world.subscribe(&team, "etcd", "main", "etcd").await?;
    let copy = world.until_copied(&team, PULL, "1").await?;
    ensure!(copy.type_.as_deref() == Some("kubernetes.io/dockerconfigjson"));
    ensure!(
        copy.labels()
            .get("app.kubernetes.io/managed-by")
            .map(String::as_str)
            == Some("renderhub")
    );
    let linked = |more: &[&str]| -> Vec<String> {
        let first = ["mine", "", "other"].map(str::to_owned).to_vec();
        let ours = more.iter().map(|secret| world.copy(secret));
        first.into_iter().chain(ours).collect()
    };
    world.until_entries(&team, "etcd", &linked(&[PULL])).await?;

    // Each change with the writes that it takes.
    world.until_seen().await?;
    let mark = world.mark().await?;
    world.write_secret(PULL, "2").await?;
    world.until_copied(&team, PULL, "2").await?;
    world.until_copied(&world.teams[1], PULL, "2").await?;
    let writes = world.writes(mark).await?;
    ensure!(
        writes.len() == 2 && writes.iter().all(|write| write.starts_with("patch secrets")),
        "{writes:?}"
    );

    let mark = world.mark().await?;
    world
        .secrets(&team)
        .delete(&world.copy(PULL), &DeleteParams::default())
        .await?;
    world.until_copied(&team, PULL, "2").await?;
    let writes = world.writes(mark).await?;
    ensure!(writes.len() == 1, "{writes:?}");

    let mark = world.mark().await?;
    world
        .accounts(&team)
        .delete("etcd", &DeleteParams::default())
        .await?;
    world.write_account(&team, "etcd", &["mine", "", "other"]).await?;
    world.until_entries(&team, "etcd", &linked(&[PULL])).await?;
    let writes = world.writes(mark).await?;
    ensure!(writes.len() == 1, "{writes:?}");

    // An edit of the list, back and forth.
    world.write_secret("more", "3").await?;
    world.write_catalog("main", &[PULL, "more", ""]).await?;
    world.until_copied(&team, "more", "3").await?;
    let mut both = [world.copy(PULL), world.copy("more")];
    both.sort();
    wait_for("both entries", LIMIT, async || {
        let mut found = world.entries(&team, "etcd").await?.split_off(3);
        found.sort();
        Ok((found == both).then_some(()))
    })
    .await?;
    world.write_catalog("main", &["more"]).await?;
    world.until_entries(&team, "etcd", &linked(&["more"])).await?;
    wait_for(
        "the copy of what is not named any more to be gone",
        LIMIT,
        async || {
            for team in &world.teams {
                let secrets = world.secrets(team);
                if secrets.get_metadata_opt(&world.copy(PULL)).await?.is_some() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        },
    )
    .await?;

    // Nothing changed, and nothing is written, by a process that was killed too.
    let expected = linked(&["more"]);
    let mark = world.mark().await?;
    world.restart().await?;
    world.write_catalog("main", &["more", PULL]).await?;
    world.until_copied(&team, PULL, "2").await?;
    world.until_copied(&world.teams[1], PULL, "2").await?;
    let writes = world.writes(mark).await?;
    let copies = writes.iter().filter(|write| write.starts_with("create secrets"));
    let links = writes
        .iter()
        .filter(|write| write.starts_with("patch serviceaccounts"));
    ensure!(
        copies.count() == 2 && links.count() <= 2 + world.teams.len() && writes.len() <= 5,
        "{writes:?}"
    );
    ensure!(world.entries(&team, "etcd").await?[..3] == expected[..3]);
    world.passed_with_its_rights()
}

#[tokio::test]
async fn a_process_that_was_killed_writes_nothing_where_nothing_changed() -> Result<()> {
    let mut world = World::start("restart", 2).await?;
    for team in world.teams.clone() {
        world.install(&team, "etcd", "main", "etcd").await?;
        world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
    }
    // One condition that is written down, so that it is not written again either.
    world.write_catalog("main", &[PULL, "away"]).await?;
    world
        .until_conditions(&["CatalogSource main PullSecretNotFound"])
        .await?;
    let mark = world.mark().await?;
    world.restart().await?;
    // It has read every copy, and so decided with all that it knows.
    let program = world.programs.last().expect("a program");
    wait_for("the copies to be read", LIMIT, async || {
        let metrics = program.metrics().await?;
        let reads = metrics
            .lines()
            .find(|line| line.contains("verb=\"get\",resource=\"secrets\",code=\"200\""));
        let reads = reads.and_then(|line| line.rsplit(' ').next()?.parse::<u32>().ok());
        Ok((reads >= Some(3)).then_some(()))
    })
    .await?;
    let writes = world.writes(mark).await?;
    ensure!(writes.is_empty(), "{writes:?}");
    world.passed_with_its_rights()
}

/// Holds: S9.
#[tokio::test]
async fn copies_and_links_go_with_the_last_of_subscription_and_version() -> Result<()> {
    let world = World::start("removal", 2).await?;
    let team = world.team().to_owned();
    world.install(&team, "etcd", "main", "etcd").await?;
    world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
    // Secrets of others with marks that make them look like copies: one has a copy's name, but another's.
    for (name, source) in [
        ("olm-pull-x-0123456789abcdef", "olm/x"),
        ("registry-credentials", "olm/y"),
    ] {
        world
            .apply(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": team,
                    "labels": {"app.kubernetes.io/managed-by": "renderhub", "renderhub.dev/copied-for": "olm"},
                    "annotations": {"renderhub.dev/source": source, "renderhub.dev/source-uid": "u"}},
                "stringData": {"a": "b"},
            }))
            .await?;
    }
    world.remove_subscription(&team, "etcd").await?;
    world.until_seen().await?;
    ensure!(
        world.entries(&team, "etcd").await? == [world.copy(PULL)],
        "the operator still runs"
    );
    world.write_secret(PULL, "2").await?;
    world.until_copied(&team, PULL, "2").await?;
    world.remove_version(&team, "etcd").await?;
    world.until_entries(&team, "etcd", &[]).await?;
    wait_for("the copy to be gone", LIMIT, async || {
        let there = world.secrets(&team).get_metadata_opt(&world.copy(PULL)).await?;
        Ok(there.is_none().then_some(()))
    })
    .await?;
    for name in ["olm-pull-x-0123456789abcdef", "registry-credentials"] {
        world.secrets(&team).get_metadata(name).await?;
    }
    world.passed_with_its_rights()
}

#[tokio::test]
async fn an_upgrade_a_second_catalog_and_a_shared_account_are_kept_apart() -> Result<()> {
    let world = World::start("apart", 1).await?;
    let team = world.team().to_owned();
    world.write_secret("second", "7").await?;
    world.write_catalog("second", &["second"]).await?;
    world.install(&team, "etcd.v1", "main", "etcd").await?;
    world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
    world.install(&team, "redis", "second", "etcd").await?;
    world.until_copied(&team, "second", "7").await?;
    world
        .until_entries(&team, "etcd", &[world.copy(PULL), world.copy("second")])
        .await?;
    // The new version has another account; both are there at once, and then the old one is not.
    world.write_account(&team, "etcd-2", &[]).await?;
    world.write_version(&team, "etcd.v2", "etcd-2").await?;
    world.subscribe(&team, "etcd.v1", "main", "etcd.v2").await?;
    world.until_entries(&team, "etcd-2", &[world.copy(PULL)]).await?;
    ensure!(world.entries(&team, "etcd").await?.len() == 2);
    world.remove_version(&team, "etcd.v1").await?;
    world
        .until_entries(&team, "etcd", &[world.copy("second")])
        .await?;
    world.passed_with_its_rights()
}

/// Holds: S8.
#[tokio::test]
async fn a_namespace_may_come_later_and_one_that_was_made_again_gets_nothing_until_it_is_granted()
-> Result<()> {
    let mut world = World::prepare("again", 1).await?;
    let later = format!("again-later-{}", rundir::random_hex(4)?);
    world.teams.push(later.clone());
    world.spawn().await?;
    let away = format!("Namespace {later} Forbidden");
    world.until_conditions(&[&away]).await?;
    let namespaces: Api<Namespace> = Api::all(world.admin.clone());
    let make = async |world: &World| {
        let namespace = serde_json::from_value(json!({"metadata": {"name": later}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        let rights = rights(&world.catalogs, &world.teams, &world.record).await?;
        plane().await?.set_rights(&world.user, &rights).await
    };
    make(&world).await?;
    world.install(&later, "etcd", "main", "etcd").await?;
    world.until_entries(&later, "etcd", &[world.copy(PULL)]).await?;
    world.until_conditions(&[]).await?;
    let first = namespaces.get_metadata(&later).await?.uid();
    ensure!(
        world.recorded().await?.get(&later) == first.as_ref(),
        "its UID is written down"
    );

    world.kill();
    namespaces.delete(&later, &DeleteParams::default()).await?;
    wait_for("the namespace to be gone", LIMIT, async || {
        Ok(namespaces.get_metadata_opt(&later).await?.is_none().then_some(()))
    })
    .await?;
    make(&world).await?;
    // Whoever has the name now makes what looks like a copy of the program.
    let forged = world.forge_copy(&later).await?;
    world.install(&later, "etcd", "main", "etcd").await?;
    world.spawn().await?;
    world
        .until_conditions(&["Subscription etcd NamespaceRecreated"])
        .await?;
    world.until_event(&later, "etcd", "NamespaceRecreated").await?;
    let secrets = world.secrets(&later);
    ensure!(secrets.get(&world.copy(PULL)).await?.data == forged.data);
    secrets
        .delete(&world.copy(PULL), &DeleteParams::default())
        .await?;
    world.until_no_copy(&later).await?;
    ensure!(world.entries(&later, "etcd").await?.is_empty());

    // The platform operator means it.
    let patch = json!({"data": {&later: null}});
    let records: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(world.admin.clone(), &world.record);
    let patch = kube::api::Patch::Merge(&patch);
    records
        .patch(
            "renderhub-pull-secrets",
            &kube::api::PatchParams::default(),
            &patch,
        )
        .await?;
    world.until_entries(&later, "etcd", &[world.copy(PULL)]).await?;
    world.until_conditions(&[]).await?;
    world.passed()
}
