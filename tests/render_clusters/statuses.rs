//! What is written of clusters and for how long it is kept, and what reading their Secrets costs.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use renderhub::api::RenderCluster;
use renderhub_harness::process::Process;
use renderhub_harness::{rundir, wait_for};
use serde_json::json;

use super::kubeconfigs::{kubeconfig_of, resident};
use super::world::{LIMIT, World};

/// Says that the process runs one test alone.
const ALONE: &str = "RENDERHUB_TEST_ALONE";

/// Runs a test in a process of its own, because the memory of others would be measured too.
async fn alone(test: &str) -> Result<()> {
    let log = rundir::fresh("alone")?.join("log");
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.args(["--exact", test, "--nocapture"]);
    command.env(ALONE, "1");
    let child = Process::spawn(test, &command, &log)?;
    let status = child.wait(Duration::from_secs(300)).await?;
    let log = child.log();
    ensure!(status.success() && log.contains("1 passed"), "{log}");
    Ok(())
}

/// Holds: K9.
#[tokio::test(flavor = "multi_thread")]
async fn a_huge_secret_is_read_again_and_again_and_leaves_nothing() -> Result<()> {
    // A reading holds the Secret a few times over; thirty that left theirs would be thirty megabytes.
    const SPARE: u64 = 8 * 1024;
    if std::env::var_os(ALONE).is_none() {
        return alone("statuses::a_huge_secret_is_read_again_and_again_and_leaves_nothing").await;
    }
    let world = World::new().await?;
    let [small, huge] = ["small", "huge"].map(|name| world.name(name));
    world.put_secret(&small, "value", "{[").await?;
    world
        .put_secret(&huge, "value", &"#".repeat(1024 * 1024 - 1024))
        .await?;
    world.put_cluster(&small, &small, json!({})).await?;
    world.until_connected_is(&small, "False", "BadKubeconfig").await?;
    world.put_cluster(&huge, &huge, json!({})).await?;
    world
        .until_connected_is(&huge, "False", "KubeconfigTooLarge")
        .await?;
    // What the allocator keeps of the first readings, for each thread, serves those that follow.
    let mut used = Vec::new();
    for n in 0..60 {
        let reads = world.reads();
        let label = json!({"metadata": {"labels": {"turn": n.to_string()}}});
        world.patch_secret(&huge, label).await?;
        wait_for("the Secret to be read again", LIMIT, async || {
            Ok((world.reads() > reads).then_some(()))
        })
        .await?;
        used.push(resident()?);
    }
    // It goes up and down with what is being read at that moment.
    let most = |part: &[u64]| part.iter().copied().max().unwrap_or_default();
    let (before, after) = (most(&used[..30]), most(&used[30..]));
    assert!(after <= before + SPARE, "{used:?} KiB");
    world.passed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_starts_again_writes_nothing_that_is_said_already() -> Result<()> {
    let mut world = World::new().await?;
    let [up, missing, bad, forged] = ["up", "missing", "bad", "forged"].map(|name| world.name(name));
    world
        .put_secret(&up, "value", &kubeconfig_of(&world.user("up").await?)?)
        .await?;
    world.put_secret(&bad, "value", "{[").await?;
    for (name, reason, status) in [
        (&up, "Connected", "True"),
        (&missing, "KubeconfigNotFound", "False"),
        (&bad, "BadKubeconfig", "False"),
        (&forged, "KubeconfigNotFound", "False"),
    ] {
        world
            .put_cluster(name, name, json!({"suspend": *name == bad}))
            .await?;
        world.until_connected_is(name, status, reason).await?;
    }
    // A change that no condition shows may be written a little later.
    world.settled(&up).await?;
    let mark = world.hub.audit()?.mark().await?;
    world.restart().await?;
    wait_for("the connection to stand again", LIMIT, async || {
        Ok(world
            .shown(&up)
            .contains("cluster_connected{cluster=\"")
            .then_some(()))
    })
    .await?;
    world.is_up(&up).await?;
    world.barrier().await?;
    let counts = |writes: Vec<String>, name: &str| writes.iter().filter(|written| *written == name).count();
    for name in [&up, &missing, &bad, &forged] {
        assert_eq!(counts(world.written(mark).await?, name), 0, "{name}");
    }
    // A hub with a connection restores what another client wrote; one without a kubeconfig may be another hub than the one meant.
    for name in [&up, &forged] {
        let forgery = json!({"status": {"conditions": [{"type": "Connected", "status": "False", "reason": "Forgery",
            "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
        let api: Api<RenderCluster> = Api::all(world.admin.clone());
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&forgery))
            .await?;
    }
    world.until_connected_is(&up, "True", "Connected").await?;
    world.barrier().await?;
    world.until_connected_is(&forged, "False", "Forgery").await?;
    world.passed().await
}

/// Holds: T8.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_granted_to_the_namespace_that_had_it_first() -> Result<()> {
    let world = World::new().await?;
    let (west, tenant) = (world.name("west"), world.hub.namespace("tenant").await?);
    let namespaces: Api<Namespace> = Api::all(world.admin.clone());
    let uid = async || Ok::<_, anyhow::Error>(namespaces.get_metadata(&tenant).await?.metadata.uid);
    let first = uid().await?;
    world
        .put_cluster(&west, &west, json!({"allowedNamespaces": [tenant]}))
        .await?;
    world
        .until_connected_is(&west, "False", "KubeconfigNotFound")
        .await?;
    wait_for("the namespace to be recorded", LIMIT, async || {
        Ok((world.status(&west).await?.namespaces.get(&tenant) == first.as_ref()).then_some(()))
    })
    .await?;
    let offered = world.offered(&west, |cluster| cluster.recorded.get(&tenant) == first.as_ref());
    let offered = offered.await?;
    assert_eq!(offered.spec.render_namespace, world.jobs);

    namespaces.delete(&tenant, &DeleteParams::default()).await?;
    wait_for("the namespace to be gone", LIMIT, async || {
        Ok(namespaces
            .get_metadata_opt(&tenant)
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    let again = serde_json::from_value(json!({"metadata": {"name": tenant}}))?;
    namespaces.create(&PostParams::default(), &again).await?;
    wait_for("the cluster to say that it is another one", LIMIT, async || {
        let condition = world
            .until_connected_is(&west, "False", "KubeconfigNotFound")
            .await?;
        let says = format!("deleted and recreated: {tenant};");
        Ok(condition.message.contains(&says).then_some(()))
    })
    .await?;
    assert_eq!(world.status(&west).await?.namespaces.get(&tenant), first.as_ref());
    assert_ne!(uid().await?, first);

    // One that cannot be decoded is offered to no task, and reported.
    world.break_cluster(&west).await?;
    world.until_connected_is(&west, "False", "InvalidSpec").await?;
    tokio::time::timeout(Duration::from_secs(60), world.withdrawn(&west)).await??;
    world.passed().await
}
