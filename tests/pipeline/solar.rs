//! What a user of `SolAr` has applies after a change of its apiVersion, and what it needs to render is said.

use anyhow::{Result, ensure};
use renderhub::api::policy::discovery_fields;
use renderhub_harness::commands::kubectl;
use renderhub_harness::{apply, rundir, wait_for};
use serde_json::json;

use crate::scene::Scene;
use crate::support::LIMIT;
use crate::support::tenant::{BUILDER, OWN};

impl Scene {
    /// Applies a manifest as a user would, which refuses fields that the schema does not have; what kubectl warns of.
    fn applied(&self, manifest: &str, more: &[&str]) -> Result<String> {
        let file = rundir::fresh("solar")?.join("manifest.yaml");
        std::fs::create_dir_all(file.parent().unwrap_or(&file))?;
        std::fs::write(&file, manifest)?;
        let mut kubectl = kubectl(self.stage.plane.admin())?;
        let output = kubectl
            .args(["apply", "--filename"])
            .arg(&file)
            .args(more)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{said}");
        Ok(said)
    }
}

#[tokio::test]
async fn a_manifest_of_solars_applies_and_renders_once_it_has_an_identity() -> Result<()> {
    let scene = Scene::new("solar").await?;
    scene.stage.make_builder("create").await?;
    scene.stage.make_own_secret(scene.tenant(), "own-push").await?;
    let manifest = include_str!("solar.yaml").replace("${NAMESPACE}", scene.tenant());
    let (policy, binding) = discovery_fields();
    for object in [serde_json::to_value(policy)?, serde_json::to_value(binding)?] {
        apply::object(&scene.stage.admin, object).await?;
    }
    wait_for("the policy to be in force", LIMIT, async || {
        let said = scene.applied(&manifest, &["--dry-run=server"])?;
        Ok(said.contains("Warning").then_some(()))
    })
    .await?;
    let said = scene.applied(&manifest, &[])?;
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
    scene.stage.job_of(&with_account).await?;
    let secret = scene
        .stage
        .secrets()
        .get(&crate::support::job_name_of(&with_account))
        .await?;
    ensure!(secret.data.unwrap_or_default()["password"].0 == OWN.as_bytes());
    scene.stage.complete(&with_account).await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    scene.passed();
    Ok(())
}
