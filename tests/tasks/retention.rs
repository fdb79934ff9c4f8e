//! How long finished tasks are kept: measured from the recorded end by the hub's clock, also over restarts.

#[path = "retention/failures.rs"]
mod failures;
#[path = "retention/kept.rs"]
mod kept;
#[path = "retention/quota.rs"]
mod quota;

use anyhow::Result;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobSucceeded};
use renderhub::api::labels::FINALIZER;
use renderhub_harness::finish::Exit;
use renderhub_harness::wait_for;
use serde_json::json;
use support::careless::put_finalizers;
use support::{LIMIT, Stage, job_name_of};

/// Fails a task whose Job is kept for this time, and waits until that is recorded.
async fn failed_with_ttl(stage: &Stage, seconds: u32) -> Result<RenderTask> {
    let task = stage
        .submit_with("shop", json!({"failedJobTTL": seconds}))
        .await?;
    let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    stage.fail(&task, exit, "PodFailurePolicy").await?;
    stage.condition(&task, JobFailed, "True", "JobFailed").await?;
    Ok(task)
}

#[tokio::test]
async fn a_failed_job_is_kept_for_its_time_to_live_and_no_longer() -> Result<()> {
    let stage = Stage::new("ttl").await?;
    let task = failed_with_ttl(&stage, 4).await?;
    stage.cleared(&task).await?;
    let status = stage.tasks().get("shop").await?.status.unwrap_or_default();
    let ended = status.completion_time.expect("the end is recorded").0;
    let requests = stage.requests().await?;
    let deletes: Vec<_> = requests
        .iter()
        .filter(|e| e.action() == "delete jobs" && e.name == job_name_of(&task))
        .collect();
    assert!(!deletes.is_empty(), "the hub deleted no Job");
    for delete in deletes {
        assert!(
            delete.received >= ended + SignedDuration::from_secs(4),
            "it went too early"
        );
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn the_time_to_live_counts_from_the_recorded_end_over_restarts() -> Result<()> {
    let mut stage = Stage::new("ttl-restart").await?;
    let task = failed_with_ttl(&stage, 3600).await?;
    stage.restart_hub().await?;
    stage.barrier().await?;
    assert_eq!(stage.objects(&task).await?, (true, true));
    stage.kill_hub();
    // As if the hub had been gone for two hours.
    let long_ago = (Timestamp::now() - SignedDuration::from_hours(2)).to_string();
    let tasks = stage.tasks();
    let mut status = serde_json::to_value(tasks.get("shop").await?.status)?;
    status["completionTime"] = json!(long_ago);
    let patch = Patch::Merge(json!({"status": stage.sealed(&task, status).await?}));
    tasks
        .patch_status("shop", &PatchParams::default(), &patch)
        .await?;
    stage.start_hub().await?;
    stage.cleared(&task).await?;
    stage.barrier().await?;
    assert_eq!(stage.successes("create jobs", &job_name_of(&task)).await?, 1);
    stage.passed();
    Ok(())
}

/// Waits until the task itself is gone, and everything of it.
async fn removed(stage: &Stage, task: &RenderTask) -> Result<()> {
    let what = format!("task {} to be removed", task.name_any());
    wait_for(&what, LIMIT, async || {
        let found = stage.tasks().get_opt(&task.name_any()).await?;
        Ok(found.is_none().then_some(()))
    })
    .await?;
    stage.cleared(task).await
}

#[tokio::test]
async fn a_finished_task_is_removed_after_its_own_time_to_live() -> Result<()> {
    let mut stage = Stage::new("remove").await?;
    let spec = |seconds: u32| json!({"ttlSecondsAfterFinished": seconds, "failedJobTTL": 3600});
    let at_once = stage.submit_with("at-once", spec(0)).await?;
    let failed = stage.submit_with("failed", spec(0)).await?;
    let later = stage.submit_with("later", spec(4)).await?;
    let kept = stage.submit_with("kept", spec(3600)).await?;
    // Held, so that a slow test still reads when it ended and when the hub deleted it.
    let held = json!([FINALIZER, "example.com/hold"]);
    put_finalizers(&stage.tasks(), "later", &held).await?;
    for task in [&at_once, &later, &kept] {
        stage.complete(task).await?;
    }
    stage
        .fail(&failed, Exit::new("renderer", 1, ""), "BackoffLimitExceeded")
        .await?;
    removed(&stage, &at_once).await?;
    removed(&stage, &failed).await?;
    let status = stage
        .condition(&later, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let ended = status.completion_time.expect("the end is recorded").0;
    // A restart neither forgets nor prolongs it.
    stage.restart_hub().await?;
    let deleted = wait_for("the hub to delete the task", LIMIT, async || {
        Ok(stage.tasks().get("later").await?.metadata.deletion_timestamp)
    })
    .await?;
    assert!(
        deleted.0 >= ended + SignedDuration::from_secs(4),
        "it went too early"
    );
    put_finalizers(&stage.tasks(), "later", &json!(null)).await?;
    removed(&stage, &later).await?;
    stage.barrier().await?;
    assert!(stage.tasks().get_opt("kept").await?.is_some());
    stage.passed();
    Ok(())
}
