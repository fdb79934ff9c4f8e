//! What one tenant fills on clusters costs no other tenant anything.

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::JobFailed;
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::wait_for;
use serde_json::json;

use super::support::away::{Cluster, LOOPBACK, away};
use super::support::{LIMIT, Stage};

impl Cluster<'_> {
    /// Fails the task's Job there.
    async fn fail(&self, task: &RenderTask) -> Result<()> {
        let job = self.job_of(task).await?;
        let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
        finish::pod_for_job(&self.admin, &job, &[exit]).await?;
        finish::fail_job(
            &self.admin,
            &self.remote.namespace,
            &job.name_any(),
            "PodFailurePolicy",
        )
        .await?;
        Ok(())
    }
}

/// Holds: B4.
#[tokio::test]
async fn a_cluster_keeps_the_newest_failures_of_a_namespace_and_the_hub_its_own() -> Result<()> {
    let flags = [LOOPBACK, "--keep-failed-jobs-per-namespace=1"];
    let stage = Stage::with_flags("kept-away", &flags).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let mut there = Vec::new();
    let here = stage.submit(stage.task("here")).await?;
    let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    stage.fail(&here, exit, "PodFailurePolicy").await?;
    stage.condition(&here, JobFailed, "True", "JobFailed").await?;
    for name in ["first", "second", "third"] {
        let task = stage.submit_to(name, &cluster).await?;
        cluster.fail(&task).await?;
        stage.condition(&task, JobFailed, "True", "JobFailed").await?;
        let ended = Timestamp::now().as_second();
        wait_for(
            "the next second, since ends are told in seconds",
            LIMIT,
            async || Ok((Timestamp::now().as_second() > ended).then_some(())),
        )
        .await?;
        there.push(task);
    }
    for task in &there[..2] {
        cluster.cleared(task).await?;
    }
    assert_eq!(cluster.jobs().list(&ListParams::default()).await?.items.len(), 1);
    cluster.job_of(&there[2]).await?;
    assert_eq!(stage.objects(&here).await?, (true, true));
    let made = cluster.writes().await?;
    assert_eq!(made.iter().filter(|w| *w == "create jobs").count(), 3, "{made:?}");
    stage.passed();
    Ok(())
}
