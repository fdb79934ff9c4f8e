//! Every way to a credential is asked about, before the start and while the hub works.

use super::Preflight;
use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, PostParams};
use renderhub_harness::wait_for;
use serde_json::json;

use support::{LIMIT, Stage};

/// A right, and its text in a finding.
type Way = (&'static str, &'static str, &'static str);

const SECRETS: Way = ("watch", "", "secrets");

trait Everywhere {
    /// Gives the tenant's `default` ServiceAccount one right everywhere, by a name of its own.
    async fn give_everywhere(&self, way: Way) -> Result<()>;
    async fn take_everywhere(&self) -> Result<()>;
    /// Waits until the metric says this of the rights of tenants, and nothing else.
    async fn until_shown(&self, result: &str) -> Result<()>;
}

impl Everywhere for Stage {
    async fn give_everywhere(&self, (verb, group, resource): Way) -> Result<()> {
        let name = &self.scope.shard;
        let role: ClusterRole = serde_json::from_value(json!({
            "metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}],
        }))?;
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": self.scope.tenant}],
        }))?;
        let post = PostParams::default();
        let roles: Api<ClusterRole> = Api::all(self.admin.clone());
        roles.create(&post, &role).await?;
        let bindings: Api<ClusterRoleBinding> = Api::all(self.admin.clone());
        bindings.create(&post, &binding).await?;
        Ok(())
    }

    async fn take_everywhere(&self) -> Result<()> {
        let (name, plain) = (&self.scope.shard, DeleteParams::default());
        let bindings: Api<ClusterRoleBinding> = Api::all(self.admin.clone());
        bindings.delete(name, &plain).await?;
        let roles: Api<ClusterRole> = Api::all(self.admin.clone());
        roles.delete(name, &plain).await?;
        Ok(())
    }

    async fn until_shown(&self, result: &str) -> Result<()> {
        let shown = format!("{{check=\"tenant-rights\",result=\"{result}\"}} 1");
        wait_for(&format!("the check to be {result}"), LIMIT, async || {
            let metrics = self.hub().metrics().await?;
            let of_check = metrics.lines().filter(|line| line.contains("tenant-rights"));
            let of_check: Vec<_> = of_check.collect();
            Ok((of_check.len() == 1 && of_check[0].ends_with(&shown)).then_some(()))
        })
        .await
    }
}

/// Holds: B10.
#[tokio::test]
async fn a_right_that_was_never_asked_about_before_is_refused() -> Result<()> {
    let mut stage = Stage::without_hub("ways", &[]).await?;
    let ways: [Way; 5] = [
        SECRETS,
        ("create", "apps", "deployments"),
        ("create", "", "pods/attach"),
        ("create", "", "serviceaccounts/token"),
        ("patch", "rbac.authorization.k8s.io", "rolebindings"),
    ];
    for way in ways {
        stage.give_everywhere(way).await?;
        let said = stage.refuses(&["tenant-rights"]).await?;
        ensure!(said.contains(&format!("{} {}", way.0, way.2)), "{said}");
        stage.take_everywhere().await?;
    }
    stage.passed();
    Ok(())
}

/// The hub sets its metrics before it logs.
async fn until_logged(stage: &Stage, words: &str) -> Result<()> {
    wait_for("the log to say it", LIMIT, async || {
        Ok(stage.hub().log().contains(words).then_some(()))
    })
    .await
}

/// Holds: B10.
#[tokio::test]
async fn a_right_that_is_granted_while_the_hub_works_is_reported() -> Result<()> {
    let stage = Stage::with_flags("later", &["--preflight-interval=1s"]).await?;
    stage.until_shown("ok").await?;
    stage.give_everywhere(SECRETS).await?;
    stage.until_shown("refused").await?;
    let said = "no start would be possible any more";
    until_logged(&stage, said).await?;
    let log = stage.hub().log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(said)).collect();
    ensure!(
        lines[0].contains("watch secrets") && lines[0].contains("hub-refuses-to-start.md#tenant-rights"),
        "{lines:?}"
    );
    // It goes on working, and says so when the right is gone.
    stage.barrier().await?;
    stage.take_everywhere().await?;
    stage.until_shown("ok").await?;
    until_logged(&stage, "as it should be again").await?;
    stage.passed();
    Ok(())
}
