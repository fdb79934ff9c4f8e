//! Pods that were made before their ServiceAccount had its link, as a kubelet reports them; real ones are in `real`.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use crate::world::{LIMIT, PULL, World};

/// Makes the Deployment of an operator, and lets its pod be one that could not pull its image; its name.
pub async fn refused_pod(world: &World, operator: &str) -> Result<String> {
    let deployment = format!("{operator}-controller");
    make_deployment(world, &deployment, operator).await?;
    refuse(world, &deployment).await
}

fn pods_of(app: &str, account: &str) -> Value {
    json!({
        "replicas": 1, "selector": {"matchLabels": {"app": app}},
        "template": {"metadata": {"labels": {"app": app}}, "spec": {
            "serviceAccountName": account, "containers": [{"name": "c", "image": "registry.test/c"}],
        }},
    })
}

async fn make_deployment(world: &World, name: &str, account: &str) -> Result<()> {
    world
        .apply(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": world.team()},
            "spec": pods_of(name, account),
        }))
        .await
}

/// Lets the pod with this label be one that could not pull its image, as a kubelet says it; its name.
async fn refuse(world: &World, app: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), world.team());
    let of_app = ListParams::default().labels(&format!("app={app}"));
    let name = wait_for(&format!("a pod of {app}"), LIMIT, async || {
        let pod = pods.list(&of_app).await?.items.pop();
        Ok(pod.map(|pod| pod.name_any()))
    })
    .await?;
    let status = json!({"status": {"phase": "Pending", "containerStatuses": [{
        "name": "c", "image": "registry.test/c", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ErrImagePull"}},
    }]}});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(name)
}

/// Waits until a pod is gone.
pub async fn until_evicted(world: &World, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), world.team());
    wait_for(&format!("pod {name} to be evicted"), LIMIT, async || {
        let there = pods.get_metadata_opt(name).await?;
        let is_going = there.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        Ok(is_going.then_some(()))
    })
    .await
}

/// Holds: S14.
#[tokio::test]
async fn a_pod_of_the_operator_that_was_made_too_early_is_evicted_and_no_other() -> Result<()> {
    let world = World::prepare("pods", 1).await?;
    let team = world.team().to_owned();
    world.write_account(&team, "etcd", &[]).await?;
    world.write_account(&team, "operand", &[]).await?;
    let early = refused_pod(&world, "etcd").await?;
    // Of the operator's account, but of no Deployment of it; and an operand.
    world
        .apply(json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "stray", "namespace": team},
            "spec": pods_of("stray", "etcd"),
        }))
        .await?;
    make_deployment(&world, "operand", "operand").await?;
    let others = [refuse(&world, "stray").await?, refuse(&world, "operand").await?];
    let mut world = world;
    world.spawn().await?;
    world.install(&team, "etcd", "main", "etcd").await?;
    world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
    until_evicted(&world, &early).await?;
    let note = world.until_event(&team, "etcd", "PodEvicted").await?;
    ensure!(note.contains(&early), "{note}");
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), &team);
    for name in &others {
        let pod = pods.get_metadata(name).await?;
        ensure!(pod.metadata.deletion_timestamp.is_none(), "{name}");
    }
    world.passed_with_its_rights()
}

/// A pod that waited with its link, and runs since its Secret was corrected, is older than any link that comes later.
#[tokio::test]
async fn a_pod_that_runs_by_now_is_not_evicted_for_a_link_that_came_after_it() -> Result<()> {
    let mut world = World::start("recovered", 1).await?;
    let team = world.team().to_owned();
    world.install(&team, "etcd", "main", "etcd").await?;
    world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
    let waiting = refused_pod(&world, "etcd").await?;
    world.restart().await?;
    let program = world.programs.last().expect("a program");
    wait_for("a look at the pods", LIMIT, async || {
        let metrics = program.metrics().await?;
        let mut looks = metrics.lines().filter(|line| line.contains("resource=\"pods\""));
        Ok(looks.any(|line| line.contains("verb=\"list\"")).then_some(()))
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), &team);
    let runs = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": "c", "image": "registry.test/c", "imageID": "c", "ready": true, "restartCount": 0,
        "state": {"running": {}},
    }]}});
    pods.patch_status(&waiting, &PatchParams::default(), &Patch::Merge(&runs))
        .await?;
    world.write_secret("more", "1").await?;
    world.write_catalog("main", &[PULL, "more"]).await?;
    wait_for("both entries", LIMIT, async || {
        Ok((world.entries(&team, "etcd").await?.len() == 2).then_some(()))
    })
    .await?;
    // A pod that comes now is looked at after what was decided with the new link.
    world.write_account(&team, "late", &[]).await?;
    let late = refused_pod(&world, "late").await?;
    world.install(&team, "late", "main", "late").await?;
    let mut both = [world.copy(PULL), world.copy("more")];
    both.sort();
    wait_for("both entries of the other", LIMIT, async || {
        let mut found = world.entries(&team, "late").await?;
        found.sort();
        Ok((found == both).then_some(()))
    })
    .await?;
    until_evicted(&world, &late).await?;
    let pod = pods.get_metadata(&waiting).await?;
    ensure!(pod.metadata.deletion_timestamp.is_none(), "it runs");
    world.passed_with_its_rights()
}
