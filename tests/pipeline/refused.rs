//! What the API server does not let the hub make for a Target is said on the Target.

use anyhow::Result;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use renderhub::api::labels::{PIPELINE, PIPELINE_RELEASE};
use renderhub::api::pipeline::Target;
use renderhub_harness::{apply, wait_for};
use serde_json::json;

use crate::scene::Scene;
use support::LIMIT;

#[tokio::test]
async fn a_quota_that_forbids_a_task_is_said_and_the_target_goes_on_without_it() -> Result<()> {
    let scene = Scene::new("quota").await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": scene.tenant()},
        "spec": {"hard": {"count/rendertasks.renderhub.dev": "0"}},
    });
    apply::object(&scene.stage.admin, quota).await?;
    let quotas: Api<ResourceQuota> = scene.api();
    wait_for("the quota to be in force", LIMIT, async || {
        Ok(quotas
            .get("none")
            .await?
            .status
            .and_then(|status| status.hard)
            .map(drop))
    })
    .await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    scene.stage.allow_forbidden();
    let message = scene
        .target_is("edge", "Stalled", "True", "CreateRefused")
        .await?;
    assert!(message.contains("look for a ResourceQuota"), "{message}");
    quotas.delete("none", &DeleteParams::default()).await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_task_that_another_made_with_the_name_of_one_of_the_hubs_is_said_and_left_alone() -> Result<()> {
    let scene = Scene::new("taken").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    let name = scene.task_named("release-shop-").await?.name_any();
    // Without a Target, the hub's own task goes.
    let targets: Api<Target> = scene.api();
    targets.delete("edge", &DeleteParams::default()).await?;
    wait_for("the hub's task to go", LIMIT, async || {
        Ok(scene.all_tasks().await?.is_empty().then_some(()))
    })
    .await?;
    let mut foreign = scene.stage.task(&name);
    foreign["metadata"]["labels"] = json!({"of": "another"});
    let foreign = scene.stage.submit(foreign).await?;
    scene.target("edge", json!({})).await?;
    scene.target_is("edge", "Stalled", "True", "NameConflict").await?;
    assert_eq!(scene.task_named(&name).await?.uid(), foreign.uid());
    scene.stage.delete(&foreign).await?;
    scene.complete_other("release-shop-", &foreign).await?;
    scene.complete_version("edge", 1).await?;
    scene.passed();
    Ok(())
}

/// The watch of all tasks tells the pipeline which are its own.
#[tokio::test]
async fn a_task_that_loses_its_label_is_not_the_pipelines_until_it_has_it_again() -> Result<()> {
    let scene = Scene::new("unlabelled").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    let task = scene.task_named("release-shop-").await?;
    let label = async |value: Option<&str>| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {PIPELINE: value}}}));
        let tasks = scene.tasks();
        tasks
            .patch(&task.name_any(), &PatchParams::default(), &patch)
            .await
    };
    label(None).await?;
    scene.target_is("edge", "Stalled", "True", "NameConflict").await?;
    label(Some(PIPELINE_RELEASE)).await?;
    let completed = scene.complete_next("release-shop-").await?;
    assert_eq!(completed.uid(), task.uid());
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    scene.passed();
    Ok(())
}
