//! What is said of the objects in front of Targets.

use anyhow::Result;
use kube::api::Api;
use renderhub::api::pipeline::{Component, ComponentVersion, HydratedTarget, Profile, ReleaseBinding};
use renderhub_harness::{apply, wait_for};
use serde_json::json;

use crate::scene::{Scene, condition};
use support::LIMIT;

#[tokio::test]
async fn what_binds_a_release_that_lost_names_the_one_that_is_there() -> Result<()> {
    let scene = Scene::new("superseded").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.release_of("own", "shop", json!({"priority": 1})).await?;
    scene.target_with("a", json!({"ring": "one"}), json!({})).await?;
    scene
        .profile("shops", "shop", json!({"ring": "one"}), json!(null))
        .await?;
    scene.bind("a", "shop").await?;
    let bindings: Api<ReleaseBinding> = scene.api();
    let of_binding = |o: &ReleaseBinding| Some(o.status.as_ref()?.conditions.clone());
    let is_so = async |status: &str, reason: &str| {
        wait_for(&format!("a-shop: Ready={status} {reason}"), LIMIT, async || {
            let found = of_binding(&bindings.get("a-shop").await?);
            let ready = found.as_deref().and_then(|all| condition(all, "Ready").cloned());
            Ok(ready.filter(|ready| ready.status == status && ready.reason == reason))
        })
        .await
    };
    is_so("True", "Ready").await?;
    // Another Release of the same unique name takes its place.
    scene.bind("a", "own").await?;
    let ready = is_so("False", "Superseded").await?;
    let winner = format!("Release {}/own has the same unique name", scene.tenant());
    assert!(ready.message.contains(&winner), "{}", ready.message);
    scene.complete_next("release-own-").await?;
    scene.complete_version("a", 1).await?;
    scene.ready("a").await?;
    // The Profile binds the same Release, but the binding comes first, so nothing is lost by the Profile.
    let profiles: Api<Profile> = scene.api();
    scene
        .condition_of(
            &profiles,
            "shops",
            |o| Some(&o.status.as_ref()?.conditions),
            "True",
            "Ready",
        )
        .await?;
    bindings
        .delete("a-shop", &kube::api::DeleteParams::default())
        .await?;
    scene
        .condition_of(
            &profiles,
            "shops",
            |o| Some(&o.status.as_ref()?.conditions),
            "False",
            "Superseded",
        )
        .await?;
    bindings
        .delete("a-own", &kube::api::DeleteParams::default())
        .await?;
    scene
        .condition_of(
            &profiles,
            "shops",
            |o| Some(&o.status.as_ref()?.conditions),
            "True",
            "Ready",
        )
        .await?;
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn components_and_versions_of_targets_are_in_progress_until_the_hub_has_spoken() -> Result<()> {
    let mut scene = Scene::new("spoken").await?;
    scene.stage.kill_hub();
    let component = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "Component",
        "metadata": {"name": "shop", "namespace": scene.tenant()}, "spec": {"registry": "registry.test"},
    });
    apply::object(&scene.stage.admin, component).await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.component_version("blog", "1.0.0").await?;
    let components: Api<Component> = scene.api();
    let versions: Api<ComponentVersion> = scene.api();
    let unseen = components.get("shop").await?.status.unwrap_or_default();
    assert_eq!(
        (unseen.observed_generation, unseen.conditions.len()),
        (Some(-1), 0)
    );
    assert_eq!(
        versions
            .get("shop")
            .await?
            .status
            .unwrap_or_default()
            .observed_generation,
        Some(-1)
    );
    scene.stage.start_hub().await?;
    let of_component = |o: &Component| o.status.as_ref().map(|status| status.conditions.clone());
    wait_for("the Component to be ready", LIMIT, async || {
        let found = of_component(&components.get("shop").await?);
        Ok(found.filter(|all| condition(all, "Ready").is_some_and(|ready| ready.status == "True")))
    })
    .await?;
    for (name, said) in [
        ("shop", "its Component is there"),
        ("blog", "its Component \"blog\" does not exist"),
    ] {
        wait_for(&format!("the version {name}"), LIMIT, async || {
            let status = versions.get(name).await?.status.unwrap_or_default();
            let ready = condition(&status.conditions, "Ready");
            let is_so = ready.is_some_and(|ready| ready.status == "True" && ready.message.contains(said));
            Ok((is_so && status.observed_generation == Some(1)).then_some(()))
        })
        .await?;
    }
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    let made = scene.until_versions("edge", 1).await?.remove(0);
    let unseen = made.status.unwrap_or_default();
    assert_eq!(
        (unseen.observed_generation, unseen.conditions.len()),
        (Some(-1), 0)
    );
    scene.complete_version("edge", 1).await?;
    let hydrated: Api<HydratedTarget> = scene.api();
    let pushed = hydrated
        .get(made.metadata.name.as_deref().unwrap_or_default())
        .await?;
    let pushed = pushed.status.unwrap_or_default();
    assert_eq!(pushed.observed_generation, Some(1));
    assert!(condition(&pushed.conditions, "Ready").is_some_and(|ready| ready.status == "True"));
    scene.passed();
    Ok(())
}
