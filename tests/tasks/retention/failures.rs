//! How many failed Jobs a namespace keeps, and how long at most: those of one tenant leave room for the tasks of others.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobSucceeded, Ready};
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::wait_for;
use serde_json::json;

use support::{LIMIT, Stage, job_name_of};

/// Failed Jobs that are kept of each namespace.
const KEPT: usize = 2;
/// Tasks that fail, one after the other.
const FAILING: usize = 5;
/// Jobs that may exist: those of one tenant that are kept, one that runs, and one of a dry run, which a quota counts too.
const ROOM: usize = KEPT + 2;

/// Keeps so many Jobs in the rendering namespace, as the chart's quota does with a larger number.
async fn quota(stage: &Stage) -> Result<Api<ResourceQuota>> {
    let quotas: Api<ResourceQuota> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
    let quota = serde_json::from_value(json!({
        "metadata": {"name": "renderhub"}, "spec": {"hard": {"count/jobs.batch": ROOM.to_string()}},
    }))?;
    quotas.create(&PostParams::default(), &quota).await?;
    Ok(quotas)
}

/// Waits until the quota counts at most so many Jobs; Kubernetes counts what goes a little later.
async fn counted(quotas: &Api<ResourceQuota>, most: usize) -> Result<()> {
    wait_for("the quota to count what is there", LIMIT, async || {
        let status = quotas.get("renderhub").await?.status.unwrap_or_default();
        let used = status.used.and_then(|used| used.get("count/jobs.batch").cloned());
        let used: Option<usize> = used.and_then(|used| used.0.parse().ok());
        Ok(used.filter(|used| *used <= most).map(|_| ()))
    })
    .await
}

/// Waits for the next second, since ends are recorded in seconds.
async fn next_second() -> Result<()> {
    let now = Timestamp::now().as_second();
    wait_for("the next second", LIMIT, async || {
        Ok((Timestamp::now().as_second() > now).then_some(()))
    })
    .await
}

async fn fails(stage: &Stage, name: &str) -> Result<RenderTask> {
    let task = stage.submit_with(name, json!({"failedJobTTL": 3600})).await?;
    let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    stage.fail(&task, exit, "PodFailurePolicy").await?;
    stage.condition(&task, JobFailed, "True", "JobFailed").await?;
    next_second().await?;
    Ok(task)
}

/// Runs a task of another namespace than the stage's to its end.
async fn other_succeeds(stage: &Stage, other: &str) -> Result<()> {
    let mut task = stage.task("other");
    task["metadata"]["namespace"] = json!(other);
    task["spec"]["repository"] = json!(format!("{other}/shop"));
    let of_other: Api<RenderTask> = Api::namespaced(stage.admin.clone(), other);
    let task = of_other
        .create(&PostParams::default(), &serde_json::from_value(task)?)
        .await?;
    stage.complete(&task).await?;
    wait_for("the other tenant's task to succeed", LIMIT, async || {
        let status = of_other.get("other").await?.status.unwrap_or_default();
        Ok(support::has(&status, JobSucceeded, "True", "JobSucceeded").then_some(()))
    })
    .await
}

/// Asserts that the tasks have failed, and started once.
async fn are_as_they_ended(stage: &Stage, failed: &[RenderTask]) -> Result<()> {
    for task in failed {
        let status = stage
            .tasks()
            .get(&task.name_any())
            .await?
            .status
            .context("a status")?;
        assert!(support::has(&status, JobFailed, "True", "JobFailed"));
        assert!(status.failure.is_some() && status.job_ref.is_some());
        let name = job_name_of(task);
        for made in ["create jobs", "create secrets"] {
            assert_eq!(stage.successes(made, &name).await?, 1, "{made} {name}");
        }
    }
    Ok(())
}

/// Holds: B4, D3.
#[tokio::test]
async fn the_failures_of_one_tenant_leave_room_for_the_tasks_of_another() -> Result<()> {
    let kept = format!("--keep-failed-jobs-per-namespace={KEPT}");
    let mut stage = Stage::without_hub("crowded", &[&kept]).await?;
    let other = stage.plane.namespace("other").await?;
    stage.also_watch(&other).await?;
    stage
        .put_registry(json!({"allowedNamespaces": [stage.scope.tenant, other]}))
        .await?;
    let quotas = quota(&stage).await?;
    counted(&quotas, 0).await?;
    stage.start_hub().await?;
    let mut failed = Vec::new();
    for number in 0..FAILING {
        failed.push(fails(&stage, &format!("failed-{number}")).await?);
        // The oldest goes first, and no other.
        if let Some(oldest) = number.checked_sub(KEPT) {
            stage.cleared(&failed[oldest]).await?;
        }
        for task in failed.iter().rev().take(KEPT) {
            assert_eq!(stage.objects(task).await?, (true, true), "{}", task.name_any());
        }
        counted(&quotas, KEPT).await?;
    }

    other_succeeds(&stage, &other).await?;
    counted(&quotas, KEPT).await?;

    // What was cleared early does not come back, and its result stays.
    stage.restart_hub().await?;
    stage.barrier().await?;
    are_as_they_ended(&stage, &failed).await?;
    for (number, task) in failed.iter().enumerate() {
        let is_kept = number + KEPT >= FAILING;
        assert_eq!(stage.objects(task).await?, (is_kept, is_kept), "{number}");
    }
    stage.passed();
    Ok(())
}

/// Holds: B4.
#[tokio::test]
async fn a_failed_job_is_kept_no_longer_than_the_platform_says_and_the_task_says_so() -> Result<()> {
    let stage = Stage::with_flags("longest", &["--max-failed-job-ttl=2s"]).await?;
    let task = stage
        .submit_with("shop", json!({"failedJobTTL": 604_800}))
        .await?;
    let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    stage.fail(&task, exit, "PodFailurePolicy").await?;
    let status = stage.condition(&task, JobFailed, "True", "JobFailed").await?;
    let note = "; failedJobTTL is larger than the platform's maximum of 2 seconds, which counts";
    for type_ in [JobFailed, Ready] {
        let condition = status.conditions.iter().find(|c| c.type_ == type_.as_str());
        let message = &condition.context("the condition")?.message;
        assert!(message.ends_with(note), "{message}");
    }
    stage.cleared(&task).await?;
    let short = stage.submit_with("short", json!({"failedJobTTL": 1})).await?;
    let job = stage.job_of(&short).await?;
    finish::fail_job(
        &stage.admin,
        &stage.scope.rendering,
        &job.name_any(),
        "BackoffLimitExceeded",
    )
    .await?;
    let status = stage.condition(&short, JobFailed, "True", "JobFailed").await?;
    assert!(
        status
            .conditions
            .iter()
            .all(|c| !c.message.contains("failedJobTTL"))
    );
    stage.passed();
    Ok(())
}
