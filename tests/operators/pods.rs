//! Pods that were made before their ServiceAccount had its link, as a kubelet reports them; real ones are in `real`.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use crate::world::{LIMIT, PULL, World};

/// Makes a pod of an operator that could not pull its image, with what owns it. It has the name of the operator.
pub async fn refused_pod(world: &World, operator: &str) -> Result<()> {
    let deployment = format!("{operator}-controller");
    make_pod(world, operator, &deployment, operator).await
}

async fn make_pod(world: &World, name: &str, deployment: &str, account: &str) -> Result<()> {
    let (team, post) = (world.team(), PostParams::default());
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {
        "serviceAccountName": account, "containers": [{"name": "c", "image": "registry.test/c"}],
    }});
    let owned_by = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template});
    let deployments: Api<Deployment> = Api::namespaced(world.admin.clone(), team);
    let made = deployments
        .create(
            &post,
            &object(json!({"metadata": {"name": deployment}, "spec": spec}))?,
        )
        .await?;
    let sets: Api<ReplicaSet> = Api::namespaced(world.admin.clone(), team);
    let owner = owned_by("Deployment", deployment, &made.uid().unwrap_or_default());
    let set = sets
        .create(
            &post,
            &object(json!({"metadata": {"name": name, "ownerReferences": owner}, "spec": spec}))?,
        )
        .await?;
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), team);
    let owner = owned_by("ReplicaSet", name, &set.uid().unwrap_or_default());
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": name}, "ownerReferences": owner},
        "spec": template["spec"],
    });
    pods.create(&post, &object(pod)?).await?;
    let status = json!({"status": {"phase": "Pending", "containerStatuses": [{
        "name": "c", "image": "registry.test/c", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ErrImagePull"}},
    }]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
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
    refused_pod(&world, "etcd").await?;
    // Of the operator's account, but of no Deployment of it; and an operand.
    make_pod(&world, "stray", "stray", "etcd").await?;
    make_pod(&world, "operand", "operand", "operand").await?;
    let mut world = world;
    world.spawn().await?;
    world.install(&team, "etcd", "main", "etcd").await?;
    world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
    until_evicted(&world, "etcd").await?;
    let note = world.until_event(&team, "etcd", "PodEvicted").await?;
    ensure!(note.contains("pod etcd"), "{note}");
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), &team);
    for name in ["stray", "operand"] {
        let pod = pods.get_metadata(name).await?;
        ensure!(pod.metadata.deletion_timestamp.is_none(), "{name}");
    }
    world.passed_with_its_rights().await
}
