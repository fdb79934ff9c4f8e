//! From Releases and Targets to tasks: what is made for a Target, what stays on it, and what leaves it, on a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "this is all test code, and each test tells one story from its beginning to its end"
)]

#[path = "pipeline/bounds.rs"]
mod bounds;
#[path = "pipeline/catalog.rs"]
mod catalog;
#[path = "pipeline/charts.rs"]
mod charts;
#[path = "pipeline/crash.rs"]
mod crash;
#[path = "pipeline/fleet.rs"]
mod fleet;
#[path = "pipeline/identity.rs"]
mod identity;
#[path = "pipeline/leaving.rs"]
mod leaving;
#[path = "pipeline/namespaces.rs"]
mod namespaces;
#[path = "pipeline/pages.rs"]
mod pages;
#[path = "pipeline/prune.rs"]
mod prune;
#[path = "pipeline/refused.rs"]
mod refused;
#[path = "pipeline/rollback.rs"]
mod rollback;
#[path = "pipeline/rollout.rs"]
mod rollout;
#[path = "pipeline/scene.rs"]
mod scene;
#[path = "pipeline/solar.rs"]
mod solar;
#[path = "pipeline/statuses.rs"]
mod statuses;
#[path = "pipeline/unread.rs"]
mod unread;

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::labels::{PIPELINE, TARGET_FINALIZER, TARGET_SEAL};
use renderhub::api::pipeline::{HydratedTarget, RegistryBinding, Release, ReleaseBinding, Target};
use renderhub_harness::{apply, wait_for};
use serde_json::json;

use scene::{Scene, condition};
use support::LIMIT;

#[tokio::test]
async fn a_release_that_is_bound_to_a_target_is_rendered_recorded_and_bundled() -> Result<()> {
    let scene = Scene::new("bound").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene
        .target("edge", json!({"userdata": {"site": "north"}}))
        .await?;
    scene.bind("edge", "shop").await?;
    let task = scene.complete_next("release-shop-").await?;
    assert_eq!(
        task.spec.repository,
        format!("{0}/{0}/release-shop", scene.tenant())
    );
    assert!(
        task.spec.tag.starts_with("v0.0.1-h") && task.spec.tag.len() == 24,
        "{}",
        task.spec.tag
    );
    let bootstrap = scene.complete_next("bootstrap-edge-v").await?;
    let target = scene.ready("edge").await?;
    let status = target.status.unwrap_or_default();
    let version = status.bootstrap_version.expect("it is ready");
    assert_eq!(bootstrap.spec.tag, format!("v0.0.{version}"));
    let url = status.chart_url.expect("it is ready");
    assert!(
        url.ends_with(&format!(
            "/{}/bootstrap-edge:{}",
            scene.tenant(),
            bootstrap.spec.tag
        )),
        "{url}"
    );
    assert_eq!(status.releases.len(), 1);
    for type_ in [
        "RegistryResolved",
        "ReleasesResolved",
        "ReleasesRendered",
        "BootstrapReady",
    ] {
        assert_eq!(
            condition(&status.conditions, type_).map(|c| c.status.as_str()),
            Some("True"),
            "{type_}"
        );
    }
    let versions = scene.versions("edge").await?;
    let spec = &versions[0].spec;
    assert_eq!(
        (versions.len(), spec.version, spec.changes.as_str()),
        (1, version, "first version: shop 1.0.0")
    );
    assert_eq!(spec.releases["shop"].version, task.spec.tag);
    assert!(
        spec.releases["shop"].digest.is_some() && versions[0].status.as_ref().unwrap().pushed_at.is_some()
    );
    let input = &bootstrap.spec.config.bootstrap.as_ref().unwrap().input;
    assert_eq!(input.userdata, Some(json!({"site": "north"})));
    assert_eq!(input.releases["shop"].tag, task.spec.tag);
    // A target that is made again never meets a tag that is there.
    let created = target.metadata.creation_timestamp.unwrap().0.as_second();
    assert_eq!(version, created);
    scene.passed();
    Ok(())
}

/// Holds: F5.
#[tokio::test]
async fn a_new_version_of_a_component_is_rolled_out_under_a_tag_that_was_never_used() -> Result<()> {
    let scene = Scene::new("rolled").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    let first = scene.complete_next("release-shop-").await?;
    scene.complete_next("bootstrap-edge-v").await?;
    scene.ready("edge").await?;
    // The ComponentVersion changes beneath the Release, whose generation stays.
    scene.component_version("shop", "1.1.0").await?;
    let second = scene.complete_other("release-shop-", &first).await?;
    assert_ne!(first.spec.tag, second.spec.tag);
    scene.complete_version("edge", 2).await?;
    let versions = scene.until_versions("edge", 2).await?;
    assert_eq!(versions[1].spec.changes, "shop 1.0.0 → 1.1.0");
    assert_eq!(versions[1].spec.version, versions[0].spec.version + 1);
    // The shared task of the old chart goes with the last version that names it: a Target may go back there.
    assert!(scene.tasks().get_opt(&first.name_any()).await?.is_some());
    scene.change_target("edge", json!({"userdata": {"n": 1}})).await?;
    scene.complete_version("edge", 3).await?;
    // Only now, because the first version may be gone before the third is seen beside it.
    scene.change_target("edge", json!({"historyLimit": 1})).await?;
    wait_for("the old task to be gone", LIMIT, async || {
        Ok(scene
            .tasks()
            .get_opt(&first.name_any())
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_hub_that_is_killed_goes_on_and_writes_nothing_twice() -> Result<()> {
    let mut scene = Scene::new("killed").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    scene.task_named("release-shop-").await?;
    scene.stage.restart_hub().await?;
    scene.complete_next("release-shop-").await?;
    scene.task_named("bootstrap-edge-v").await?;
    scene.stage.restart_hub().await?;
    scene.complete_next("bootstrap-edge-v").await?;
    scene.ready("edge").await?;
    let before = scene.versions_of_objects().await?;
    scene.stage.restart_hub().await?;
    // A second Target is served, so the hub has looked at everything.
    scene.target("later", json!({})).await?;
    scene.bind("later", "shop").await?;
    scene.complete_next("bootstrap-later-v").await?;
    scene.ready("later").await?;
    let after = scene.versions_of_objects().await?;
    for (name, version) in before {
        assert_eq!(
            after.get(&name),
            Some(&version),
            "{name} was written by a hub that had nothing to do"
        );
    }
    assert_eq!(scene.versions("edge").await?.len(), 1);
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn what_is_missing_is_named_and_mended_by_itself() -> Result<()> {
    let scene = Scene::new("missing").await?;
    scene
        .target("edge", json!({"renderRegistryRef": {"name": "absent"}}))
        .await?;
    scene.target_is("edge", "Ready", "False", "NotFound").await?;
    scene.target_is("edge", "Stalled", "True", "NotFound").await?;
    // All tests of the program share the registries of the platform.
    let later = format!("{}-later", scene.tenant());
    let registry = json!({"renderRegistryRef": {"kind": "ClusterRegistry", "name": later}});
    scene.change_target("edge", registry).await?;
    for type_ in ["RegistryResolved", "Ready"] {
        scene.target_is("edge", type_, "False", "NotGranted").await?;
    }
    let registry = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": later},
        "spec": {
            "hostname": "registry.test:5000", "pushSecretRef": {"name": "push"},
            "allowedNamespaces": [scene.tenant()],
        },
    });
    apply::object(&scene.stage.admin, registry).await?;
    scene
        .target_is("edge", "Ready", "False", "NoReleaseBindings")
        .await?;
    scene.bind("edge", "shop").await?;
    let message = scene
        .target_is("edge", "Ready", "False", "AllReleaseBindingsFiltered")
        .await?;
    assert!(
        message.contains(&format!("Release {}/shop does not exist", scene.tenant())),
        "{message}"
    );
    assert!(
        message.contains("; make it, or delete what binds it"),
        "{message}"
    );
    let binding: Api<ReleaseBinding> = scene.api();
    scene
        .condition_of(
            &binding,
            "edge-shop",
            |o| Some(&o.status.as_ref()?.conditions),
            "False",
            "NotFound",
        )
        .await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_next("bootstrap-edge-v").await?;
    scene.ready("edge").await?;
    scene
        .condition_of(
            &binding,
            "edge-shop",
            |o| Some(&o.status.as_ref()?.conditions),
            "True",
            "Ready",
        )
        .await?;
    let releases: Api<Release> = scene.api();
    scene
        .condition_of(
            &releases,
            "shop",
            |o| Some(&o.status.as_ref()?.conditions),
            "True",
            "Ready",
        )
        .await?;
    let target: Target = scene.api().get("edge").await?;
    assert_eq!(condition(&target.status.unwrap().conditions, "Stalled"), None);
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_host_with_two_registry_bindings_or_none_is_named_and_what_is_there_stays() -> Result<()> {
    let scene = Scene::with_flags("strict", &["--registry-binding-strict"]).await?;
    for registry in ["one", "two"] {
        let spec = json!({"hostname": "registry.test", "targetPullSecretName": registry});
        scene.registry(registry, spec).await?;
    }
    scene.bind_registry("edge", "one").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    scene.bind_registry("edge", "two").await?;
    let message = scene
        .target_is("edge", "Ready", "False", "RegistryBindingConflict")
        .await?;
    assert!(message.contains("for the host registry.test,"), "{message}");
    // First the one that the version does not rest on, so that no chart is made with the Secret of the other.
    let bindings: Api<RegistryBinding> = scene.api();
    for binding in ["edge-two", "edge-one"] {
        bindings.delete(binding, &DeleteParams::default()).await?;
    }
    for type_ in ["Ready", "ReleasesRendered"] {
        let message = scene
            .target_is("edge", type_, "False", "MissingRegistryBinding")
            .await?;
        assert!(
            message.contains("for the host registry.test,") && message.contains("; make one;"),
            "{message}"
        );
    }
    scene
        .target_is("edge", "Stalled", "True", "MissingRegistryBinding")
        .await?;
    scene.bind_registry("edge", "one").await?;
    scene.ready("edge").await?;
    assert_eq!(scene.versions("edge").await?.len(), 1);
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_chart_that_fails_holds_the_new_version_back_and_what_is_there_stays() -> Result<()> {
    let scene = Scene::new("failed").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.release("blog", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_next("bootstrap-edge-v").await?;
    scene.ready("edge").await?;
    scene.bind("edge", "blog").await?;
    let task = scene.task_named("release-blog-").await?;
    scene.fail(&task).await?;
    let message = scene.target_is("edge", "Ready", "False", "ReleaseFailed").await?;
    assert!(
        message.contains(&format!("Release {}/blog failed with JobFailed", scene.tenant())),
        "{message}"
    );
    assert_eq!(scene.versions("edge").await?.len(), 1);
    scene.target_is("edge", "BootstrapReady", "True", "Ready").await?;
    // Another Release of the Target is taken away: what failed is not wanted any more.
    let bindings: Api<ReleaseBinding> = scene.api();
    bindings.delete("edge-blog", &DeleteParams::default()).await?;
    scene.ready("edge").await?;
    wait_for("the failed task to be gone", LIMIT, async || {
        Ok(scene
            .tasks()
            .get_opt(&task.name_any())
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_target_that_is_deleted_takes_its_versions_and_tasks_along() -> Result<()> {
    let scene = Scene::new("deleted").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    let targets: Api<Target> = scene.api();
    scene.target("edge", json!({})).await?;
    scene
        .target_is("edge", "Ready", "False", "NoReleaseBindings")
        .await?;
    assert!(
        targets.get("edge").await?.finalizers().is_empty(),
        "nothing was made for it"
    );
    scene.bind("edge", "shop").await?;
    scene.task_named("release-shop-").await?;
    assert_eq!(targets.get("edge").await?.finalizers(), [TARGET_FINALIZER]);
    scene.complete_next("release-shop-").await?;
    // Its Job runs on when the Target is deleted.
    let bootstrap = scene.task_named("bootstrap-edge-v").await?;
    scene.stage.job_of(&bootstrap).await?;
    let versions = scene.versions("edge").await?;
    assert_eq!((versions.len(), versions[0].owner_references().len()), (1, 0));
    targets.delete("edge", &DeleteParams::default()).await?;
    wait_for("the Target to be gone", LIMIT, async || {
        Ok(targets.get_opt("edge").await?.is_none().then_some(()))
    })
    .await?;
    // What was its own is gone before it.
    assert!(scene.tasks().get_opt(&bootstrap.name_any()).await?.is_none());
    assert!(scene.versions("edge").await?.is_empty());
    scene.stage.cleared(&bootstrap).await?;
    // No Target owns the shared task, so the hub deletes it.
    wait_for("the shared task to be gone", LIMIT, async || {
        let tasks: Vec<RenderTask> = scene.all_tasks().await?;
        Ok((!tasks.iter().any(|t| t.name_any().starts_with("release-"))).then_some(()))
    })
    .await?;
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_deleted_takes_its_targets_along() -> Result<()> {
    let scene = Scene::new("emptied").await?;
    scene.target("edge", json!({"allowEmpty": true})).await?;
    scene.complete_next("bootstrap-edge-v").await?;
    scene.ready("edge").await?;
    // The API server forbids an event in a namespace that is being deleted.
    scene.stage.allow_forbidden();
    let namespaces: Api<Namespace> = Api::all(scene.stage.admin.clone());
    namespaces
        .delete(scene.tenant(), &DeleteParams::default())
        .await?;
    wait_for("the namespace to be gone", LIMIT, async || {
        Ok(namespaces.get_opt(scene.tenant()).await?.is_none().then_some(()))
    })
    .await?;
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn tasks_of_the_pipeline_are_no_finished_tasks_of_the_tenants() -> Result<()> {
    let scene = Scene::with_flags("retained", &["--keep-finished-per-namespace=0"]).await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    let release = scene.complete_next("release-shop-").await?;
    let bootstrap = scene.complete_next("bootstrap-edge-v").await?;
    scene.ready("edge").await?;
    // A task that a tenant made is removed once it is finished, also where it looks like one that the hub made.
    let owner = json!({"kind": "Target", "name": "absent", "namespace": scene.tenant()});
    for (name, spec) in [("own", json!({})), ("bootstrap-own", json!({"owner": owner}))] {
        let mut task = scene.stage.task(name);
        task["metadata"]["labels"] = json!({"renderhub.dev/pipeline": "release"});
        task["metadata"]["annotations"] = json!({"renderhub.dev/target-seal": "0".repeat(64)});
        for (field, value) in spec.as_object().into_iter().flatten() {
            task["spec"][field] = value.clone();
        }
        let own = scene.stage.submit(task).await?;
        scene.stage.complete(&own).await?;
        wait_for("the tenant's task to be gone", LIMIT, async || {
            Ok(scene.tasks().get_opt(name).await?.is_none().then_some(()))
        })
        .await?;
    }
    for task in [release, bootstrap] {
        let task = scene.tasks().get(&task.name_any()).await?;
        assert_eq!(task.spec.ttl_seconds_after_finished, None);
        assert!(task.annotations().contains_key(TARGET_SEAL) && task.labels().contains_key(PIPELINE));
    }
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_version_cannot_be_changed() -> Result<()> {
    let scene = Scene::new("sealed").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({})).await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_next("bootstrap-edge-v").await?;
    scene.ready("edge").await?;
    let version = scene.versions("edge").await?.remove(0);
    let api: Api<HydratedTarget> = scene.api();
    let patch = Patch::Merge(json!({"spec": {"changes": "mine"}}));
    let changed = api
        .patch(&version.name_any(), &PatchParams::default(), &patch)
        .await;
    let message = changed.expect_err("a version stands for one content").to_string();
    assert!(message.contains("a version stands for one content"), "{message}");
    scene.passed();
    Ok(())
}
