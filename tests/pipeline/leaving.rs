//! A release leaves a cluster only on purpose.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use renderhub::api::pipeline::{Release, ReleaseBinding};
use serde_json::json;

use crate::scene::Scene;

#[tokio::test]
async fn a_release_whose_binding_is_deleted_leaves_and_the_last_one_only_if_the_target_may_be_empty()
-> Result<()> {
    let scene = Scene::new("purpose").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.release("blog", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    scene.bind("edge", "blog").await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_next("release-blog-").await?;
    scene.complete_version("edge", 1).await?;
    let bindings: Api<ReleaseBinding> = scene.api();
    bindings.delete("edge-blog", &DeleteParams::default()).await?;
    scene.complete_version("edge", 2).await?;
    let versions = scene.versions("edge").await?;
    assert_eq!(versions[1].spec.changes, "removed blog 1.0.0");
    bindings.delete("edge-shop", &DeleteParams::default()).await?;
    scene
        .target_is("edge", "Ready", "False", "NoReleaseBindings")
        .await?;
    assert_eq!(
        scene.versions("edge").await?.len(),
        2,
        "what is on the cluster stays"
    );
    scene.change_target("edge", json!({"allowEmpty": true})).await?;
    scene.complete_version("edge", 3).await?;
    scene.ready("edge").await?;
    assert!(scene.versions("edge").await?[2].spec.releases.is_empty());
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_release_that_is_missing_stays_on_its_targets_and_others_go_on() -> Result<()> {
    let scene = Scene::new("stays").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.release("blog", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    let releases: Api<Release> = scene.api();
    releases.delete("shop", &DeleteParams::default()).await?;
    let message = scene
        .target_is("edge", "Stalled", "True", "MissingDependencies")
        .await?;
    assert!(
        message.contains(&format!(
            "Release {}/shop does not exist; make it, or delete what binds it; it stays as it is",
            scene.tenant()
        )),
        "{message}"
    );
    scene.bind("edge", "blog").await?;
    scene.complete_next("release-blog-").await?;
    scene.complete_version("edge", 2).await?;
    let versions = scene.versions("edge").await?;
    assert_eq!(versions[1].spec.changes, "added blog 1.0.0");
    assert_eq!(
        versions[1].spec.releases["shop"],
        versions[0].spec.releases["shop"]
    );
    scene.passed();
    Ok(())
}

/// Holds: F7.
#[tokio::test]
async fn a_label_that_flaps_removes_nothing() -> Result<()> {
    let scene = Scene::new("flaps").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene
        .target_with("edge", json!({"ring": "one"}), json!({}))
        .await?;
    scene
        .profile("shops", "shop", json!({"ring": "one"}), json!(null))
        .await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    scene.label_target("edge", json!({"ring": null})).await?;
    let leaving = async || {
        let api: Api<renderhub::api::pipeline::Target> = scene.api();
        let status = api.get("edge").await?.status.unwrap_or_default();
        Ok((!status.leaving.is_empty()).then_some(()))
    };
    renderhub_harness::wait_for("the release to be leaving", support::LIMIT, leaving).await?;
    scene.label_target("edge", json!({"ring": "one"})).await?;
    // Something else changes, so the hub has looked at the Target since.
    scene.change_target("edge", json!({"userdata": {"a": 1}})).await?;
    scene.complete_version("edge", 2).await?;
    let versions = scene.versions("edge").await?;
    assert_eq!(versions[1].spec.changes, "userdata changed");
    assert!(versions[1].spec.releases.contains_key("shop"));
    let tasks = scene.all_tasks().await?;
    let charts = tasks
        .iter()
        .filter(|task| task.name_any().starts_with("release-"));
    assert_eq!(charts.count(), 1, "its chart was not rendered again");
    scene.passed();
    Ok(())
}
