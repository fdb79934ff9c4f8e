//! Clusters that tenants bring, as `examples/own-cluster` says.

use anyhow::Result;
use renderhub::api::RenderTask;
use renderhub_harness::audit::Mark;
use renderhub_harness::remote::{ACCOUNT, Remote, example, examples};
use renderhub_harness::{ControlPlane, apply, rundir};
use serde_json::{Value, json};

use super::Stage;
use super::away::Cluster;
use super::tenant::BUILDER;

/// Opens the gate for kubeconfigs of the task's own namespace.
pub const OWN_GATE: &str = "--feature-gates=ExternalClusterReference=true";
/// Opens it for those of other namespaces too.
pub const CROSS_GATE: &str = "--feature-gates=ExternalClusterReferenceCrossNamespace=true";

impl Stage {
    /// A stage whose tenant has a registry of its own and the account of the example, which may read one kubeconfig.
    pub async fn with_builder(prefix: &str, flags: &[&str]) -> Result<Self> {
        let stage = Self::with_flags(prefix, flags).await?;
        let tenant = stage.scope.tenant.clone();
        let text = std::fs::read_to_string(examples().join("own-cluster/hub.yaml"))?;
        let rights: Vec<_> = text.split("\n---\n").take(3).collect();
        stage
            .plane
            .apply_yaml(&rights.join("\n---\n").replace("team-a", &tenant))
            .await?;
        stage.let_hub_become(&tenant, BUILDER, "create").await?;
        stage.make_own_secret(&tenant, "own-push").await?;
        stage.make_own_registry(&tenant, "own").await?;
        Ok(stage)
    }

    /// Prepares a cluster as the example does for a tenant, and puts the kubeconfig where the task finds it.
    pub async fn bring<'a>(&self, plane: &'a ControlPlane, secret_namespace: &str) -> Result<Cluster<'a>> {
        let namespace = format!("own-{}", rundir::random_hex(4)?);
        let start = plane.audit()?.mark().await?;
        let yaml = example("own-cluster/cluster.yaml", &namespace)?;
        plane
            .apply_yaml(&yaml.replace("team-a", &self.scope.tenant))
            .await?;
        let kubeconfig = plane
            .service_account(&namespace, ACCOUNT)
            .await?
            .kubeconfig_text()?;
        self.put_own_kubeconfig(secret_namespace, &kubeconfig).await?;
        Ok(Cluster {
            admin: plane.admin().client().await?,
            name: "own-cluster".to_owned(),
            remote: Remote { plane, namespace },
            start,
        })
    }

    /// Puts a kubeconfig where the task finds it.
    pub async fn put_own_kubeconfig(&self, namespace: &str, kubeconfig: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "own-cluster", "namespace": namespace},
            "stringData": {"value": kubeconfig},
        });
        apply::object(&self.admin, secret).await?;
        Ok(())
    }

    /// Submits a task for the tenant's own cluster, with these fields of its spec laid over.
    pub async fn submit_own(&self, name: &str, there: &str, spec: Value) -> Result<RenderTask> {
        let mut wanted = json!({
            "kubeConfig": {"secretRef": {"name": "own-cluster"}}, "deploymentNamespace": there,
            "serviceAccountName": BUILDER, "registryRef": {"kind": "Registry", "name": "own"},
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            wanted[key] = value.clone();
        }
        self.submit_with(name, wanted).await
    }

    /// How often the kubeconfig was read, and by which users.
    pub async fn readers(&self) -> Result<Vec<String>> {
        let events = self.plane.audit()?.since(Mark::START).await?;
        let of_tenant = events.into_iter().filter(|e| e.namespace == self.scope.tenant);
        let reads = of_tenant.filter(|e| e.name == "own-cluster" && !e.is_write());
        Ok(reads.map(|e| e.impersonated_user.unwrap_or(e.user)).collect())
    }

    /// Lets the tenant's account read the kubeconfig in another namespace, and tasks refer to it.
    pub async fn lend(&self, owner: &str) -> Result<()> {
        let right = json!({
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own-cluster"], "verbs": ["get", "list", "watch"],
        });
        let reader = json!({"kind": "ServiceAccount", "name": BUILDER, "namespace": self.scope.tenant});
        self.bind(owner, "lend", &right, &reader).await?;
        let grant = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "ReferenceGrant",
            "metadata": {"name": "lend", "namespace": owner},
            "spec": {
                "from": [{"group": "renderhub.dev", "kind": "RenderTask", "namespace": self.scope.tenant}],
                "to": [{"group": "", "kind": "Secret", "name": "own-cluster"}],
            },
        });
        apply::object(&self.admin, grant).await?;
        Ok(())
    }
}
