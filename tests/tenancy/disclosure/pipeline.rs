//! What the hub says and writes for Targets holds no secret, and what tenants wrote only where they are to find it.

use super::planted::Planted;
use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::pipeline::{HydratedTarget, Target};
use renderhub_harness::finish::Exit;
use renderhub_harness::wait_for;
use serde_json::json;

use crate::disclosure::scene::Scene;
use support::scan::{FOREIGN, VALUE};
use support::tenant::BUILDER;
use support::{LIMIT, Stage};

/// A tenant with a registry and a password of its own, and values that no other is to read; the hub says all that it can.
async fn scene(prefix: &str) -> Result<Scene> {
    let mut stage = Stage::without_hub(prefix, &["--log-level=trace", "--pipeline=true"]).await?;
    stage.make_registry().await?;
    stage.make_builder("create").await?;
    let tenant = stage.scope.tenant.clone();
    stage.make_own_secret(&tenant, "own-push").await?;
    stage.make_own_registry(&tenant, "own").await?;
    let hub = stage.spawn_hub_with(&stage.hub_user.kubeconfig()?, &[("RUST_LOG", "trace")])?;
    hub.wait_ready().await?;
    stage.hub = Some(hub);
    let scene = Scene { stage };
    let values = json!({"token": VALUE});
    scene.release("shop", "1.0.0", json!({"values": values})).await?;
    scene
        .profile("shops", "shop", json!({"ring": "one"}), json!({"profile": VALUE}))
        .await?;
    let spec = json!({"renderRegistryRef": {"name": "own"}, "serviceAccountName": BUILDER, "userdata": {"token": VALUE}});
    scene.target_with("edge", json!({"ring": "one"}), spec).await?;
    Ok(scene)
}

/// Holds: E1, E3, E5.
#[tokio::test]
async fn no_secret_and_no_foreign_text_is_said_of_targets() -> Result<()> {
    let scene = scene("pipeline").await?;
    let chart = scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    is_followed_at_debug(&scene.stage)?;
    // The tenant's data are in the version, where its Target's owner looks for them.
    let version = scene.versions("edge").await?.remove(0);
    let data = json!({"token": VALUE, "profile": VALUE});
    ensure!(version.spec.userdata == Some(data), "{:?}", version.spec.userdata);
    // The hub says that Profiles disagree, and not what they say.
    scene
        .profile(
            "others",
            "shop",
            json!({"ring": "one"}),
            json!({"profile": FOREIGN}),
        )
        .await?;
    scene
        .target_is("edge", "Ready", "False", "UserdataConflict")
        .await?;
    // The hub says that a chart failed, without the words of its pod.
    scene
        .release("blog", "1.0.0", json!({"values": {"token": VALUE}}))
        .await?;
    scene.bind("edge", "blog").await?;
    let task = scene.task_named("release-blog-").await?;
    let exit = Exit::new("renderer", 1, FOREIGN);
    scene.stage.fail(&task, exit, FOREIGN).await?;
    scene.target_is("edge", "Ready", "False", "ReleaseFailed").await?;
    // And a write that is refused.
    scene.stage.grant(|resource| resource != "targets/status").await?;
    wait_for("the hub to be refused", LIMIT, async || {
        scene
            .change_target("edge", json!({"userdata": {"again": VALUE}}))
            .await?;
        let log = scene.stage.hub().log();
        Ok(log.contains("a write of the pipeline failed").then_some(()))
    })
    .await?;
    scene.stage.grant(|_| true).await?;
    let own = chart.spec.registry_ref.context("a reference")?;
    ensure!(
        own.name == "own" && chart.spec.push_secret_ref.is_none(),
        "no task names a credential"
    );
    let said = scene.stage.hub().log();
    ensure!(said.len() > 1000 && !said.contains(VALUE) && !said.contains(FOREIGN));
    scene.passed();
    Ok(())
}

/// The log names each decision about the Target, and for which Target a write is.
fn is_followed_at_debug(stage: &Stage) -> Result<()> {
    let of_target = |value: &serde_json::Value| {
        value["target_name"] == "edge" && value["namespace"] == stage.scope.tenant.as_str()
    };
    let decided = stage.log_lines("a Target is decided about");
    let decided: Vec<_> = decided.iter().filter(|line| of_target(line)).collect();
    let makes = |line: &&serde_json::Value| line["new_version"].is_number() && line["new_tasks"] == 1;
    ensure!(decided.iter().any(makes), "{decided:?}");
    ensure!(decided.iter().any(|line| line["ready"] == "Ready"), "{decided:?}");
    let calls = stage.log_lines("a call to an API server");
    let mut made = calls
        .iter()
        .filter(|line| line["verb"] == "create" && line["resource"] == "hydratedtargets");
    let spans = made.next().map(|line| &line["spans"]);
    ensure!(
        spans.is_some_and(|spans| spans[0]["name"] == "target" && of_target(&spans[0])),
        "{calls:?}"
    );
    Ok(())
}

/// The scan at the end of each test sees a leak in what the hub writes for Targets.
///
/// Holds: E1.
#[tokio::test]
async fn a_leak_in_what_the_hub_writes_for_targets_is_found() -> Result<()> {
    let mut scene = scene("leak").await?;
    let task = scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    let version = scene.versions("edge").await?.remove(0).name_any();
    scene.stage.kill_hub();
    ensure!(scene.stage.hits().await?.is_empty(), "nothing is planted yet");
    let (targets, versions): (Api<Target>, Api<HydratedTarget>) = (scene.api(), scene.api());
    let tasks: Api<RenderTask> = scene.api();
    let url = json!({"chartURL": format!("oci://h/{VALUE}:1")});
    scene.stage.finds_patched(&targets, "edge", "status", url).await?;
    let leak = json!({"x": VALUE});
    scene
        .stage
        .finds_patched(&versions, &version, "annotations", leak.clone())
        .await?;
    scene
        .stage
        .finds_patched(&tasks, &task.name_any(), "annotations", leak)
        .await?;
    let values = Patch::Merge(json!({"spec": {"values": {"other": VALUE}}}));
    let releases: Api<renderhub::api::pipeline::Release> = scene.api();
    releases.patch("shop", &PatchParams::default(), &values).await?;
    ensure!(
        scene.stage.hits().await?.is_empty(),
        "a tenant may see what it wrote"
    );
    scene.passed();
    Ok(())
}
