//! The same where the Jobs run on another cluster.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled};
use renderhub::api::labels::HUB_ID;
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::remote::ACCOUNT;
use renderhub_harness::wait_for;
use serde_json::json;

use crate::Two;
use support::away::{Cluster, LOOPBACK, away};
use support::{LIMIT, job_name_of};

impl Two {
    async fn started_at(&self, name: &str, cluster: &Cluster<'_>) -> Result<RenderTask> {
        let task = self.moving.submit_to(name, cluster).await?;
        self.moving
            .condition(&task, JobScheduled, "True", "JobScheduled")
            .await?;
        Ok(task)
    }

    async fn succeeds_at(&self, task: &RenderTask, cluster: &Cluster<'_>) -> Result<()> {
        cluster.cleared(task).await?;
        self.succeeds(task).await
    }
}

async fn fail(cluster: &Cluster<'_>, task: &RenderTask) -> Result<()> {
    let job = cluster.job_of(task).await?;
    let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    finish::pod_for_job(&cluster.admin, &job, &[exit]).await?;
    let (namespace, name) = (&cluster.remote.namespace, job.name_any());
    finish::fail_job(&cluster.admin, namespace, &name, "PodFailurePolicy").await
}

async fn creates(cluster: &Cluster<'_>) -> Result<usize> {
    let writes = cluster.writes().await?;
    Ok(writes.iter().filter(|write| *write == "create jobs").count())
}

fn hub_of(object: &impl Resource) -> Option<&String> {
    object.labels().get(HUB_ID)
}

/// Holds: C5, M5.
#[tokio::test]
async fn what_one_hub_started_on_another_cluster_another_hub_finishes() -> Result<()> {
    let mut two = Two::new("abroad", &[LOOPBACK, "--gc-interval=1h"]).await?;
    let cluster = two.moving.register(away().await?, json!({})).await?;
    let running = two.started_at("running", &cluster).await?;
    let ended = two.started_at("ended", &cluster).await?;
    let broken = two.started_at("broken", &cluster).await?;
    let deleted = two.started_at("deleted", &cluster).await?;
    let before = cluster.job_of(&running).await?;
    let left = two.leave().await?;
    cluster.complete(&ended).await?;
    fail(&cluster, &broken).await?;
    two.moving
        .tasks()
        .delete("deleted", &DeleteParams::default())
        .await?;
    two.arrive().await?;

    two.succeeds_at(&ended, &cluster).await?;
    let status = two
        .moving
        .condition(&broken, JobFailed, "True", "JobFailed")
        .await?;
    assert_eq!(status.failure.and_then(|failure| failure.exit_code), Some(2));
    let id = two.to.hub_id().await?;
    wait_for("the Job there to be taken over", LIMIT, async || {
        let job = cluster.job_of(&running).await?;
        Ok((hub_of(&job) == Some(&id) && job.uid() == before.uid()).then_some(()))
    })
    .await?;
    cluster.complete(&running).await?;
    two.succeeds_at(&running, &cluster).await?;
    cluster.cleared(&deleted).await?;
    two.moving.delete(&broken).await?;
    cluster.cleared(&broken).await?;
    assert_eq!(creates(&cluster).await?, 4, "one Job a task");
    two.kept_to_their_own(left).await?;
    two.passed();
    Ok(())
}

/// An owner who has not granted the right yet: nothing is lost, and the result comes with a sweep.
///
/// Holds: C5.
#[tokio::test]
async fn where_a_job_cannot_be_taken_over_its_result_comes_all_the_same() -> Result<()> {
    let mut two = Two::new("ungranted", &[LOOPBACK, "--gc-interval=1s"]).await?;
    let cluster = two.moving.register(away().await?, json!({})).await?;
    let roles: Api<Role> = Api::namespaced(cluster.admin.clone(), &cluster.remote.namespace);
    let mut role = roles.get(ACCOUNT).await?;
    for rule in role.rules.iter_mut().flatten() {
        rule.verbs.retain(|verb| verb != "patch");
    }
    roles.replace(ACCOUNT, &PostParams::default(), &role).await?;
    let task = two.started_at("shop", &cluster).await?;
    let before = cluster.job_of(&task).await?;
    two.leave().await?;
    two.arrive().await?;
    wait_for("the hub to be refused", LIMIT, async || {
        let requests = cluster.requests().await?;
        let refused = requests
            .iter()
            .any(|e| e.action() == "patch jobs" && e.code == 403);
        Ok(refused.then_some(()))
    })
    .await?;
    cluster.complete(&task).await?;
    two.succeeds_at(&task, &cluster).await?;
    let jobs = cluster.jobs().get_opt(&before.name_any()).await?;
    assert!(jobs.is_none() && creates(&cluster).await? == 1);
    two.passed();
    Ok(())
}

/// What is left there of a task that is gone goes with a sweep of who serves its namespace, but nothing that a hub of another
/// cluster made.
///
/// Holds: C5.
#[tokio::test]
async fn what_is_left_there_goes_and_what_is_another_clusters_stays() -> Result<()> {
    let mut two = Two::new("leftover", &[LOOPBACK, "--gc-interval=1s"]).await?;
    let cluster = two.moving.register(away().await?, json!({})).await?;
    let gone = two.started_at("gone", &cluster).await?;
    let other = two.started_at("other", &cluster).await?;
    two.leave().await?;
    for task in [&gone, &other] {
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let (tasks, name) = (two.moving.tasks(), task.name_any());
        tasks.patch(&name, &PatchParams::default(), &none).await?;
        tasks.delete(&name, &DeleteParams::default()).await?;
    }
    let strangers = Patch::Merge(json!({"metadata": {"labels": {HUB_ID: "from-0123abcd"}}}));
    let (jobs, name) = (cluster.jobs(), job_name_of(&other));
    jobs.patch(&name, &PatchParams::default(), &strangers).await?;
    cluster
        .secrets()
        .patch(&name, &PatchParams::default(), &strangers)
        .await?;
    // The first hub is connected too and leaves it alone, because it cannot say that the task is gone.
    two.from.barrier().await?;
    assert!(cluster.jobs().get_opt(&job_name_of(&gone)).await?.is_some());
    two.arrive().await?;
    // A cluster is watched while a task has objects there.
    let stays = two.started_at("stays", &cluster).await?;
    cluster.cleared(&gone).await?;
    assert!(cluster.jobs().get_opt(&name).await?.is_some());
    assert!(cluster.secrets().get_opt(&name).await?.is_some());
    cluster.complete(&stays).await?;
    two.succeeds_at(&stays, &cluster).await?;
    two.passed();
    Ok(())
}
