//! What becomes of the tasks that run on a cluster when its `RenderCluster` is deleted.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub::api::{RenderTask, RenderTaskStatus};
use renderhub_harness::wait_for;
use serde_json::json;
use support::away::{Cluster, LOOPBACK, away};
use support::proxy::{Proxy, Stop};
use support::{LIMIT, Stage, has};

/// Submits tasks for a cluster that is gone until one finds none: the hub may see a task before it sees the deletion.
async fn until_refused(stage: &Stage, cluster: &Cluster<'_>) -> Result<()> {
    let number = AtomicU32::new(0);
    wait_for("a task that finds no cluster", LIMIT, async || {
        let name = format!("late-{}", number.fetch_add(1, Ordering::Relaxed));
        let late = stage.submit_to(&name, cluster).await?;
        let is_refused = |status: &RenderTaskStatus| has(status, JobScheduled, "False", "ClusterNotFound");
        let looked_at = stage
            .status_when(&late, "a decision", |status| {
                is_refused(status) || has(status, JobScheduled, "True", "JobScheduled")
            })
            .await?;
        if is_refused(&looked_at) {
            return Ok(Some(()));
        }
        cluster.complete(&late).await?;
        Ok(None)
    })
    .await
}

#[tokio::test]
async fn a_cluster_that_is_removed_is_drained() -> Result<()> {
    let stage = Stage::with_flags("drained", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let task = runs_on_removed(&stage, &cluster).await?;
    assert!(stage.hub().metrics().await?.contains(&series(&cluster)));
    is_drained(&stage, &cluster, &task).await?;
    stage.passed();
    Ok(())
}

/// A cluster is removed before the hub has the answer to the status that says that a Job runs there.
#[tokio::test]
async fn a_cluster_that_is_removed_as_a_job_starts_is_drained_too() -> Result<()> {
    let mut stage = Stage::without_hub("removed", &[LOOPBACK]).await?;
    stage.make_registry().await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    hub.wait_ready().await?;
    stage.hub = Some(hub);
    let cluster = stage.register(away().await?, json!({})).await?;
    // From now on the hub knows the cluster, so that the next task starts there without a wait for it.
    let first = stage.submit_to("first", &cluster).await?;
    cluster.complete(&first).await?;
    cluster.cleared(&first).await?;
    proxy.stop_when(Stop::After, |_, write| {
        write.path.contains("/second/") && write.status()["jobRef"].is_object()
    });
    let second = stage.submit_to("second", &cluster).await?;
    proxy.stopped().await?;
    stage
        .clusters()
        .delete(&cluster.name, &DeleteParams::default())
        .await?;
    // Clusters are seen in the order of their changes: once a later one is connected, the deletion was seen.
    let later = stage.register(away().await?, json!({})).await?;
    stage.connected(&later.name, "True", "Connected").await?;
    proxy.release();
    is_drained(&stage, &cluster, &second).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn without_its_kubeconfig_what_runs_on_a_removed_cluster_is_lost() -> Result<()> {
    for restarts in [true, false] {
        let mut stage = Stage::with_flags("keyless", &[LOOPBACK, "--cluster-lost-timeout=2s"]).await?;
        let cluster = stage.register(away().await?, json!({})).await?;
        let task = runs_on_removed(&stage, &cluster).await?;
        if restarts {
            stage.restart_hub().await?;
        } else {
            let secrets: Api<Secret> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
            secrets.delete(&cluster.name, &DeleteParams::default()).await?;
        }
        stage.condition(&task, JobFailed, "True", "JobLost").await?;
        stage.passed();
    }
    Ok(())
}

#[tokio::test]
async fn what_runs_on_a_removed_cluster_goes_on_when_it_is_back_after_a_restart() -> Result<()> {
    let mut stage = Stage::with_flags("back", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let mut again = stage.clusters().get(&cluster.name).await?;
    let task = runs_on_removed(&stage, &cluster).await?;
    stage.restart_hub().await?;
    (again.metadata.uid, again.metadata.resource_version) = (None, None);
    stage.clusters().create(&PostParams::default(), &again).await?;
    cluster.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    cluster.cleared(&task).await?;
    stage.passed();
    Ok(())
}

/// A task that runs on a cluster whose `RenderCluster` was deleted, which the hub has seen.
async fn runs_on_removed(stage: &Stage, cluster: &Cluster<'_>) -> Result<RenderTask> {
    let task = stage.submit_to("running", cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    stage
        .clusters()
        .delete(&cluster.name, &DeleteParams::default())
        .await?;
    Box::pin(until_refused(stage, cluster)).await?;
    Ok(task)
}

/// A task that runs on a cluster that was removed ends as on any other, and then nothing is left of the cluster.
async fn is_drained(stage: &Stage, cluster: &Cluster<'_>, task: &RenderTask) -> Result<()> {
    cluster.complete(task).await?;
    stage
        .condition(task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    cluster.cleared(task).await?;
    wait_for("nothing to be said of the cluster", LIMIT, async || {
        let metrics = stage.hub().metrics().await?;
        Ok((!metrics.contains(&series(cluster))).then_some(()))
    })
    .await
}

/// The label of every metric of a cluster.
fn series(cluster: &Cluster<'_>) -> String {
    format!("cluster=\"{}\"", cluster.name)
}
