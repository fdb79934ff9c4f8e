//! Clusters that are not the hub's: one more control plane a test binary, one namespace there a test.

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use renderhub::api::{ClusterRegistry, RenderCluster, RenderTask};
use renderhub_harness::audit::{Event, Mark};
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::remote::Remote;
use renderhub_harness::{AuditLevel, ControlPlane, apply, wait_for};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{DIGEST, LIMIT, Stage, job_name_of, of_task};

/// Lets a hub reach the control planes of tests, which are on loopback.
pub const LOOPBACK: &str = "--cluster-allow-cidrs=127.0.0.0/8";

static AWAY: OnceCell<ControlPlane> = OnceCell::const_new();

/// The other control plane of this test binary, for tests that leave it as it is.
///
/// # Errors
/// If it does not start.
pub async fn away() -> Result<&'static ControlPlane> {
    AWAY.get_or_try_init(another).await
}

/// A control plane for one test alone, which it may end.
///
/// # Errors
/// If it does not start.
pub async fn another() -> Result<ControlPlane> {
    ControlPlane::builder()
        .with_audit(AuditLevel::Metadata)
        .without_job_controller()
        .start()
        .await
}

/// A namespace on another cluster, and the `RenderCluster` of the stage's hub that leads there.
pub struct Cluster<'a> {
    /// The namespace, and the account there.
    pub remote: Remote<'a>,
    /// A client of the administrator there.
    pub admin: Client,
    /// Name of the `RenderCluster`.
    pub name: String,
    /// Where the audit log there was before anything came from the hub.
    pub start: Mark,
}

impl Stage {
    /// Registers a namespace of another cluster; `spec` is laid over one that is for the tenant and its registry.
    pub async fn register<'a>(&self, plane: &'a ControlPlane, spec: Value) -> Result<Cluster<'a>> {
        let remote = Remote::make(plane, "renders").await?;
        let name = remote.namespace.clone();
        let start = plane.audit()?.mark().await?;
        self.put_kubeconfig(&name, &remote.kubeconfig().await?).await?;
        let mut cluster = remote.render_cluster(&name, &name);
        cluster["spec"]["allowedNamespaces"] = json!([self.scope.tenant]);
        cluster["spec"]["registries"] = json!([self.scope.tenant]);
        for (key, value) in spec.as_object().context("no object")? {
            cluster["spec"][key] = value.clone();
        }
        apply::object(&self.admin, cluster).await?;
        // Their registry is nowhere; what it must confirm has tests of its own.
        let registries: Api<ClusterRegistry> = Api::all(self.admin.clone());
        let believed = Patch::Merge(json!({"spec": {"verify": "None"}}));
        registries
            .patch(&self.scope.tenant, &PatchParams::default(), &believed)
            .await?;
        Ok(Cluster {
            admin: plane.admin().client().await?,
            remote,
            name,
            start,
        })
    }

    /// Puts a kubeconfig where the hub looks for those of `RenderClusters`.
    pub async fn put_kubeconfig(&self, name: &str, kubeconfig: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": self.scope.rendering},
            "stringData": {"value": kubeconfig},
        });
        apply::object(&self.admin, secret).await?;
        Ok(())
    }

    /// All `RenderClusters`.
    pub fn clusters(&self) -> Api<RenderCluster> {
        Api::all(self.admin.clone())
    }

    /// Changes fields of a `RenderCluster`.
    pub async fn change_cluster(&self, name: &str, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.clusters()
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Waits until the condition `Connected` of a cluster is so.
    pub async fn connected(&self, name: &str, status: &str, reason: &str) -> Result<RenderCluster> {
        let what = format!("the cluster to be Connected={status} with reason {reason}");
        wait_for(&what, LIMIT, async || {
            let Some(cluster) = self.clusters().get_opt(name).await? else {
                return Ok(None);
            };
            let conditions = cluster.status.iter().flat_map(|s| &s.conditions);
            let mut connected = conditions.filter(|c| c.type_ == "Connected");
            let is_so = connected.any(|c| c.status == status && c.reason == reason);
            Ok(is_so.then_some(cluster))
        })
        .await
    }

    /// Submits a task for a cluster.
    pub async fn submit_to(&self, name: &str, cluster: &Cluster<'_>) -> Result<RenderTask> {
        self.submit_with(name, json!({"clusterName": cluster.name})).await
    }

    /// What the hub wrote down of clusters, by key.
    pub async fn ledger(&self) -> Result<Vec<(String, Value)>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.admin.clone(), &self.scope.rendering);
        let all = maps.list(&ListParams::default()).await?.items;
        let ledger = all
            .into_iter()
            .find(|map| map.name_any().starts_with("renderhub-ledger-"));
        let data = ledger.and_then(|map| map.data).unwrap_or_default();
        data.into_iter()
            .map(|(key, text)| Ok((key, serde_json::from_str(&text)?)))
            .collect()
    }
}

impl Cluster<'_> {
    /// The Jobs there.
    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.admin.clone(), &self.remote.namespace)
    }

    /// The Secrets there.
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), &self.remote.namespace)
    }

    /// Waits for the task's Job there.
    pub async fn job_of(&self, task: &RenderTask) -> Result<Job> {
        let name = job_name_of(task);
        wait_for("the task's Job on the other cluster", LIMIT, async || {
            Ok(self.jobs().get_opt(&name).await?)
        })
        .await
    }

    /// Completes the task's Job there with a pod that reports the digest.
    pub async fn complete(&self, task: &RenderTask) -> Result<Job> {
        let job = self.job_of(task).await?;
        let message = json!({"phase": "Push", "reason": "Pushed", "digest": DIGEST}).to_string();
        finish::pod_for_job(&self.admin, &job, &[Exit::new("renderer", 0, message)]).await?;
        finish::complete_job(&self.admin, &self.remote.namespace, &job.name_any()).await?;
        Ok(job)
    }

    /// Waits until no Job and no config Secret of the task is there.
    pub async fn cleared(&self, task: &RenderTask) -> Result<()> {
        let of_task = of_task(task);
        wait_for(
            "the task's objects on the other cluster to be gone",
            LIMIT,
            async || {
                let jobs = self.jobs().list(&of_task).await?.items.len();
                let secrets = self.secrets().list(&of_task).await?.items.len();
                Ok((jobs + secrets == 0).then_some(()))
            },
        )
        .await
    }

    /// Removes the task's Job there as another client.
    pub async fn remove_job(&self, task: &RenderTask) -> Result<()> {
        let name = job_name_of(task);
        self.jobs().delete(&name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// What the kubeconfig's user asked for there since it was registered.
    pub async fn requests(&self) -> Result<Vec<Event>> {
        let events = self.remote.plane.audit()?.since(self.start).await?;
        let user = self.remote.user();
        Ok(events.into_iter().filter(|event| event.user == user).collect())
    }

    /// Writes of it. That it asked what it may do there is none: a review changes nothing, and is asked for where a new
    /// right was refused because the API server did not know it yet.
    pub async fn writes(&self) -> Result<Vec<String>> {
        let requests = self.requests().await?;
        Ok(requests
            .iter()
            .filter(|e| e.is_write() && e.group != "authorization.k8s.io")
            .map(Event::action)
            .collect())
    }
}
