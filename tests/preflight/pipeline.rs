//! A hub that makes tasks for Targets says what it lacks for it, and starts all the same.

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams};
use renderhub_harness::wait_for;
use serde_json::Value;

use crate::Preflight as _;
use crate::command::preflight;
use support::{EVERYWHERE, LIMIT, Stage, plane};

trait OfPipeline {
    /// What the command says of the pipeline, as result and text.
    async fn of_pipeline(&self, more: &[&str]) -> Result<(String, String)>;
    /// Waits until the command says this.
    async fn until_it_says(&self, more: &[&str], result: &str, part: &str) -> Result<()>;
}

impl OfPipeline for Stage {
    async fn of_pipeline(&self, more: &[&str]) -> Result<(String, String)> {
        let more = [&["--output=json"], more].concat();
        let output = preflight(self, &self.hub_user.kubeconfig()?, &more).await?;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout)?;
        let found = all.iter().find(|finding| finding["check"] == "pipeline");
        let found = found.context("the check is missing")?;
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        Ok((text("result"), text("what")))
    }

    async fn until_it_says(&self, more: &[&str], result: &str, part: &str) -> Result<()> {
        wait_for(&format!("{result}: {part}"), LIMIT, async || {
            let said = self.of_pipeline(more).await?;
            ensure!(said.0 == result && said.1.contains(part), "{said:?}");
            Ok(Some(()))
        })
        .await
    }
}

const ON: &str = "--pipeline=true";
const CROSSING: &str = "--no-cross-namespace-refs=false";

#[tokio::test]
async fn the_chart_gives_what_the_pipeline_needs_and_what_is_missing_is_named() -> Result<()> {
    let catalog = plane::plane().await?.namespace("catalog").await?;
    let catalogs = format!("--catalog-namespaces={catalog}");
    for flags in [&[ON][..], &[ON, CROSSING, &catalogs]] {
        let stage = Stage::without_hub("needs", flags).await?;
        stage.until_it_says(flags, "ok", "may do what it has to").await?;
        let tenant = &stage.scope.tenant;
        for (verb, resource, place) in [
            ("create", "hydratedtargets", tenant),
            ("patch", "targets/status", tenant),
            (
                "list",
                "profiles",
                if flags.len() > 1 { &catalog } else { tenant },
            ),
        ] {
            stage.forbid(verb, resource).await?;
            let part = format!("{verb} {resource} in {place}");
            stage.until_it_says(flags, "warning", &part).await?;
            stage.renew_rights().await?;
            stage.until_it_says(flags, "ok", "").await?;
        }
        stage.passed();
    }
    Ok(())
}

#[tokio::test]
async fn a_hub_of_all_namespaces_asks_for_the_whole_cluster() -> Result<()> {
    // Other tests of this plane give tenants rights everywhere.
    let flags = [EVERYWHERE, ON, "--skip-preflight=tenant-rights"];
    let mut stage = Stage::without_hub("needs", &flags).await?;
    stage.make_registry().await?;
    stage.forbid("create", "hydratedtargets").await?;
    stage
        .until_allowed(false, "create", "renderhub.dev", "hydratedtargets")
        .await?;
    stage.start_hub().await?;
    let said = "the hub may not create hydratedtargets in the whole cluster";
    let lines = stage.log_lines(said);
    ensure!(
        lines.len() == 1 && lines[0]["level"] == "WARN",
        "{}",
        stage.hub().log()
    );
    let shown = r#"renderhub_preflight_findings{check="pipeline",result="warning"} 1"#;
    ensure!(stage.hub().metrics().await?.contains(shown));
    // Tasks are served all the same.
    stage.barrier().await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_kind_that_is_not_installed_is_named_and_tasks_are_served() -> Result<()> {
    let mut stage = Stage::on(plane::own_plane(&["crds"]).await?, "kinds", &[ON]).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(stage.admin.clone());
    for kind in ["profiles", "registrybindings"] {
        let name = format!("{kind}.renderhub.dev");
        definitions.delete(&name, &DeleteParams::default()).await?;
    }
    let part = "does not serve profiles, registrybindings, so nothing is made for Targets";
    stage.until_it_says(&[ON], "warning", part).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    stage.barrier().await?;
    let knows = "the pipeline knows all its objects";
    ensure!(stage.log_lines(knows).is_empty(), "it cannot know them all");
    for file in plane::files("crds")? {
        stage.plane.apply_file(&file).await?;
    }
    wait_for("the pipeline to go on by itself", LIMIT, async || {
        Ok((!stage.log_lines(knows).is_empty()).then_some(()))
    })
    .await?;
    stage.until_it_says(&[ON], "ok", "may do what it has to").await?;
    stage.passed();
    Ok(())
}
