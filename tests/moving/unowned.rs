//! A namespace that no hub serves any more is reported by every live hub and by `renderhub preflight`.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use crate::Two;
use support::programs;
use support::{LIMIT, Stage, job_name_of};

const METRIC: &str = "renderhub_unowned_namespaces";

trait Unowned {
    /// Waits until this stage's hub counts so many namespaces without a hub.
    async fn counts_unowned(&self, wanted: &str) -> Result<()>;
    /// The result of the check of `renderhub preflight`, as the hub of this stage, or as a user who may list all tasks.
    async fn unowned(&self, as_admin: bool) -> Result<Value>;
    /// Makes every record of another hub look as if it had been written an hour ago: one look goes by the clock.
    async fn age_records(&self) -> Result<()>;
}

impl Unowned for Stage {
    async fn counts_unowned(&self, wanted: &str) -> Result<()> {
        let line = format!("{METRIC} {wanted}");
        wait_for(&line, LIMIT, async || {
            Ok(self
                .hub()
                .metrics()
                .await?
                .lines()
                .any(|l| l == line)
                .then_some(()))
        })
        .await
    }

    async fn unowned(&self, as_admin: bool) -> Result<Value> {
        let identity = if as_admin {
            self.plane.admin().kubeconfig()?
        } else {
            self.hub_user.kubeconfig()?
        };
        let mut command = Command::new(programs::hub());
        command
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env("KUBECONFIG", identity)
            .args(["preflight", "--output=json"])
            .arg(format!("--rendering-namespace={}", self.scope.rendering))
            .arg(format!("--shard-name={}", self.scope.shard))
            .arg(format!("--watch-namespaces={}", self.scope.tenant));
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout)?;
        let found = all.into_iter().find(|f| f["check"] == "unowned-namespaces");
        found.context("the check is among them")
    }

    async fn age_records(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.admin.clone(), &self.scope.rendering);
        let own = format!("renderhub-{}", self.hub_id().await?);
        for lease in leases.list(&ListParams::default()).await? {
            if lease.name_any() != own {
                let old = Patch::Merge(json!({"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}));
                leases
                    .patch(&lease.name_any(), &PatchParams::default(), &old)
                    .await?;
            }
        }
        Ok(())
    }
}

/// Between the two steps of a move, and when a hub goes for good.
#[tokio::test]
async fn a_namespace_that_no_hub_serves_is_counted_and_named() -> Result<()> {
    let mut two = Two::new("unowned", &["--unowned-grace=2s", "--gc-interval=1s"]).await?;
    let namespace = two.moving.scope.tenant.clone();
    two.from.counts_unowned("0").await?;
    let found = two.to.unowned(false).await?;
    ensure!(found["result"] == "ok", "{found}");

    // The first hub gives it up and the second one does not have it yet: its record says what it served before.
    two.leave().await?;
    two.to.counts_unowned("1").await?;
    two.from.counts_unowned("1").await?;
    let log = two.to.hub().log();
    let lines = log
        .lines()
        .filter(|line| line.contains("no hub serves these namespaces"));
    ensure!(
        lines.filter(|line| line.contains(&namespace)).count() == 1,
        "{log}"
    );
    let found = two.to.unowned(false).await?;
    ensure!(found["result"] == "warning", "{found}");
    ensure!(
        found["what"]
            .as_str()
            .is_some_and(|what| what.contains(&namespace)),
        "{found}"
    );
    two.arrive().await?;
    two.from.counts_unowned("0").await?;

    // A hub that ends and does not come back leaves its namespaces without a hub.
    let own = two.from.scope.tenant.clone();
    ensure!(two.from.hub().sigterm(LIMIT).await?.code() == Some(0));
    two.to.counts_unowned("1").await?;
    let found = two.to.unowned(false).await?;
    ensure!(found["result"] == "ok", "it may be restarting: {found}");
    two.to.age_records().await?;
    let found = two.to.unowned(false).await?;
    ensure!(
        found["what"].as_str().is_some_and(|what| what.contains(&own)),
        "{found}"
    );
    two.passed();
    Ok(())
}

/// Where no record ever named it: its tasks do, for users who may list them; and the objects that they left, for every hub.
#[tokio::test]
async fn tasks_and_what_is_left_of_them_name_their_namespace() -> Result<()> {
    let two = Two::new("named", &["--unowned-grace=2s", "--gc-interval=1s"]).await?;
    let mut never = Stage::without_hub("never", &[]).await?;
    never.scope.rendering.clone_from(&two.from.scope.rendering);
    let named = |found: &Value, namespace: &str| {
        found["what"]
            .as_str()
            .is_some_and(|what| what.contains(namespace) || what.contains("more"))
    };
    never.submit(never.task("waits")).await?;
    let found = two.to.unowned(false).await?;
    ensure!(found["result"] == "ok", "{found}");
    let found = two.to.unowned(true).await?;
    ensure!(
        found["result"] == "warning" && named(&found, &never.scope.tenant),
        "{found}"
    );
    let task = never.submit(never.task("left")).await?;
    let own = two.to.hub_id().await?;
    let (_, cluster) = own.rsplit_once('-').context("an id has two parts")?;
    let uid = task.uid().unwrap_or_default();
    let marks = never.marks(&task, &format!("gone-{cluster}"), &uid);
    never.forge_secret(&job_name_of(&task), &marks).await?;
    two.to.counts_unowned("1").await?;
    let found = two.to.unowned(false).await?;
    ensure!(named(&found, &never.scope.tenant), "{found}");
    never.passed();
    two.passed();
    Ok(())
}
