//! Several instances of one hub, several hubs, and the Leases by which they know of each other.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::Api;
use renderhub::plan::preflight::RUNBOOK;
use renderhub_harness::{Hub, wait_for};
use serde_json::Value;

use super::{LIMIT, Stage};

/// Variable that names an instance.
pub const INSTANCE: &str = "RENDERHUB_INSTANCE_NAME";
/// What a hub says while it watches a record.
pub const WAITS: &str = "waiting until it is known whether this hub is alive";
/// What `/readyz` says of an instance that works.
pub const ACTIVE: &str = "ok (active)";
/// The answer of a standby.
pub const STANDBY: &str = "ok (standby)";

impl Stage {
    /// Starts an instance.
    pub fn spawn_instance(&mut self, name: &str) -> Result<Hub> {
        self.spawn_hub_with(&self.hub_user.kubeconfig()?, &[(INSTANCE, name)])
    }

    /// Starts an instance and waits until it is ready.
    pub async fn instance(&mut self, name: &str) -> Result<Hub> {
        let hub = self.spawn_instance(name)?;
        hub.wait_ready().await?;
        Ok(hub)
    }

    /// Starts an instance and waits until it is a standby.
    pub async fn standby(&mut self, name: &str) -> Result<Hub> {
        let hub = self.spawn_instance(name)?;
        until_says(&hub, STANDBY).await?;
        Ok(hub)
    }

    /// The Leases in the rendering namespace.
    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), &self.scope.rendering)
    }

    /// Name of one of the hub's Leases: the right to work without a suffix, else e.g. `.0` or `.standby-0`.
    pub async fn lease_name(&self, suffix: &str) -> Result<String> {
        Ok(format!("renderhub-{}{suffix}", self.hub_id().await?))
    }

    /// The hub's Lease of this suffix.
    pub async fn lease_at(&self, suffix: &str) -> Result<Lease> {
        Ok(self.leases().get(&self.lease_name(suffix).await?).await?)
    }

    /// The hub's right to work.
    pub async fn lease(&self) -> Result<Lease> {
        self.lease_at("").await
    }

    /// Who holds the Lease of this suffix.
    pub async fn holder_at(&self, suffix: &str) -> Result<Option<String>> {
        let lease = self.lease_at(suffix).await?;
        Ok(lease.spec.and_then(|spec| spec.holder_identity))
    }

    /// Who has the right to work.
    pub async fn holder(&self) -> Result<Option<String>> {
        self.holder_at("").await
    }

    /// Another hub of the first one's neighbourhood: the same rendering namespace, these namespaces.
    pub async fn neighbour(&self, prefix: &str, tenant: &str, flags: &[&str]) -> Result<Self> {
        let mut other = Self::without_hub(prefix, flags).await?;
        other.scope.rendering.clone_from(&self.scope.rendering);
        tenant.clone_into(&mut other.scope.tenant);
        other.give_rights(&[]).await?;
        Ok(other)
    }
}

/// Waits until `/readyz` says this, and says when it was seen.
pub async fn until_says(hub: &Hub, text: &str) -> Result<Instant> {
    let what = format!("/readyz to say {text}");
    wait_for(&what, LIMIT, async || {
        ensure!(hub.exit_status().is_none(), "it has ended: {}", hub.log());
        let (code, said) = hub.get("/readyz").await?;
        Ok((code == 200 && said == text).then(Instant::now))
    })
    .await
}

/// Waits until the record is written again.
pub async fn until_renewed(stage: &Stage) -> Result<()> {
    let before = stage.lease().await?.resource_version();
    wait_for("the Lease to be renewed", LIMIT, async || {
        Ok((stage.lease().await?.resource_version() != before).then_some(()))
    })
    .await
}

/// Findings in a hub's log at this level: check, message, fix. Each must lead to its place in the runbook.
pub fn findings(hub: &Hub, level: &str) -> Result<Vec<(String, String, String)>> {
    let mut found = Vec::new();
    for line in hub.log().lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        if line["level"] == level && !line["check"].is_null() {
            ensure!(text("page") == format!("{RUNBOOK}#{}", text("check")), "{line}");
            found.push((text("check"), text("message"), text("fix")));
        }
    }
    Ok(found)
}

/// Waits for the end of a hub that refuses to start for exactly these checks; returns its log.
pub async fn refused(hub: &Hub, checks: &[&str]) -> Result<String> {
    let status = hub.wait_exit(LIMIT).await?;
    let found = findings(hub, "ERROR")?;
    let named: Vec<&str> = found.iter().map(|(check, ..)| check.as_str()).collect();
    ensure!(named == checks, "{checks:?} expected:\n{}", hub.log());
    ensure!(status.code() == Some(1), "it ended with {status}");
    ensure!(
        found
            .iter()
            .all(|(_, message, fix)| message.starts_with("refused: ") && !fix.is_empty())
    );
    let said = found.iter().map(|(_, message, fix)| format!("{message} {fix}"));
    Ok(said.collect::<Vec<_>>().join("\n"))
}
