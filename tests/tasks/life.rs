//! The life of a task against a real API server: how it ends, what is kept of it, and that nothing starts twice.

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded, Ready, Stalled};
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::wait_for;
use serde_json::{Value, json};
use support::{DIGEST, LIMIT, Stage, has, job_name_of};

/// Whether any status of the task's whole life had the condition.
async fn ever(stage: &Stage, task: &RenderTask, type_: &str) -> Result<bool> {
    let all = stage.history(task).await?;
    Ok(all
        .iter()
        .flat_map(|s| &s.conditions)
        .any(|c| c.type_ == type_ && c.status == "True"))
}

/// The fields of the status that the API server counts as the hub's.
async fn status_fields(stage: &Stage, task: &RenderTask) -> Result<Value> {
    let metadata = stage.tasks().get(&task.name_any()).await?.metadata;
    let managers = metadata.managed_fields.unwrap_or_default();
    let of_status = managers
        .into_iter()
        .find(|manager| manager.subresource.as_deref() == Some("status"));
    let fields = of_status.and_then(|manager| manager.fields_v1);
    Ok(fields.context("the hub wrote no status")?.0)
}

/// Holds: D3.
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
    assert!(!ever(&stage, &task, "JobFailed").await?);
    assert_eq!(
        status_fields(&stage, &task).await?,
        json!({"f:status": {}}),
        "one unit"
    );
    stage.delete(&task).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_pod_that_fails_before_the_job_completes_is_no_failure() -> Result<()> {
    let stage = Stage::new("retry").await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let job = stage.job_of(&task).await?;
    let exit = Exit::new(
        "renderer",
        1,
        r#"{"phase":"Push","reason":"RegistryUnreachable"}"#,
    );
    finish::pod_for_job(&stage.admin, &job, &[exit]).await?;
    let counters = json!({"status": {"startTime": Timestamp::now().to_string(), "failed": 1, "active": 1}});
    let patch = Patch::Merge(counters);
    stage
        .jobs()
        .patch_status(&job.name_any(), &PatchParams::default(), &patch)
        .await?;
    stage.barrier().await?;
    stage.still_runs(&task).await?;
    stage.complete(&task).await?;
    let done = stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert_eq!((done.attempts, done.failure), (Some(2), None));
    assert_eq!(done.digest.as_deref(), Some(DIGEST), "the last pod speaks");
    assert!(!ever(&stage, &task, "JobFailed").await?);
    stage.passed();
    Ok(())
}

trait Life {
    /// The task still runs, and nothing says otherwise.
    async fn still_runs(&self, task: &RenderTask) -> Result<()>;
    /// Takes the hub's right to write statuses of tasks, or gives it back, and waits until that is in force.
    async fn may_write_status(&self, may: bool) -> Result<()>;
}

impl Life for Stage {
    async fn still_runs(&self, task: &RenderTask) -> Result<()> {
        let status = self
            .tasks()
            .get(&task.name_any())
            .await?
            .status
            .unwrap_or_default();
        assert!(
            has(&status, JobScheduled, "True", "JobScheduled")
                && has(&status, Ready, "False", "JobScheduled")
        );
        assert_eq!(self.objects(task).await?, (true, true));
        Ok(())
    }

    async fn may_write_status(&self, may: bool) -> Result<()> {
        self.grant(|resource| may || resource != "rendertasks/status")
            .await?;
        let hub = self.hub_user.client().await?;
        let tasks: kube::Api<RenderTask> = kube::Api::namespaced(hub, &self.scope.tenant);
        let nothing = Patch::Merge(json!({}));
        wait_for("the right to be in force", LIMIT, async || {
            let answer = tasks
                .patch_status("no-such-task", &PatchParams::default(), &nothing)
                .await;
            let is_forbidden = matches!(answer, Err(kube::Error::Api(status)) if status.is_forbidden());
            Ok((is_forbidden != may).then_some(()))
        })
        .await
    }
}

#[tokio::test]
async fn nothing_is_deleted_before_the_result_is_recorded() -> Result<()> {
    let stage = Stage::new("durable").await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.may_write_status(false).await?;
    stage.complete(&task).await?;
    wait_for("the hub to be refused", LIMIT, async || {
        let refused = stage.requests().await?;
        let is_refused = |e: &renderhub_harness::audit::Event| {
            e.action() == "patch rendertasks/status" && e.name == "shop" && e.code == 403
        };
        Ok((refused.iter().filter(|e| is_refused(e)).count() >= 2).then_some(()))
    })
    .await?;
    assert_eq!(stage.objects(&task).await?, (true, true));
    stage.may_write_status(true).await?;
    let done = stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert_eq!(done.digest.as_deref(), Some(DIGEST));
    stage.cleared(&task).await?;
    let order: Vec<_> = stage.requests().await?;
    let at = |action: &str| {
        let is_it = |e: &renderhub_harness::audit::Event| e.action() == action && e.code < 300;
        order.iter().rposition(is_it).context(action.to_owned())
    };
    let recorded = at("patch rendertasks/status")?;
    assert!(recorded < at("delete jobs")? && recorded < at("delete secrets")?);
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_failure_says_why_and_nothing_starts_again() -> Result<()> {
    let mut stage = Stage::new("failure").await?;
    let task = stage.submit_with("shop", json!({"failedJobTTL": 0})).await?;
    let exit = Exit::new("renderer", 1, r#"{"phase":"Push","reason":"Unauthorized"}"#);
    stage.fail(&task, exit, "BackoffLimitExceeded").await?;
    let failed = stage.condition(&task, JobFailed, "True", "JobFailed").await?;
    assert!(has(&failed, Ready, "False", "JobFailed") && has(&failed, Stalled, "True", "JobFailed"));
    let failure = failed.failure.clone().expect("a failure is explained");
    assert_eq!(
        format!("{:?} {:?}", failure.phase, failure.exit_code),
        "Push Some(1)"
    );
    assert_eq!(
        failure.message,
        "the registry does not accept the push credential"
    );
    stage.cleared(&task).await?;
    // Whatever happens around it, a failed task is over.
    let note = Patch::Merge(json!({"metadata": {"annotations": {"poked": "yes"}}}));
    stage
        .tasks()
        .patch("shop", &PatchParams::default(), &note)
        .await?;
    stage.put_registry(json!({"hostname": "moved.test"})).await?;
    stage.barrier().await?;
    stage.restart_hub().await?;
    stage.barrier().await?;
    let name = job_name_of(&task);
    assert_eq!(stage.successes("create jobs", &name).await?, 1);
    assert_eq!(stage.successes("create secrets", &name).await?, 1);
    let still = stage.tasks().get("shop").await?.status;
    assert_eq!(still, Some(failed));
    assert!(!ever(&stage, &task, "JobSucceeded").await?);
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_job_that_vanished_is_lost_and_not_made_again() -> Result<()> {
    let mut stage = Stage::new("lost").await?;
    let seen = stage.submit_with("seen", json!({"failedJobTTL": 0})).await?;
    let unseen = stage.submit_with("unseen", json!({"failedJobTTL": 0})).await?;
    for task in [&seen, &unseen] {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
    }
    let background = DeleteParams::background();
    stage.jobs().delete(&job_name_of(&seen), &background).await?;
    stage.condition(&seen, JobFailed, "True", "JobLost").await?;
    stage.kill_hub();
    stage.jobs().delete(&job_name_of(&unseen), &background).await?;
    stage.start_hub().await?;
    let lost = stage.condition(&unseen, JobFailed, "True", "JobLost").await?;
    assert!(has(&lost, Ready, "False", "JobLost") && has(&lost, Stalled, "True", "JobLost"));
    stage.barrier().await?;
    for task in [&seen, &unseen] {
        stage.cleared(task).await?;
        assert_eq!(stage.successes("create jobs", &job_name_of(task)).await?, 1);
        assert!(!ever(&stage, task, "JobSucceeded").await?);
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_job_that_ended_while_the_hub_was_gone_counts_as_it_ended() -> Result<()> {
    let mut stage = Stage::new("absent").await?;
    let good = stage.submit(stage.task("good")).await?;
    let bad = stage.submit_with("bad", json!({"failedJobTTL": 0})).await?;
    for task in [&good, &bad] {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
    }
    stage.kill_hub();
    stage.complete(&good).await?;
    let exit = Exit::new("renderer", 1, r#"{"phase":"Push","reason":"Forbidden"}"#);
    stage.fail(&bad, exit, "BackoffLimitExceeded").await?;
    stage.start_hub().await?;
    let done = stage
        .condition(&good, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert_eq!(done.digest.as_deref(), Some(DIGEST));
    let failed = stage.condition(&bad, JobFailed, "True", "JobFailed").await?;
    let message = failed.failure.map(|f| f.message);
    assert_eq!(
        message.as_deref(),
        Some("the push credential may not push to this repository")
    );
    stage.cleared(&good).await?;
    stage.cleared(&bad).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_deadline_and_a_tag_conflict_have_reasons_of_their_own() -> Result<()> {
    let stage = Stage::new("reasons").await?;
    let slow = stage.submit(stage.task("slow")).await?;
    let taken = stage.submit(stage.task("taken")).await?;
    let job = stage.job_of(&slow).await?;
    finish::fail_job(
        &stage.admin,
        &stage.scope.rendering,
        &job.name_any(),
        "DeadlineExceeded",
    )
    .await?;
    let exit = Exit::new("renderer", 1, r#"{"phase":"Push","reason":"TagConflict"}"#);
    stage.fail(&taken, exit, "BackoffLimitExceeded").await?;
    for (task, reason, phase) in [
        (&slow, "DeadlineExceeded", "Pod"),
        (&taken, "TagConflict", "Push"),
    ] {
        let status = stage.condition(task, JobFailed, "True", reason).await?;
        assert!(has(&status, Ready, "False", reason));
        let failure = status.failure.context("a failure is explained")?;
        assert_eq!(format!("{:?}", failure.phase), phase);
        // Kept for people to read: the default time to live is an hour.
        assert_eq!(stage.objects(task).await?, (true, true));
    }
    stage.passed();
    Ok(())
}

/// Termination messages that no renderer of this project writes, each with a canary.
fn foreign_words() -> Vec<String> {
    let digest = format!("sha256:{}", "c".repeat(64));
    vec![
        "canary-word".to_owned(),
        r#"{"phase":"Push","reason":"Unauthorized","detail":"canary-word"}"#.to_owned(),
        r#"{"phase":"Push","reason":"canary-word"}"#.to_owned(),
        r#"{"phase":"canary-word","reason":"Unauthorized"}"#.to_owned(),
        r#"{"phase":"Push","reason":"Pushed","digest":"canary-word"}"#.to_owned(),
        format!(r#"{{"phase":"Push","reason":"Pushed","digest":"{digest}"}} canary-word"#),
        format!(
            r#"{{"phase":"Push","reason":"Pushed","digest":"{digest}"{}}}"#,
            " ".repeat(1100)
        ),
    ]
}

/// Holds: E4.
#[tokio::test]
async fn foreign_termination_messages_are_dropped() -> Result<()> {
    let stage = Stage::with_flags("words", &["--log-level=trace"]).await?;
    for (number, word) in foreign_words().into_iter().enumerate() {
        let bad = stage.submit(stage.task(&format!("bad-{number}"))).await?;
        let exit = Exit::new("renderer", 1, &word);
        stage.fail(&bad, exit, "BackoffLimitExceeded").await?;
        let good = stage.submit(stage.task(&format!("good-{number}"))).await?;
        let job = stage.job_of(&good).await?;
        finish::pod_for_job(&stage.admin, &job, &[Exit::new("renderer", 0, &word)]).await?;
        finish::complete_job(&stage.admin, &stage.scope.rendering, &job.name_any()).await?;
        let failed = stage.condition(&bad, JobFailed, "True", "JobFailed").await?;
        let failure = failed.failure.context("a failure is explained")?;
        assert_eq!(
            (format!("{:?}", failure.phase).as_str(), failure.message.as_str()),
            (
                "Pod",
                "the renderer's pod ended without saying why, as when it was killed or its image is not a renderer; ask the platform operator to look at the pod"
            ),
            "{word}"
        );
        let done = stage
            .condition(&good, JobSucceeded, "True", "JobSucceeded")
            .await?;
        assert_eq!(done.digest, None, "{word}");
    }
    let said = stage.everything_said().await?;
    assert!(said.contains("ended without saying why"));
    assert!(!said.contains("canary"), "a foreign word got out");
    stage.passed();
    Ok(())
}
