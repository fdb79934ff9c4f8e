//! What is not the hub's is never adopted, changed or deleted, whatever its name or its labels say.

mod support;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded, Ready, Stalled};
use renderhub::api::labels::{HUB_ID, MANAGED_BY, MANAGED_BY_VALUE, SPEC_HASH, TASK_UID};
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::wait_for;
use serde_json::{Value, json};
use support::proxy::{Proxy, Write};
use support::{DIGEST, LIMIT, Stage, has, job_name_of};

/// What a forger writes on an object.
#[derive(Clone, Default)]
struct Marks {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Stage {
    /// The id of this stage's hub.
    async fn hub_id(&self) -> Result<String> {
        let all: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.admin.clone());
        let uid = all.get("kube-system").await?.uid().unwrap_or_default();
        Ok(format!("{}-{}", self.scope.shard, &uid[..8]))
    }

    /// The hub's own marks for the task, but for the hash of the spec.
    async fn marks(&self, task: &RenderTask, hub_id: &str, task_uid: &str) -> Result<Marks> {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let labels = BTreeMap::from([
            pair(MANAGED_BY, MANAGED_BY_VALUE),
            pair(HUB_ID, hub_id),
            pair(TASK_UID, task_uid),
        ]);
        let annotations = BTreeMap::from([
            pair("renderhub.dev/task-kind", "RenderTask"),
            pair("renderhub.dev/task-namespace", &self.scope.tenant),
            pair("renderhub.dev/task-name", &task.name_any()),
            pair(SPEC_HASH, &"0".repeat(64)),
        ]);
        Ok(Marks { labels, annotations })
    }

    async fn forge_job(&self, name: &str, marks: &Marks) -> Result<Job> {
        let mut job: Job = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "renderer", "image": "foreign.test/x"}],
            }}},
        }))?;
        mark(&mut job.metadata, marks);
        Ok(self.jobs().create(&PostParams::default(), &job).await?)
    }

    async fn forge_secret(&self, name: &str, marks: &Marks) -> Result<Secret> {
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name}, "stringData": {"url": "oci://foreign.test/x:1"},
        }))?;
        mark(&mut secret.metadata, marks);
        Ok(self.secrets().create(&PostParams::default(), &secret).await?)
    }

    /// Asserts that the foreign object is as it was.
    async fn job_is_untouched(&self, before: &Job) -> Result<()> {
        let now = self.jobs().get(&before.name_any()).await?;
        assert_eq!(version(&now.metadata), version(&before.metadata));
        assert!(now.metadata.deletion_timestamp.is_none());
        Ok(())
    }

    async fn secret_is_untouched(&self, before: &Secret) -> Result<()> {
        let now = self.secrets().get(&before.name_any()).await?;
        assert_eq!(version(&now.metadata), version(&before.metadata));
        Ok(())
    }

    /// The task says that its name is taken, and never that it succeeded.
    async fn conflicts(&self, task: &RenderTask) -> Result<()> {
        let status = self
            .condition(task, JobScheduled, "False", "NameConflict")
            .await?;
        assert!(
            has(&status, Ready, "False", "NameConflict") && has(&status, Stalled, "True", "NameConflict")
        );
        assert!(status.job_ref.is_none());
        Ok(())
    }
}

fn mark(meta: &mut ObjectMeta, marks: &Marks) {
    meta.labels = Some(marks.labels.clone());
    meta.annotations = Some(marks.annotations.clone());
}

fn version(meta: &ObjectMeta) -> (Option<String>, Option<String>) {
    (meta.uid.clone(), meta.resource_version.clone())
}

/// Two other tasks' worth of time passes, a restart between; then the task is deleted.
async fn outlives_restart_and_deletion(stage: &mut Stage, task: &RenderTask) -> Result<()> {
    stage.barrier().await?;
    stage.restart_hub().await?;
    stage.conflicts(task).await?;
    stage.barrier().await?;
    for status in stage.history(task).await? {
        assert!(!has(&status, JobSucceeded, "True", "JobSucceeded"));
    }
    stage.delete(task).await?;
    stage.barrier().await
}

/// What forgers may write on an object that has the name of a task's: nothing, another hub's id, another task's UID.
async fn forgeries(stage: &Stage, task: &RenderTask) -> Result<Vec<Marks>> {
    let (id, uid) = (stage.hub_id().await?, task.uid().unwrap_or_default());
    let other_uid = "0f5a4e0c-0001-4000-8000-000000000001";
    Ok(vec![
        Marks::default(),
        stage.marks(task, "other-0123abcd", &uid).await?,
        stage.marks(task, &id, other_uid).await?,
    ])
}

#[tokio::test]
async fn a_job_that_has_the_name_of_ours_is_left_alone() -> Result<()> {
    for number in 0..3 {
        let mut stage = Stage::without_hub("job", &["--gc-interval=1h"]).await?;
        stage.make_registry().await?;
        let task = stage.submit(stage.task("shop")).await?;
        let marks = forgeries(&stage, &task).await?.swap_remove(number);
        let foreign = stage.forge_job(&job_name_of(&task), &marks).await?;
        stage.start_hub().await?;
        stage.conflicts(&task).await?;
        outlives_restart_and_deletion(&mut stage, &task).await?;
        stage.job_is_untouched(&foreign).await?;
        // The config Secret that was made before the conflict showed is gone with the task.
        stage.cleared_but_for(&task, 0).await?;
        stage.passed();
    }
    Ok(())
}

#[tokio::test]
async fn a_secret_that_has_the_name_of_ours_is_left_alone() -> Result<()> {
    for number in 0..3 {
        let mut stage = Stage::without_hub("secret", &["--gc-interval=1h"]).await?;
        stage.make_registry().await?;
        let task = stage.submit(stage.task("shop")).await?;
        let marks = forgeries(&stage, &task).await?.swap_remove(number);
        let foreign = stage.forge_secret(&job_name_of(&task), &marks).await?;
        stage.start_hub().await?;
        stage.conflicts(&task).await?;
        outlives_restart_and_deletion(&mut stage, &task).await?;
        stage.secret_is_untouched(&foreign).await?;
        assert_eq!(stage.successes("create jobs", &job_name_of(&task)).await?, 0);
        stage.passed();
    }
    Ok(())
}

impl Stage {
    /// Waits until the hub's own objects of the task are gone; `foreign` Jobs with its label stay.
    async fn cleared_but_for(&self, task: &RenderTask, foreign: usize) -> Result<()> {
        let name = job_name_of(task);
        wait_for("the hub's own objects to be gone", LIMIT, async || {
            let secret = self.secrets().get_opt(&name).await?;
            let jobs = self.jobs().list(&support::of_task(task)).await?.items;
            let others = jobs.iter().filter(|j| j.name_any() != name).count();
            Ok((secret.is_none() && others == foreign).then_some(()))
        })
        .await
    }
}

#[tokio::test]
async fn a_config_secret_made_from_another_spec_is_not_used() -> Result<()> {
    let mut stage = Stage::without_hub("hash", &[]).await?;
    stage.make_registry().await?;
    let task = stage.submit(stage.task("shop")).await?;
    let (id, uid) = (stage.hub_id().await?, task.uid().unwrap_or_default());
    let marks = stage.marks(&task, &id, &uid).await?;
    let foreign = stage.forge_secret(&job_name_of(&task), &marks).await?;
    stage.start_hub().await?;
    stage.conflicts(&task).await?;
    stage.secret_is_untouched(&foreign).await?;
    assert_eq!(stage.successes("create jobs", &job_name_of(&task)).await?, 0);
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_job_made_from_another_spec_is_no_result() -> Result<()> {
    let mut stage = Stage::without_hub("mutated", &[]).await?;
    stage.make_registry().await?;
    let task = stage.submit(stage.task("shop")).await?;
    let (id, uid) = (stage.hub_id().await?, task.uid().unwrap_or_default());
    let marks = stage.marks(&task, &id, &uid).await?;
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

#[tokio::test]
async fn copies_of_a_job_with_all_its_marks_change_nothing() -> Result<()> {
    let mut stage = Stage::new("copy").await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    // As somebody does who copies a Job to look into it, and its Secret with it.
    let ours = stage.job_of(&task).await?;
    let marks = Marks {
        labels: ours.metadata.labels.clone().context("marks")?,
        annotations: ours.metadata.annotations.clone().context("marks")?,
    };
    let copy = stage.forge_job("debug-copy", &marks).await?;
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
    let name = job_name_of(&task);
    assert!(stage.jobs().get_opt(&name).await?.is_none() && stage.secrets().get_opt(&name).await?.is_none());
    assert!(stage.jobs().get_opt(&copy.name_any()).await?.is_some());
    assert!(stage.secrets().get_opt(&secret.name_any()).await?.is_some());
    stage.passed();
    Ok(())
}

/// Ends the task's Job; the copy's pod is the last to speak, and not of this task.
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

#[tokio::test]
async fn deletes_mean_one_object_and_not_its_name() -> Result<()> {
    let stage = Stage::new("precondition").await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let name = job_name_of(&task);
    stage.secrets().delete(&name, &DeleteParams::default()).await?;
    let foreign = stage.forge_secret(&name, &Marks::default()).await?;
    stage.delete(&task).await?;
    stage.secret_is_untouched(&foreign).await?;
    assert!(stage.jobs().get_opt(&name).await?.is_none());
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn every_delete_names_its_object_by_uid() -> Result<()> {
    let mut stage = Stage::without_hub("uid", &[]).await?;
    stage.make_registry().await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    hub.wait_ready().await?;
    let task = stage
        .submit_with("shop", json!({"ttlSecondsAfterFinished": 0}))
        .await?;
    let (job, name) = (stage.job_of(&task).await?, job_name_of(&task));
    let secret = stage.secrets().get(&name).await?;
    stage.complete(&task).await?;
    wait_for("the task to remove itself", LIMIT, async || {
        Ok(stage.tasks().get_opt("shop").await?.is_none().then_some(()))
    })
    .await?;
    let deletes: Vec<_> = proxy
        .writes()
        .into_iter()
        .filter(|w| w.method == "DELETE")
        .collect();
    for (kind, uid) in [
        ("jobs", job.uid()),
        ("secrets", secret.uid()),
        ("rendertasks", task.uid()),
    ] {
        let of_kind = |w: &&Write| w.path.contains(&format!("/{kind}/"));
        let found: Vec<_> = deletes.iter().filter(of_kind).collect();
        assert!(!found.is_empty(), "{kind}");
        for delete in found {
            assert_eq!(delete.body["preconditions"]["uid"], json!(uid), "{kind}");
            assert_eq!(delete.body["propagationPolicy"], "Background", "{kind}");
        }
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_job_that_was_replaced_by_a_foreign_one_is_lost() -> Result<()> {
    let stage = Stage::new("replaced").await?;
    let task = stage.submit_with("shop", json!({"failedJobTTL": 0})).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let name = job_name_of(&task);
    stage.hub().freeze()?;
    stage.jobs().delete(&name, &DeleteParams::background()).await?;
    let foreign = stage.forge_job(&name, &Marks::default()).await?;
    finish::complete_job(&stage.admin, &stage.scope.rendering, &name).await?;
    let foreign = stage.jobs().get(&foreign.name_any()).await?;
    stage.hub().thaw()?;
    stage.condition(&task, JobFailed, "True", "JobLost").await?;
    stage.delete(&task).await?;
    stage.barrier().await?;
    stage.job_is_untouched(&foreign).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_second_task_of_the_same_name_is_a_new_task() -> Result<()> {
    let stage = Stage::new("again").await?;
    let first = stage.submit(stage.task("shop")).await?;
    stage.complete(&first).await?;
    stage
        .condition(&first, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.delete(&first).await?;
    let second = stage.submit(stage.task("shop")).await?;
    assert_ne!(job_name_of(&first), job_name_of(&second));
    let running = stage
        .condition(&second, JobScheduled, "True", "JobScheduled")
        .await?;
    assert_eq!(running.digest, None);
    let used: Value = serde_json::to_value(running.job_ref)?;
    assert_eq!(used["name"], json!(job_name_of(&second)));
    stage.complete(&second).await?;
    let done = stage
        .condition(&second, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert_eq!(done.digest.as_deref(), Some(DIGEST));
    for task in [&first, &second] {
        assert_eq!(stage.successes("create jobs", &job_name_of(task)).await?, 1);
    }
    stage.passed();
    Ok(())
}
