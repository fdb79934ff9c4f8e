//! The life of a task against a real API server.

mod support;

use anyhow::Result;
use kube::ResourceExt;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded, Ready, Stalled};
use renderhub_harness::finish::Exit;
use serde_json::json;
use support::{DIGEST, Stage, has};

#[tokio::test]
async fn a_task_becomes_a_chart_and_leaves_nothing() -> Result<()> {
    let stage = Stage::new("success").await?;
    let task = stage.submit(stage.task("shop")).await?;
    let running = stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    assert!(has(&running, Ready, "False", "JobScheduled"));
    let job = stage.complete(&task).await?;
    let done = stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert!(has(&done, Ready, "True", "JobSucceeded"));
    assert_eq!(done.digest.as_deref(), Some(DIGEST));
    let url = format!("oci://registry.test:5000/{}/shop:1.0.0", stage.scope.tenant);
    assert_eq!(done.chart_url, Some(url));
    assert_eq!(done.job_ref.and_then(|r| r.uid), job.uid());
    assert_eq!((done.attempts, done.observed_generation), (Some(1), Some(1)));
    assert!(done.start_time.is_some() && done.completion_time.is_some() && done.failure.is_none());
    stage.cleared(&task).await?;
    stage.delete(&task).await?;
    stage.watch.passed();
    Ok(())
}

#[tokio::test]
async fn a_failure_says_why_and_its_objects_go_with_the_ttl() -> Result<()> {
    let stage = Stage::new("failure").await?;
    let mut task = stage.task("shop");
    task["spec"]["failedJobTTL"] = json!(0);
    let task = stage.submit(task).await?;
    let exit = Exit::new("renderer", 1, r#"{"phase":"Push","reason":"Unauthorized"}"#);
    stage.fail(&task, exit, "BackoffLimitExceeded").await?;
    let failed = stage.condition(&task, JobFailed, "True", "JobFailed").await?;
    assert!(has(&failed, Ready, "False", "JobFailed") && has(&failed, Stalled, "True", "JobFailed"));
    let failure = failed.failure.expect("a failure is explained");
    assert_eq!(
        format!("{:?} {:?}", failure.phase, failure.exit_code),
        "Push Some(1)"
    );
    assert_eq!(
        failure.message,
        "the registry does not accept the push credential"
    );
    stage.cleared(&task).await?;
    stage.watch.passed();
    Ok(())
}
