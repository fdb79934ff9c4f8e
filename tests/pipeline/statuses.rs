//! What is said of the objects in front of Targets.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use renderhub::api::pipeline::{Component, ComponentVersion, HydratedTarget, Profile, ReleaseBinding};
use renderhub_harness::audit::Mark;
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

/// Versions of a Target after which it would be strange if no write of the hub met another client's.
const ATTEMPTS: usize = 30;

/// The hub writes a version's status to the version as it saw it, and any client may write metadata meanwhile.
#[tokio::test]
async fn a_status_that_another_client_came_before_is_written_once_more() -> Result<()> {
    let scene = Scene::new("stale").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({"historyLimit": ATTEMPTS})).await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    let audit = scene.stage.plane.audit()?;
    let hub = scene.stage.hub_user.name();
    for number in 1..=ATTEMPTS {
        let made = scene.until_versions("edge", number).await?;
        let name = made[number - 1].name_any();
        tokio::select! {
            completed = scene.complete_version("edge", number) => completed?,
            annotated = annotate(scene.api(), &name) => annotated?,
        }
        let events = audit.since_with(Mark::START, hub).await?;
        let is_conflict = |action: &str, code| action == "update hydratedtargets/status" && code == 409;
        if events
            .iter()
            .any(|event| is_conflict(&event.action(), event.code))
        {
            scene.ready("edge").await?;
            scene.passed();
            return Ok(());
        }
        let userdata = json!({"userdata": {"number": number}});
        scene.change_target("edge", userdata).await?;
    }
    ensure!(false, "no write of the hub met another client's");
    Ok(())
}

/// Writes annotations to a version, one after the other, until it is not polled any more; after a while seldom, so that a write of the
/// hub gets through.
async fn annotate(api: Api<HydratedTarget>, name: &str) -> Result<()> {
    let begun = Instant::now();
    for number in 0_u64.. {
        let patch = json!({"metadata": {"annotations": {"example.test/number": number.to_string()}}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        let is_new = begun.elapsed() < Duration::from_secs(5);
        tokio::time::sleep(Duration::from_millis(if is_new { 2 } else { 1_000 })).await;
    }
    Ok(())
}
