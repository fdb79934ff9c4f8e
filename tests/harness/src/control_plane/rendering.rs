//! A rendering namespace as a platform team would make it: a hub starts in no other.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{Api, Client};
use serde_json::json;

use super::{ControlPlane, make_namespace};
use crate::{apply, rundir, wait_for};

/// How long the quota controller may take to count a new quota's pods for the first time.
const QUOTA_LIMIT: Duration = Duration::from_secs(60);

impl ControlPlane {
    /// Creates a rendering namespace with a unique name: it enforces `restricted`, denies traffic by default and has a quota.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn rendering_namespace(&self, prefix: &str) -> Result<String> {
        let name = format!("{prefix}-{}", rundir::random_hex(4)?);
        make(&self.admin.client().await?, &name).await?;
        Ok(name)
    }
}

/// Makes the rendering namespace of this name.
pub(super) async fn make(client: &Client, name: &str) -> Result<()> {
    make_namespace(client, name).await?;
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let label =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let deny = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "default-deny", "namespace": name},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    });
    // Far more than a test makes: a quota is there to be seen, not to be hit.
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "renderers", "namespace": name}, "spec": {"hard": {"pods": "100000"}},
    });
    for object in [label, deny, quota] {
        apply::object(client, object).await?;
    }
    // Until it is counted the API server refuses every pod.
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), name);
    wait_for("the quota to be counted", QUOTA_LIMIT, async || {
        let status = quotas.get("renderers").await?.status.unwrap_or_default();
        Ok(status
            .used
            .is_some_and(|used| used.contains_key("pods"))
            .then_some(()))
    })
    .await
}
