//! Nothing that another writer wrote counts: a Job or Secret of another spec, copies with all the labels, a status.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use renderhub::api::conditions::ConditionType::{JobScheduled, JobSucceeded, Ready};
use renderhub::api::{RenderTask, RenderTaskStatus};
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::{apply, wait_for};
use serde_json::json;
use support::forge::Marks;
use support::{DIGEST, LIMIT, Stage, has, job_name_of};

/// Holds: C5.
#[tokio::test]
async fn a_config_secret_made_from_another_spec_is_not_used() -> Result<()> {
    let mut stage = Stage::without_hub("hash", &[]).await?;
    stage.make_registry().await?;
    let task = stage.submit(stage.task("shop")).await?;
    let (id, uid) = (stage.hub_id().await?, task.uid().unwrap_or_default());
    let marks = stage.marks(&task, &id, &uid);
    let foreign = stage.forge_secret(&job_name_of(&task), &marks).await?;
    stage.start_hub().await?;
    stage.conflicts(&task).await?;
    stage.secret_is_untouched(&foreign).await?;
    assert_eq!(stage.successes("create jobs", &job_name_of(&task)).await?, 0);
    stage.passed();
    Ok(())
}

/// Holds: B29.
#[tokio::test]
async fn a_config_secret_with_every_mark_and_other_content_is_not_used() -> Result<()> {
    let mut stage = Stage::new("content").await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let name = job_name_of(&task);
    let ours = stage.secrets().get(&name).await?;
    let marks = Marks {
        labels: ours.metadata.labels.clone().context("marks")?,
        annotations: ours.metadata.annotations.clone().context("marks")?,
    };
    // As if the hub had been killed before it made the Job, and another writer had been there since.
    stage.kill_hub();
    stage.secrets().delete(&name, &DeleteParams::default()).await?;
    stage.jobs().delete(&name, &DeleteParams::background()).await?;
    let none = Patch::Merge(json!({"status": null}));
    stage
        .tasks()
        .patch_status(&task.name_any(), &PatchParams::default(), &none)
        .await?;
    let foreign = stage.forge_secret(&name, &marks).await?;
    stage.start_hub().await?;
    stage.complete(&task).await?;
    let status = stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let used = status.config_secret_ref.and_then(|secret| secret.uid);
    assert!(
        used.is_some() && used != foreign.uid(),
        "the Job was made with the other one"
    );
    stage.passed();
    Ok(())
}

/// Holds: C5, T4.
#[tokio::test]
async fn a_job_made_from_another_spec_is_no_result() -> Result<()> {
    let mut stage = Stage::without_hub("mutated", &[]).await?;
    stage.make_registry().await?;
    let task = stage.submit(stage.task("shop")).await?;
    let (id, uid) = (stage.hub_id().await?, task.uid().unwrap_or_default());
    let marks = stage.marks(&task, &id, &uid);
    let foreign = stage.forge_job(&job_name_of(&task), &marks).await?;
    let name = foreign.name_any();
    finish::complete_job(&stage.admin, &stage.scope.rendering, &name).await?;
    let foreign = stage.jobs().get(&name).await?;
    stage.start_hub().await?;
    let status = stage
        .condition(&task, JobScheduled, "False", "SpecMutated")
        .await?;
    assert!(has(&status, Ready, "False", "SpecMutated"));
    stage.barrier().await?;
    for status in stage.history(&task).await? {
        assert!(!has(&status, JobSucceeded, "True", "JobSucceeded"));
    }
    assert_eq!(stage.successes("create jobs", &name).await?, 0);
    stage.job_is_untouched(&foreign).await?;
    stage.passed();
    Ok(())
}

/// Holds: T3.
#[tokio::test]
async fn copies_of_a_job_with_all_its_marks_change_nothing() -> Result<()> {
    let mut stage = Stage::new("copy").await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    // As a user who copies a Job to inspect it, and its Secret with it.
    let ours = stage.job_of(&task).await?;
    let marks = Marks {
        labels: ours.metadata.labels.clone().context("marks")?,
        annotations: ours.metadata.annotations.clone().context("marks")?,
    };
    let copy = stage.forge_job("debug-copy", &marks).await?;
    // Also one that has the hash in its name, and ends at once.
    let name = job_name_of(&task);
    let hashed = format!("render-debug-{}", name.rsplit('-').next().unwrap_or_default());
    stage.forge_job(&hashed, &marks).await?;
    finish::complete_job(&stage.admin, &stage.scope.rendering, &hashed).await?;
    let secret = stage.forge_secret("debug-copy", &marks).await?;
    stage.barrier().await?;
    let status = stage.tasks().get("shop").await?.status.unwrap_or_default();
    assert_eq!(status.job_ref.and_then(|r| r.uid), ours.uid());
    finish::complete_job(&stage.admin, &stage.scope.rendering, "debug-copy").await?;
    stage.restart_hub().await?;
    stage.barrier().await?;
    let status = stage.tasks().get("shop").await?.status.unwrap_or_default();
    assert!(
        has(&status, JobScheduled, "True", "JobScheduled") && has(&status, Ready, "False", "JobScheduled")
    );
    finish_with_copies_word(&stage, &task, &copy).await?;
    stage.delete(&task).await?;
    assert!(stage.jobs().get_opt(&name).await?.is_none() && stage.secrets().get_opt(&name).await?.is_none());
    assert!(stage.jobs().get_opt(&copy.name_any()).await?.is_some());
    assert!(stage.secrets().get_opt(&secret.name_any()).await?.is_some());
    stage.passed();
    Ok(())
}

/// Ends the task's Job; the copy's pod ends last, and is not of this task.
async fn finish_with_copies_word(stage: &Stage, task: &RenderTask, copy: &Job) -> Result<()> {
    let word = |digit: &str| {
        let digest = format!("sha256:{}", digit.repeat(64));
        let message = json!({"phase": "Push", "reason": "Pushed", "digest": digest}).to_string();
        (digest, Exit::new("renderer", 0, message))
    };
    let ours = stage.job_of(task).await?;
    let (digest, own_word) = word("a");
    finish::pod_for_job(&stage.admin, &ours, &[own_word]).await?;
    let template = ours.spec.clone();
    let copy = Job {
        spec: template,
        ..copy.clone()
    };
    finish::pod_for_job(&stage.admin, &copy, &[word("b").1]).await?;
    finish::complete_job(&stage.admin, &stage.scope.rendering, &ours.name_any()).await?;
    let done = stage
        .condition(task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert_eq!(done.digest, Some(digest));
    Ok(())
}

/// Holds: T1.
#[tokio::test]
async fn a_forged_status_leads_to_nothing_of_others_and_to_no_chart() -> Result<()> {
    let mut stage = Stage::without_hub("forged", &[]).await?;
    stage.make_registry().await?;
    let job = stage.forge_job("victim", &Marks::default()).await?;
    let secret = stage.forge_secret("victim", &Marks::default()).await?;
    for (name, end) in [
        ("good", "JobSucceeded"),
        ("bad", "JobFailed"),
        ("runs", "JobScheduled"),
    ] {
        let task = stage.submit_with(name, json!({"failedJobTTL": 0})).await?;
        stage.forge_status(&task, &job, end).await?;
    }
    stage.start_hub().await?;
    stage.barrier().await?;
    let tasks = stage.tasks().list(&ListParams::default()).await?;
    for task in &tasks {
        stage.delete(task).await?;
    }
    stage.job_is_untouched(&job).await?;
    stage.secret_is_untouched(&secret).await?;
    // A chart's address that another writer puts in while the Job runs does not outlive the Job's end.
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let forged = json!({"status": {"chartURL": "oci://evil.test/x:1", "digest": format!("sha256:{}", "e".repeat(64))}});
    let tasks = stage.tasks();
    tasks
        .patch_status("shop", &PatchParams::default(), &Patch::Merge(forged))
        .await?;
    stage.complete(&task).await?;
    let done = stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let url = format!("oci://registry.test:5000/{}/shop:1.0.0", stage.scope.tenant);
    assert_eq!(
        (done.chart_url, done.digest.as_deref()),
        (Some(url), Some(DIGEST))
    );
    stage.passed();
    Ok(())
}

/// Holds: C3.
#[tokio::test]
async fn two_tenants_never_push_to_one_repository() -> Result<()> {
    let mut stage = Stage::without_hub("a", &[]).await?;
    let tenants = [stage.scope.tenant.clone(), format!("{}2", stage.scope.tenant)];
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenants[1]}});
    apply::object(&stage.admin, namespace).await?;
    stage.also_watch(&tenants[1]).await?;
    stage.make_registry().await?;
    stage.put_registry(json!({"allowedNamespaces": tenants})).await?;
    stage.start_hub().await?;
    let mut pushed = BTreeMap::new();
    for (own, other) in [(&tenants[0], &tenants[1]), (&tenants[1], &tenants[0])] {
        let tasks: Api<RenderTask> = Api::namespaced(stage.admin.clone(), own);
        for (number, repository) in repositories(own, other).iter().enumerate() {
            let Some(status) = stage
                .verdict(&tasks, &format!("shop-{number}"), repository)
                .await?
            else {
                continue;
            };
            let Some(url) = status.chart_url else {
                assert!(
                    has(&status, JobScheduled, "False", "RepositoryNotAllowed"),
                    "{repository}"
                );
                continue;
            };
            assert!(
                url.starts_with(&format!("oci://registry.test:5000/{own}/")),
                "{own}: {url}"
            );
            let earlier = pushed.insert(url.clone(), own);
            assert!(
                earlier.is_none_or(|earlier| earlier == own),
                "{url} is everybody's"
            );
        }
    }
    // Each has the plain one, the deep one, the long one, and one below its own that is called like the other.
    assert_eq!(pushed.len(), 8, "{pushed:#?}");
    stage.passed();
    Ok(())
}

trait Verdicts {
    /// What becomes of a task that pushes there; `None` where the API server does not take it.
    async fn verdict(
        &self,
        tasks: &Api<RenderTask>,
        name: &str,
        repository: &str,
    ) -> Result<Option<RenderTaskStatus>>;
}

impl Verdicts for Stage {
    async fn verdict(
        &self,
        tasks: &Api<RenderTask>,
        name: &str,
        repository: &str,
    ) -> Result<Option<RenderTaskStatus>> {
        let mut task = self.task(name);
        task["metadata"]["namespace"] = json!(tasks.namespace());
        task["spec"]["repository"] = json!(repository);
        let task = serde_json::from_value(task)?;
        match tasks.create(&PostParams::default(), &task).await {
            Err(kube::Error::Api(status)) if status.code == 422 => return Ok(None),
            answer => answer?,
        };
        wait_for(&format!("the verdict on {repository}"), LIMIT, async || {
            let status = tasks.get(name).await?.status;
            Ok(status.filter(|s| !s.conditions.is_empty()).map(Some))
        })
        .await
    }
}

/// Repositories as a tenant of the one namespace may spell them to get into the other.
fn repositories(own: &str, other: &str) -> Vec<String> {
    let long = 255 - own.len() - "//shop".len();
    vec![
        format!("{own}/shop"),
        format!("{own}/de/ep/shop"),
        format!("{own}/{}/shop", "x".repeat(long)),
        format!("{own}/{}/shop", "x".repeat(long + 1)),
        format!("{own}/{other}/shop"),
        format!("{other}/shop"),
        format!("{other}/{own}/shop"),
        format!("{own}/../{other}/shop"),
        format!("{other}/../{own}/shop"),
        format!("{own}/x/../../{other}/shop"),
        format!("./{other}/shop"),
        format!("/{other}/shop"),
        format!("{other}//shop"),
        format!("{other}/shop/"),
        format!("{}/shop", own.to_uppercase()),
        format!("{own}-x/shop"),
        format!("{own}_x/shop"),
        format!("{}/shop", &own[..own.len() - 1]),
        format!("{own}%2f..%2f{other}/shop"),
        format!("{own}\\..\\{other}/shop"),
        format!("{own}\u{2215}{other}/shop"),
        format!(" {other}/shop"),
        format!("{own}@{other}/shop"),
        format!("{own}:1/shop"),
        "shop".to_owned(),
    ]
}

trait ForgedStatus {
    /// Writes on a task that it has ended, and that its Job is another.
    async fn forge_status(&self, task: &RenderTask, job: &Job, end: &str) -> Result<()>;
}

impl ForgedStatus for Stage {
    async fn forge_status(&self, task: &RenderTask, job: &Job, end: &str) -> Result<()> {
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let reference = |api: &str, kind: &str| {
            json!({
                "apiVersion": api, "kind": kind, "namespace": self.scope.rendering,
                "name": job.name_any(), "uid": job.uid(),
            })
        };
        let condition =
            json!({"type": end, "status": "True", "reason": end, "message": "", "lastTransitionTime": now});
        let status = json!({"status": {
            "conditions": [condition], "completionTime": now,
            "jobRef": reference("batch/v1", "Job"), "configSecretRef": reference("v1", "Secret"),
        }});
        self.tasks()
            .patch_status(&task.name_any(), &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }
}
