//! `renderhub preflight`: the same checks for people and programs, without a hub.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, DeleteParams};
use serde_json::Value;

use crate::own_stage;
use support::Stage;
use support::programs;

/// Runs the command with a stage's flags.
pub async fn preflight(stage: &Stage, kubeconfig: &Path, more: &[&str]) -> Result<Output> {
    let mut command = Command::new(programs::hub());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RENDERHUB_") {
            command.env_remove(name);
        }
    }
    command
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("KUBECONFIG", kubeconfig)
        .arg("preflight")
        .arg(format!("--rendering-namespace={}", stage.scope.rendering))
        .arg(format!("--shard-name={}", stage.scope.shard))
        .arg(format!("--watch-namespaces={}", stage.scope.tenant))
        .args(more);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).context("no text")
}

/// Names of the checks with this result.
fn with_result(output: &Output, result: &str) -> Result<Vec<String>> {
    let all: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let named = all.iter().filter(|finding| finding["result"] == result);
    Ok(named
        .filter_map(|finding| finding["check"].as_str().map(str::to_owned))
        .collect())
}

/// What a person sees where all is well and some of it is left out.
const TABLE: &str = "\
CHECK                RESULT   WHAT                                               FIX
rendering-namespace  ok       RENDERING is the platform's
tenant-tasks         skipped  not looked at, as --skip-preflight says
tenant-rights        skipped  not looked at, as --skip-preflight says
role-bindings        skipped  not looked at, as --skip-preflight says
pod-security         ok       RENDERING enforces restricted
network-policy       ok       RENDERING denies traffic by default
resource-quota       ok       RENDERING has a quota
own-rights           skipped  not looked at, as --skip-preflight says
registry-scope       ok       0 ClusterRegistries, none open to everybody
pipeline             ok       the pipeline is off
peers                ok       no other hub serves the same tasks
unowned-namespaces   ok       no namespace that is known is without a hub
";

#[tokio::test]
async fn a_person_sees_a_table_and_a_program_a_list() -> Result<()> {
    let stage = own_stage("people", &[]).await?;
    let kubeconfig = stage.hub_user.kubeconfig()?;
    let begin = stage.plane.audit()?.mark().await?;
    let skip = "--skip-preflight=own-rights,role-bindings,tenant-rights,tenant-tasks";
    let good = preflight(&stage, &kubeconfig, &[skip]).await?;
    assert_eq!(
        text(&good.stdout)?.replace(&stage.scope.rendering, "RENDERING"),
        TABLE
    );
    ensure!(good.status.code() == Some(0), "{}", text(&good.stderr)?);

    let quotas: Api<ResourceQuota> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
    quotas.delete("renderers", &DeleteParams::default()).await?;
    let bad = preflight(&stage, &kubeconfig, &["--output=json"]).await?;
    assert_eq!(bad.status.code(), Some(1));
    assert_eq!(with_result(&bad, "refused")?, ["resource-quota"]);
    let all = with_result(&bad, "ok")?;
    ensure!(all.len() >= 7, "{all:?}");

    // Nothing was written but questions.
    let counts = stage.plane.audit()?.counts(begin, stage.hub_user.name()).await?;
    for action in counts.keys() {
        let is_read = action.starts_with("get ") || action.starts_with("list ");
        ensure!(is_read || action.ends_with("reviews"), "{action}");
    }

    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_hub_that_runs_is_no_mistake_of_its_own() -> Result<()> {
    let mut stage = Stage::without_hub("running", &[]).await?;
    let kubeconfig = stage.hub_user.kubeconfig()?;
    stage.start_hub().await?;
    let same = preflight(&stage, &kubeconfig, &["--output=json"]).await?;
    ensure!(with_result(&same, "ok")?.contains(&"peers".to_owned()));
    let elsewhere = ["--output=json", "--instance-name=laptop"];
    let elsewhere = preflight(&stage, &kubeconfig, &elsewhere).await?;
    ensure!(elsewhere.status.code() == Some(0));
    ensure!(with_result(&elsewhere, "warning")?.contains(&"peers".to_owned()));
    ensure!(stage.hub().exit_status().is_none());
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_an_error_of_its_own() -> Result<()> {
    let stage = Stage::without_hub("unknown", &[]).await?;
    let nowhere = preflight(&stage, Path::new("/no/such/file"), &[]).await?;
    assert_eq!(nowhere.status.code(), Some(1));
    ensure!(nowhere.stdout.is_empty() && text(&nowhere.stderr)?.contains("KUBECONFIG"));
    let kubeconfig = stage.hub_user.kubeconfig()?;
    for (flag, says) in [
        ("--skip-preflight=podsecurity", "--skip-preflight must be a list"),
        ("--skip-preflight=peers", "it cannot be left out"),
        ("--instance-name=a b", "--instance-name must be"),
        ("--lease-namespace=A", "--lease-namespace must be"),
        ("--output=yaml", "--output"),
    ] {
        let refused = preflight(&stage, &kubeconfig, &[flag]).await?;
        assert_eq!(refused.status.code(), Some(2), "{flag}");
        ensure!(
            text(&refused.stderr)?.contains(says),
            "{flag}: {}",
            text(&refused.stderr)?
        );
    }
    stage.passed();
    Ok(())
}
