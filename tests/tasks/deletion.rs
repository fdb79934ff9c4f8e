//! Whenever a task is deleted, nothing of it stays, and nothing holds it up but what others put on it.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub::api::labels::FINALIZER;
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::wait_for;
use serde_json::{Value, json};
use support::proxy::{Proxy, Stop};
use support::{LIMIT, Stage, job_name_of};

/// Counts passes over tasks.
const PASSES: &str = "renderhub_reconcile_duration_seconds_count";

trait Deletions {
    async fn running(&self, name: &str) -> Result<RenderTask>;
    async fn failed(&self, name: &str) -> Result<RenderTask>;
    async fn refused_task(&self, name: &str) -> Result<RenderTask>;
    /// Asserts that nothing of any task is left in the rendering namespace.
    async fn nothing_is_left(&self) -> Result<()>;
    async fn set_finalizers(&self, task: &RenderTask, finalizers: Value) -> Result<()>;
}

impl Deletions for Stage {
    async fn running(&self, name: &str) -> Result<RenderTask> {
        let task = self.submit(self.task(name)).await?;
        self.condition(&task, JobScheduled, "True", "JobScheduled")
            .await?;
        Ok(task)
    }

    async fn failed(&self, name: &str) -> Result<RenderTask> {
        let task = self.submit(self.task(name)).await?;
        let exit = Exit::new("renderer", 1, "");
        self.fail(&task, exit, "BackoffLimitExceeded").await?;
        self.condition(&task, JobFailed, "True", "JobFailed").await?;
        Ok(task)
    }

    async fn refused_task(&self, name: &str) -> Result<RenderTask> {
        let spec = json!({"registryRef": {"name": "no-such-registry"}});
        let task = self.submit_with(name, spec).await?;
        self.condition(&task, JobScheduled, "False", "RegistryNotAllowed")
            .await?;
        Ok(task)
    }

    async fn nothing_is_left(&self) -> Result<()> {
        wait_for("the rendering namespace to be as it was", LIMIT, async || {
            let all = kube::api::ListParams::default();
            let jobs = self.jobs().list(&all).await?.items.len();
            let pods = self.pods().list(&all).await?.items.len();
            let secrets = self.secrets().list(&all).await?.items;
            let kept = ["push", renderhub::kubernetes::seal_key::NAME];
            let configs = secrets.iter().filter(|s| !kept.contains(&&*s.name_any()));
            Ok((jobs + pods + configs.count() == 0).then_some(()))
        })
        .await
    }

    async fn set_finalizers(&self, task: &RenderTask, finalizers: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        let tasks = self.tasks();
        tasks
            .patch(&task.name_any(), &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

#[tokio::test]
async fn deletion_at_every_stage_leaves_nothing() -> Result<()> {
    let stage = Stage::new("stages").await?;
    let running = stage.running("running").await?;
    let job = stage.job_of(&running).await?;
    // Its pod goes with it.
    finish::pod_for_job(&stage.admin, &job, &[]).await?;
    let tasks = [
        running,
        stage.succeeded("succeeded").await?,
        stage.failed("failed").await?,
        stage.refused_task("refused").await?,
    ];
    assert_eq!(stage.objects(&tasks[2]).await?, (true, true), "kept for a look");
    for task in &tasks {
        stage.delete(task).await?;
    }
    stage.nothing_is_left().await?;
    stage.barrier().await?;
    for task in &tasks[..3] {
        assert_eq!(stage.successes("create jobs", &job_name_of(task)).await?, 1);
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_task_that_waits_for_a_slot_goes_at_once_and_the_next_gets_it() -> Result<()> {
    let one = ["--max-active-jobs=1", "--max-active-jobs-per-namespace=1"];
    let stage = Stage::with_flags("queue", &one).await?;
    let first = stage.running("first").await?;
    let second = stage.submit(stage.task("second")).await?;
    let third = stage.submit(stage.task("third")).await?;
    stage.delete(&second).await?;
    assert_eq!(stage.objects(&third).await?, (false, false));
    // A slot comes free by the deletion of who holds it, too.
    stage.delete(&first).await?;
    stage
        .condition(&third, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.delete(&third).await?;
    stage.nothing_is_left().await?;
    assert_eq!(stage.successes("create jobs", &job_name_of(&second)).await?, 0);
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn deletion_while_the_hub_is_gone_is_finished_when_it_is_back() -> Result<()> {
    let mut stage = Stage::new("gone").await?;
    let tasks = [
        stage.running("running").await?,
        stage.failed("failed").await?,
        stage.succeeded("succeeded").await?,
    ];
    stage.kill_hub();
    for task in &tasks {
        let name = task.name_any();
        stage.tasks().delete(&name, &DeleteParams::default()).await?;
        let held = stage.tasks().get(&name).await?;
        assert_eq!(held.finalizers(), [FINALIZER]);
    }
    stage.start_hub().await?;
    wait_for("the tasks to be gone", LIMIT, async || {
        let left = stage.tasks().list(&kube::api::ListParams::default()).await?;
        Ok(left.items.is_empty().then_some(()))
    })
    .await?;
    stage.nothing_is_left().await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_namespace_with_tasks_at_every_stage_can_be_deleted() -> Result<()> {
    let stage = Stage::new("namespace").await?;
    stage.running("running").await?;
    stage.succeeded("succeeded").await?;
    stage.failed("failed").await?;
    stage.refused_task("refused").await?;
    stage.until_policies_see_tasks().await?;
    let namespaces: Api<Namespace> = Api::all(stage.admin.clone());
    namespaces
        .delete(&stage.scope.tenant, &DeleteParams::default())
        .await?;
    wait_for("the namespace to be gone", LIMIT, async || {
        let found = namespaces.get_opt(&stage.scope.tenant).await?;
        Ok(found.is_none().then_some(()))
    })
    .await?;
    stage.nothing_is_left().await?;
    stage.passed();
    Ok(())
}

/// The hub's write of a status comes after the deletion, and its answer is what the hub knows the task by from then on.
#[tokio::test]
async fn a_deletion_that_a_status_overtakes_is_not_lost() -> Result<()> {
    // Finalizer, Secret, Job, status; then the status with the result.
    for (write, ends) in [(4, false), (5, true)] {
        let mut stage = Stage::without_hub("overtaken", &[]).await?;
        stage.make_registry().await?;
        let proxy = Proxy::start(stage.hub_user.client().await?).await?;
        proxy.stop_at(write, Stop::Before);
        let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
        hub.wait_ready().await?;
        let task = stage.submit(stage.task("shop")).await?;
        if ends {
            stage.complete(&task).await?;
        }
        proxy.stopped().await?;
        stage.tasks().delete("shop", &DeleteParams::default()).await?;
        proxy.release();
        wait_for("the task to be gone", LIMIT, async || {
            Ok(stage.tasks().get_opt("shop").await?.is_none().then_some(()))
        })
        .await?;
        stage.nothing_is_left().await?;
        stage.passed();
    }
    Ok(())
}

/// The hub's rights in a namespace go with it, and with them its view of what is in there.
#[tokio::test]
async fn a_namespace_that_was_deleted_keeps_no_other_from_being_served() -> Result<()> {
    let mut stage = Stage::without_hub("left", &["--no-cross-namespace-refs=false"]).await?;
    let other = stage.plane.namespace("gone").await?;
    stage.also_watch(&other).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    stage.kill_hub();
    let namespaces: Api<Namespace> = Api::all(stage.admin.clone());
    namespaces.delete(&other, &DeleteParams::default()).await?;
    wait_for("the namespace to be gone", LIMIT, async || {
        Ok(namespaces.get_metadata_opt(&other).await?.is_none().then_some(()))
    })
    .await?;
    stage.allow_forbidden();
    stage.start_hub().await?;
    stage.barrier().await?;
    assert!(stage.hub().log().contains("it serves the other namespaces"));
    // Made anew, and with the hub's rights in it, it is served like before.
    let again: Namespace = serde_json::from_value(json!({"metadata": {"name": other}}))?;
    namespaces.create(&PostParams::default(), &again).await?;
    stage.renew_rights().await?;
    let tasks: Api<RenderTask> = Api::namespaced(stage.admin.clone(), &other);
    let mut task = stage.task("shop");
    task["metadata"]["namespace"] = json!(other);
    tasks
        .create(&PostParams::default(), &serde_json::from_value(task)?)
        .await?;
    wait_for("the task to be looked at", LIMIT, async || {
        let status = tasks.get("shop").await?.status.unwrap_or_default();
        Ok((!status.conditions.is_empty()).then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}

/// Holds: T2.
#[tokio::test]
async fn a_finalizer_that_another_client_removes_leaks_nothing() -> Result<()> {
    let mut stage = Stage::with_flags("swept", &["--gc-interval=1s"]).await?;
    let seen = stage.running("seen").await?;
    let unseen = stage.running("unseen").await?;
    let kept = stage.running("kept").await?;
    for task in [&seen, &unseen] {
        if task.name_any() == "unseen" {
            stage.kill_hub();
        }
        stage.set_finalizers(task, Value::Null).await?;
        let name = task.name_any();
        stage.tasks().delete(&name, &DeleteParams::default()).await?;
        assert!(stage.tasks().get_opt(&name).await?.is_none());
    }
    // A task of the same name is not taken for the one that is gone.
    let again = stage.submit(stage.task("unseen")).await?;
    stage.start_hub().await?;
    for task in [&seen, &unseen] {
        stage.cleared(task).await?;
    }
    for task in [&again, &kept] {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
        assert_eq!(stage.objects(task).await?, (true, true));
        stage.complete(task).await?;
        stage
            .condition(task, JobSucceeded, "True", "JobSucceeded")
            .await?;
    }
    let removed = stage.hub().metrics().await?;
    assert!(
        !removed.contains("renderhub_orphans_removed_total 0"),
        "{removed}"
    );
    stage.passed();
    Ok(())
}

/// Holds: T2.
#[tokio::test]
async fn a_foreign_finalizer_holds_the_task_but_not_the_hub() -> Result<()> {
    let stage = Stage::new("foreign").await?;
    let task = stage.succeeded("shop").await?;
    let finalizers = json!([FINALIZER, "example.com/hold"]);
    stage.set_finalizers(&task, finalizers).await?;
    stage.tasks().delete("shop", &DeleteParams::default()).await?;
    wait_for("the hub to let go", LIMIT, async || {
        let found = stage.tasks().get("shop").await?;
        Ok((found.finalizers() == ["example.com/hold"]).then_some(()))
    })
    .await?;
    stage.cleared(&task).await?;
    stage.barrier().await?;
    let begin = stage.plane.audit()?.mark().await?;
    let passes = stage.counted(PASSES, &[]).await?;
    for poke in ["1", "2", "3"] {
        let note = Patch::Merge(json!({"metadata": {"annotations": {"poke": poke}}}));
        stage
            .tasks()
            .patch("shop", &PatchParams::default(), &note)
            .await?;
    }
    stage.barrier().await?;
    let since = stage.plane.audit()?.since(begin).await?;
    let spun = since
        .iter()
        .filter(|e| e.user == stage.hub_user.name() && (e.name == "shop" || e.name == job_name_of(&task)));
    let spun: Vec<_> = spun.map(renderhub_harness::audit::Event::action).collect();
    assert!(spun.is_empty(), "{spun:?}");
    // A pass for each poke, and those of the barrier's own task.
    let passes = stage.counted(PASSES, &[]).await? - passes;
    assert!(passes < 30, "{passes} passes");
    assert!(
        stage
            .tasks()
            .get("shop")
            .await?
            .metadata
            .deletion_timestamp
            .is_some()
    );
    stage.set_finalizers(&task, Value::Null).await?;
    assert!(stage.tasks().get_opt("shop").await?.is_none());
    stage.passed();
    Ok(())
}

/// Holds: T2.
#[tokio::test]
async fn a_job_that_a_finalizer_of_another_holds_does_not_hold_its_task() -> Result<()> {
    let stage = Stage::new("held").await?;
    let task = stage.running("shop").await?;
    let job = job_name_of(&task);
    let set = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let params = PatchParams::default();
    let held = set(json!(["example.com/hold"]));
    stage.jobs().patch(&job, &params, &held).await?;
    stage.delete(&task).await?;
    let left = stage.jobs().get(&job).await?;
    assert!(
        left.metadata.deletion_timestamp.is_some(),
        "its deletion was asked for"
    );
    assert_eq!(
        stage.objects(&task).await?,
        (true, false),
        "the config Secret is gone"
    );
    // The hub asks once, and waits for nothing.
    stage.barrier().await?;
    assert_eq!(stage.successes("delete jobs", &job).await?, 1);
    stage.jobs().patch(&job, &params, &set(json!(null))).await?;
    stage.nothing_is_left().await?;
    stage.passed();
    Ok(())
}
