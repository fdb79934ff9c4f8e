//! What a hub does with another cluster, so that it needs each right that is about one.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use renderhub::api::conditions::ConditionType;
use renderhub_harness::Remote;

use super::*;
use support::job_name_of;

/// The flag that lets a hub reach it.
pub const REACH: &str = "--cluster-allow-cidrs=127.0.0.0/8";

/// Where Jobs run that do not run on the hub's own.
async fn other_plane() -> Result<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || ControlPlane::builder().without_job_controller().start();
    PLANE.get_or_try_init(start).await
}

/// A task that runs on another cluster, which is lost meanwhile and comes back.
pub async fn render(stage: &Stage, kubeconfigs: &str) -> Result<()> {
    let remote = Remote::make(other_plane().await?, "elsewhere").await?;
    let name = stage.scope.shard.as_str();
    register(stage, &remote, kubeconfigs, name).await?;
    let spec = json!({"clusterName": name, "registryRef": {"name": name}});
    let task = stage.submit_with("elsewhere", spec).await?;
    let there = remote.plane.admin().client().await?;
    let jobs: Api<Job> = Api::namespaced(there.clone(), &remote.namespace);
    let job = job_name_of(&task);
    let job = wait_for("the Job elsewhere", LIMIT, async || {
        Ok(jobs.get_opt(&job).await?)
    })
    .await?;
    stage
        .condition(&task, ConditionType::JobScheduled, "True", "JobScheduled")
        .await?;
    remote.plane.stop_api_server()?;
    losses(stage, 1).await?;
    remote.plane.start_api_server().await?;
    losses(stage, 0).await?;
    let said = json!({"phase": "Push", "reason": "Pushed", "digest": DIGEST}).to_string();
    finish::end_job(&there, &job, &Outcome::Complete(said)).await?;
    stage
        .condition(&task, ConditionType::JobSucceeded, "True", "JobSucceeded")
        .await?;
    Ok(())
}

/// The cluster, and a registry whose certificates go along with the Job.
async fn register(stage: &Stage, remote: &Remote<'_>, kubeconfigs: &str, name: &str) -> Result<()> {
    let kubeconfig = remote.kubeconfig().await?;
    let mut cluster = remote.render_cluster(name, name);
    cluster["spec"]["registries"] = json!([name]);
    let authorities = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "authorities", "namespace": stage.scope.rendering},
        "data": {"ca.pem": stage.plane.ca_pem()},
    });
    let registry = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": name},
        "spec": {
            "hostname": "registry.test:5000", "pushSecretRef": {"name": "push"}, "verify": "None",
            "caConfigMapRef": {"name": "authorities", "key": "ca.pem"},
            "allowedNamespaces": [stage.scope.tenant],
        },
    });
    let secret = remote.secret(kubeconfigs, name, &kubeconfig);
    for object in [secret, cluster, authorities, registry] {
        apply::object(&stage.admin, object).await?;
    }
    Ok(())
}

/// Waits until the hub remembers so many lost clusters.
async fn losses(stage: &Stage, wanted: usize) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
    let name = format!("renderhub-ledger-{}", stage.hub_id().await?);
    wait_for(&format!("{wanted} losses in the ledger"), LIMIT, async || {
        let data = maps.get_opt(&name).await?.and_then(|map| map.data);
        let keys = data.iter().flat_map(std::collections::BTreeMap::keys);
        let known = keys.filter(|key| key.starts_with("lost.")).count();
        Ok((known == wanted).then_some(()))
    })
    .await
}
