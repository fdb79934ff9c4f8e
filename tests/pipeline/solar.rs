//! What a user of `SolAr` has applies after a change of its apiVersion, and what it needs to render is said.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use renderhub::api::RenderTask;
use renderhub::api::policy::discovery_fields;
use renderhub_harness::{apply, process, rundir, wait_for};
use serde_json::json;

use crate::scene::{Scene, applied};
use support::tenant::{BUILDER, OWN};
use support::{LIMIT, OWN_HOSTS};

/// What the page on `SolAr` makes of a manifest, by its own command.
fn moved(manifest: &str) -> Result<String> {
    let page = include_str!("../../docs/how-to/move-from-solar.md");
    let command = page.lines().find_map(|line| line.strip_prefix("    sed '"));
    let script = command.and_then(|command| command.split('\'').next());
    let file = rundir::fresh("solar")?.join("solar.yaml");
    std::fs::write(&file, manifest)?;
    let mut sed = Command::new("sed");
    process::run(sed.arg(script.context("the page has no command")?).arg(file))
}

/// Puts the policy that warns in force, as the chart does.
async fn warn_of_discovery(scene: &Scene) -> Result<()> {
    let (policy, binding) = discovery_fields();
    for object in [serde_json::to_value(policy)?, serde_json::to_value(binding)?] {
        apply::object(&scene.stage.admin, object).await?;
    }
    let registry = registry(scene, "flavor: zot");
    wait_for("the policy to be in force", LIMIT, async || {
        let said = applied(scene.stage.plane, &registry, &["--dry-run=server"])?;
        Ok(said.contains("Warning").then_some(()))
    })
    .await
}

/// A Registry with one more field.
fn registry(scene: &Scene, field: &str) -> String {
    let (tenant, kind) = (
        scene.tenant(),
        "apiVersion: renderhub.dev/v1alpha1\nkind: Registry",
    );
    format!(
        "{kind}\nmetadata: {{name: main, namespace: {tenant}}}\nspec:\n  hostname: registry.mine:5000\n  {field}\n"
    )
}

#[tokio::test]
async fn each_field_for_discovery_is_warned_of_and_nothing_else() -> Result<()> {
    let scene = Scene::new("warned").await?;
    warn_of_discovery(&scene).await?;
    // Made by the first, changed by the others.
    for (field, warns) in [
        ("flavor: zot", true),
        ("flavor: other", true),
        ("solarSecretRef: {name: own-push}", false),
        ("webhookPath: main", true),
        ("targetPullSecretName: pull", false),
        ("scanInterval: 10m", true),
        ("scanInterval: 20m", true),
    ] {
        let said = applied(scene.stage.plane, &registry(&scene, field), &[])?;
        ensure!(said.contains("Warning") == warns, "{field}: {said}");
    }
    scene.passed();
    Ok(())
}

/// What a manifest lacks is said on the Target, one after the other, each by a reason with a page.
#[tokio::test]
async fn what_a_manifest_of_solars_lacks_to_render_is_said_by_a_reason() -> Result<()> {
    let hosts = format!("{OWN_HOSTS}=registry.other:5000");
    let scene = Scene::with_flags("lacks", &[&hosts]).await?;
    scene.stage.make_builder("create").await?;
    scene.stage.make_own_secret(scene.tenant(), "own-push").await?;
    let manifest = moved(&include_str!("solar.yaml").replace("${NAMESPACE}", scene.tenant()))?;
    let secret = "  solarSecretRef: {name: own-push}\n";
    ensure!(manifest.contains(secret), "the manifest names its Secret");
    applied(scene.stage.plane, &manifest.replace(secret, ""), &[])?;
    for type_ in ["RegistryResolved", "Ready"] {
        scene
            .target_is("edge", type_, "False", "MissingPushSecretRef")
            .await?;
    }
    scene
        .target_is("edge", "Stalled", "True", "MissingPushSecretRef")
        .await?;
    applied(scene.stage.plane, &manifest, &[])?;
    let names = async |reason: &str| {
        wait_for(&format!("the Target to name {reason}"), LIMIT, async || {
            let message = scene
                .target_is("edge", "ReleasesRendered", "False", "Pending")
                .await?;
            Ok(message.contains(reason).then_some(()))
        })
        .await
    };
    names("RBACDenied").await?;
    scene
        .change_target("edge", json!({"serviceAccountName": BUILDER}))
        .await?;
    names("RegistryNotAllowed").await?;
    // Their task may start once the host is another one, but it goes: the chart for that host is another task's.
    let earlier: Vec<String> = scene
        .all_tasks()
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    // A host that the platform lists is all that was missing.
    let other = manifest.replace("hostname: registry.mine:5000", "hostname: registry.other:5000");
    applied(scene.stage.plane, &other, &[])?;
    let task = wait_for("a task for the host", LIMIT, async || {
        let all = scene.all_tasks().await?;
        let others = all.into_iter().filter(|task| !earlier.contains(&task.name_any()));
        let mut scheduled = others.filter(|task| {
            let conditions = task.status.iter().flat_map(|status| &status.conditions);
            conditions
                .into_iter()
                .any(|c| c.type_ == "JobScheduled" && c.status == "True")
        });
        Ok(scheduled.next())
    })
    .await?;
    scene.stage.complete(&task).await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    scene.passed();
    Ok(())
}

/// Whether a task has what the manifest says of the chart of its Release.
fn is_of_manifest(task: &RenderTask) -> Result<()> {
    ensure!(task.spec.failed_job_ttl == Some(600));
    let release = task.spec.config.release.as_ref().context("no release")?;
    ensure!(release.chart.description.as_deref() == Some("Release of shop-v1-0-0"));
    ensure!(release.chart.app_version.as_ref() == Some(&task.spec.tag));
    let helm = release.input.resources["chart"].helm.as_ref();
    let helm = serde_json::to_value(helm.context("no helm")?)?;
    ensure!(
        helm["description"] == "The shop" && helm["appVersion"] == "1.0.0",
        "{helm}"
    );
    Ok(())
}

#[tokio::test]
async fn a_manifest_of_solars_applies_and_renders_once_it_has_an_identity() -> Result<()> {
    let scene = Scene::new("solar").await?;
    scene.stage.make_builder("create").await?;
    scene.stage.make_own_secret(scene.tenant(), "own-push").await?;
    let manifest = moved(&include_str!("solar.yaml").replace("${NAMESPACE}", scene.tenant()))?;
    warn_of_discovery(&scene).await?;
    let said = applied(scene.stage.plane, &manifest, &[])?;
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("Warning")).collect();
    ensure!(
        warnings.len() == 1
            && warnings[0].contains("flavor, webhookPath and scanInterval are for SolAr's discovery"),
        "{said}"
    );
    // No account is named, and as itself the hub reads nothing of a tenant's.
    wait_for("the Target to say what is missing", LIMIT, async || {
        let message = scene
            .target_is("edge", "ReleasesRendered", "False", "Pending")
            .await?;
        Ok(message.contains("RBACDenied").then_some(()))
    })
    .await?;
    scene
        .change_target("edge", json!({"serviceAccountName": BUILDER}))
        .await?;
    let task = scene.task_named("release-shop-").await?;
    let with_account = wait_for("a task as the account", LIMIT, async || {
        let all = scene.all_tasks().await?;
        Ok(all
            .into_iter()
            .find(|task| task.spec.service_account_name.as_deref() == Some(BUILDER)))
    })
    .await?;
    ensure!(
        task.spec.tag == with_account.spec.tag,
        "the account is no part of a chart"
    );
    is_of_manifest(&with_account)?;
    scene.stage.job_of(&with_account).await?;
    let secret = scene
        .stage
        .secrets()
        .get(&support::job_name_of(&with_account))
        .await?;
    ensure!(secret.data.unwrap_or_default()["password"].0 == OWN.as_bytes());
    scene.stage.complete(&with_account).await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    scene.passed();
    Ok(())
}
