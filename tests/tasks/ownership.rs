//! What is not the hub's is never adopted, changed or deleted, whatever its name or its labels say.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub_harness::{finish, wait_for};
use serde_json::{Value, json};
use support::forge::Marks;
use support::proxy::{Proxy, Write};
use support::{DIGEST, LIMIT, Stage, has, job_name_of};

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
        stage.marks(task, "other-0123abcd", &uid),
        stage.marks(task, &id, other_uid),
    ])
}

/// Holds: C5.
#[tokio::test]
async fn a_foreign_job_with_the_name_of_the_hubs_is_left_alone() -> Result<()> {
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

/// Holds: C5.
#[tokio::test]
async fn a_foreign_secret_with_the_name_of_the_hubs_is_left_alone() -> Result<()> {
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

trait Clearing {
    /// Waits until the hub's own objects of the task are gone; `foreign` Jobs with its label stay.
    async fn cleared_but_for(&self, task: &RenderTask, foreign: usize) -> Result<()>;
}

impl Clearing for Stage {
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

/// Waits until the log says that the Job of this name got its labels back.
async fn put_back_is_told(stage: &Stage, job: &str) -> Result<()> {
    let name = format!("\"{job}\"");
    wait_for("the log to say so", LIMIT, async || {
        let log = stage.hub().log();
        let is_it = |l: &str| l.contains("had lost the hub's labels") && l.contains(&name);
        Ok(log.lines().any(is_it).then_some(()))
    })
    .await
}

/// Holds: B30.
#[tokio::test]
async fn a_running_job_that_loses_the_hubs_labels_gets_them_back() -> Result<()> {
    let stage = Stage::new("labels").await?;
    for (name, labels) in [
        ("hub", json!({"renderhub.dev/hub-id": null})),
        ("task", json!({"renderhub.dev/task-uid": null})),
        ("other", json!({"renderhub.dev/hub-id": "somewhere-else"})),
    ] {
        let task = stage.submit(stage.task(name)).await?;
        stage
            .condition(&task, JobScheduled, "True", "JobScheduled")
            .await?;
        let before = stage.job_of(&task).await?;
        let (taken, jobs) = (
            Patch::Merge(json!({"metadata": {"labels": labels}})),
            stage.jobs(),
        );
        jobs.patch(&before.name_any(), &PatchParams::default(), &taken)
            .await?;
        wait_for("the labels to be back", LIMIT, async || {
            let now = stage.job_of(&task).await?;
            let has_all = before
                .labels()
                .iter()
                .all(|(key, value)| now.labels().get(key) == Some(value));
            Ok(has_all.then_some(()))
        })
        .await?;
        put_back_is_told(&stage, &before.name_any()).await?;
        stage.succeeds(&task).await?;
    }
    stage.passed();
    Ok(())
}

/// Holds: C5.
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

/// Holds: C5.
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

/// Holds: T4.
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
