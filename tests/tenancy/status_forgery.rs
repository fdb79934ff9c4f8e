//! A status that the hub did not write changes nothing, at any time and from any writer; no policy stops the writers here.

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub::kubernetes::seal_key;
use renderhub_harness::finish::Exit;
use renderhub_harness::wait_for;
use serde_json::{Value, json};
use support::careless::put_status;
use support::forge::Marks;
use support::{DIGEST, LIMIT, Stage, job_name_of};

fn condition(type_: &str, status: &str) -> Value {
    let now = Timestamp::now().to_string();
    json!({"type": type_, "status": status, "reason": type_, "message": "forged", "lastTransitionTime": now})
}

/// The status of a task that has ended, with the Job of another writer.
fn ended(type_: &str, job: &Job) -> Value {
    let ready = if type_ == "JobSucceeded" { "True" } else { "False" };
    json!({
        "conditions": [condition("JobScheduled", "True"), condition(type_, "True"), condition("Ready", ready)],
        "chartURL": "oci://evil.test/shop:1.0.0", "digest": format!("sha256:{}", "e".repeat(64)), "attempts": 1,
        "observedGeneration": 1, "completionTime": Timestamp::now().to_string(), "seal": "0".repeat(64),
        "jobRef": {
            "apiVersion": "batch/v1", "kind": "Job", "namespace": job.namespace(), "name": job.name_any(),
            "uid": job.uid(),
        },
    })
}

/// Every lie about a task whose status is this one, and was the older one before.
fn lies(job: &Job, status: &Value, older: Option<&Value>) -> Vec<(&'static str, Value)> {
    let with = |field: &str, value: Value| {
        let mut changed = status.clone();
        changed[field] = value;
        changed
    };
    let success = ended("JobSucceeded", job);
    let mut contradiction = status.clone();
    if let Some(conditions) = contradiction["conditions"].as_array_mut() {
        conditions.retain(|c| c["type"] != "JobFailed");
        conditions.push(condition("JobFailed", "True"));
    }
    let mut lies = vec![
        ("a success", success.clone()),
        ("a failure", ended("JobFailed", job)),
        ("nothing", json!({})),
        ("another Job", with("jobRef", success["jobRef"].clone())),
        ("another digest", with("digest", success["digest"].clone())),
        ("another address", with("chartURL", success["chartURL"].clone())),
        ("a failure beside it", contradiction),
    ];
    lies.extend(older.map(|older| ("what was true before", older.clone())));
    lies.retain(|(_, lie)| lie != status);
    lies
}

trait Statuses {
    async fn status(&self, task: &RenderTask) -> Result<Value>;
    /// Waits until the status is this one again.
    async fn put_right(&self, task: &RenderTask, what: &str, status: &Value) -> Result<()>;
    /// Writes every lie about a task, one after the other, and sees each restored.
    async fn withstands(
        &self,
        tenant: &Api<RenderTask>,
        task: &RenderTask,
        job: &Job,
        older: Option<&Value>,
    ) -> Result<()>;
    /// A task with its result, and the status it had before.
    async fn succeeded_after(&self, name: &str) -> Result<(RenderTask, Value)>;
    async fn shows_its_result(&self, task: &RenderTask) -> Result<()>;
    async fn made(&self, task: &RenderTask) -> Result<usize>;
}

impl Statuses for Stage {
    async fn status(&self, task: &RenderTask) -> Result<Value> {
        let found = self.tasks().get(&task.name_any()).await?;
        Ok(serde_json::to_value(found.status.unwrap_or_default())?)
    }

    async fn put_right(&self, task: &RenderTask, what: &str, status: &Value) -> Result<()> {
        wait_for(&format!("{what} to be put right"), LIMIT, async || {
            Ok((self.status(task).await? == *status).then_some(()))
        })
        .await
    }

    async fn withstands(
        &self,
        tenant: &Api<RenderTask>,
        task: &RenderTask,
        job: &Job,
        older: Option<&Value>,
    ) -> Result<()> {
        let name = task.name_any();
        let status = self.status(task).await?;
        for (what, lie) in lies(job, &status, older) {
            put_status(tenant, &name, &lie).await?;
            self.put_right(task, &format!("{what} on {name}"), &status)
                .await?;
        }
        Ok(())
    }

    async fn succeeded_after(&self, name: &str) -> Result<(RenderTask, Value)> {
        let task = self.scheduled(name).await?;
        let before = self.status(&task).await?;
        self.shows_its_result(&task).await?;
        Ok((task, before))
    }

    async fn shows_its_result(&self, task: &RenderTask) -> Result<()> {
        self.complete(task).await?;
        let done = self.condition(task, JobSucceeded, "True", "JobSucceeded").await?;
        let url = format!("oci://registry.test:5000/{}/shop:1.0.0", self.scope.tenant);
        assert_eq!(
            (done.digest.as_deref(), done.chart_url),
            (Some(DIGEST), Some(url))
        );
        self.cleared(task).await
    }

    async fn made(&self, task: &RenderTask) -> Result<usize> {
        self.successes("create jobs", &job_name_of(task)).await
    }
}

/// Holds: T1, T7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lies_about_a_task_that_waits_are_put_right_and_it_runs_once() -> Result<()> {
    let one = ["--max-active-jobs=1", "--max-active-jobs-per-namespace=1"];
    let stage = Stage::with_flags("waits", &one).await?;
    let tenant = stage.careless_tenant().await?;
    let victim = stage.forge_job("victim", &Marks::default()).await?;
    let first = stage.scheduled("first").await?;
    let queued = stage.submit(stage.task("queued")).await?;
    let refused = stage
        .submit_with("refused", json!({"rendererClassName": stage.scope.tenant}))
        .await?;
    stage
        .condition(&refused, JobScheduled, "False", "RendererClassNotFound")
        .await?;
    // What the hub says of a task that waits changes once it has waited for a while, and not again.
    stage.condition(&queued, JobScheduled, "False", "Queued").await?;
    let tasks = [&queued, &refused];
    try_join_all(tasks.map(|task| stage.withstands(&tenant, task, &victim, None))).await?;
    assert_eq!((stage.made(&queued).await?, stage.made(&refused).await?), (0, 0));
    assert!(stage.counted("renderhub_forged_statuses_total", &[]).await? >= 10);
    stage.shows_its_result(&first).await?;
    stage.shows_its_result(&queued).await?;
    assert_eq!(stage.made(&queued).await?, 1);
    stage.job_is_untouched(&victim).await?;
    stage.passed();
    Ok(())
}

/// Holds: T1, T7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lies_about_a_task_that_runs_or_has_ended_are_put_right_and_nothing_runs_again() -> Result<()> {
    let stage = Stage::new("ended").await?;
    let tenant = stage.careless_tenant().await?;
    let victim = stage.forge_job("victim", &Marks::default()).await?;
    let running = stage.scheduled("running").await?;
    let (good, older) = stage.succeeded_after("good").await?;
    let bad = stage.scheduled("bad").await?;
    let before = stage.status(&bad).await?;
    stage
        .fail(&bad, Exit::new("renderer", 1, ""), "BackoffLimitExceeded")
        .await?;
    stage.condition(&bad, JobFailed, "True", "JobFailed").await?;
    let all = [(&running, None), (&good, Some(&older)), (&bad, Some(&before))];
    try_join_all(all.map(|(task, older)| stage.withstands(&tenant, task, &victim, older))).await?;
    // What the hub does by the status it does by the true one: a failure is kept, a Job that runs goes on.
    assert_eq!(stage.objects(&bad).await?, (true, true));
    stage.shows_its_result(&running).await?;
    for (task, _) in all {
        assert_eq!(stage.made(task).await?, 1, "{}", task.name_any());
    }
    stage.job_is_untouched(&victim).await?;
    let events = stage.events().await?;
    let of_good = events
        .iter()
        .filter(|e| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some("good"));
    assert!(of_good.count() <= 2, "an event that was sent is not sent again");
    stage.passed();
    Ok(())
}

/// Holds: T1, T7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lies_told_while_no_hub_runs_are_no_result() -> Result<()> {
    let mut stage = Stage::new("absent").await?;
    let tenant = stage.careless_tenant().await?;
    let victim = stage.forge_job("victim", &Marks::default()).await?;
    let running = stage.scheduled("running").await?;
    let (kept, _) = stage.succeeded_after("kept").await?;
    let (changed, _) = stage.succeeded_after("changed").await?;
    let (wiped, _) = stage.succeeded_after("wiped").await?;
    let (replayed, older) = stage.succeeded_after("replayed").await?;
    let result = stage.status(&kept).await?;
    let runs = stage.status(&running).await?;
    stage.kill_hub();
    let fresh = stage.submit(stage.task("fresh")).await?;
    let success = ended("JobSucceeded", &victim);
    let mut digest = stage.status(&changed).await?;
    digest["digest"] = success["digest"].clone();
    for (name, lie) in [
        ("running", &success),
        ("fresh", &success),
        ("changed", &digest),
        ("wiped", &json!({})),
        ("replayed", &older),
    ] {
        put_status(&tenant, name, lie).await?;
    }
    stage.start_hub().await?;
    // Without the hub's memory the Job alone says what is true, and where there is none, the task runs again.
    for (task, jobs) in [(&running, 1), (&fresh, 1), (&changed, 2), (&wiped, 2)] {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
        assert_eq!(stage.made(task).await?, jobs, "{}", task.name_any());
    }
    assert_eq!(stage.status(&running).await?["jobRef"], runs["jobRef"]);
    for task in [&running, &fresh, &changed, &wiped] {
        stage.shows_its_result(task).await?;
    }
    // An older status of the hub's own on the same task: the result is lost, which is no success.
    stage.condition(&replayed, JobFailed, "True", "JobLost").await?;
    assert_eq!((stage.made(&replayed).await?, stage.made(&kept).await?), (1, 1));
    assert_eq!(stage.status(&kept).await?, result);
    stage.passed();
    Ok(())
}

trait SealKeys {
    async fn lose_key(&self) -> Result<()>;
    /// Asserts that the hub made a key of its own.
    async fn has_key(&self) -> Result<()>;
}

impl SealKeys for Stage {
    async fn lose_key(&self) -> Result<()> {
        let secrets = self.secrets();
        secrets.delete(seal_key::NAME, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn has_key(&self) -> Result<()> {
        let key = self.secrets().get(seal_key::NAME).await?;
        let kind = (key.immutable, key.type_.as_deref());
        assert_eq!(kind, (Some(true), Some("Opaque")));
        assert_eq!(key.data.context("data")?["key"].0.len(), 32);
        Ok(())
    }
}

/// Holds: T1.
#[tokio::test]
async fn results_from_before_there_was_a_key_stay() -> Result<()> {
    let mut stage = Stage::without_hub("upgrade", &[]).await?;
    stage.lose_key().await?;
    stage.make_registry().await?;
    let victim = stage.forge_job("victim", &Marks::default()).await?;
    let old = stage.submit(stage.task("old")).await?;
    let mut unsealed = ended("JobSucceeded", &victim);
    unsealed.as_object_mut().context("fields")?.remove("seal");
    put_status(&stage.tasks(), "old", &unsealed).await?;
    let result = stage.status(&old).await?;
    for _ in ["the first key", "a key in the place of one that was lost"] {
        // Dates of objects have whole seconds.
        let made = old.creation_timestamp().context("a date")?.0;
        wait_for("the next second", LIMIT, async || {
            Ok((Timestamp::now().as_second() > made.as_second()).then_some(()))
        })
        .await?;
        stage.start_hub().await?;
        stage.barrier().await?;
        assert_eq!(stage.status(&old).await?, result);
        assert_eq!(stage.made(&old).await?, 0);
        stage.has_key().await?;
        stage.kill_hub();
        stage.lose_key().await?;
    }
    // From its start on, the hub holds to what it found.
    stage.start_hub().await?;
    put_status(&stage.tasks(), "old", &json!({"attempts": 1})).await?;
    let right =
        |status: &Value| status["digest"] == result["digest"] && status["conditions"] == result["conditions"];
    wait_for("the old result to be put right", LIMIT, async || {
        Ok(right(&stage.status(&old).await?).then_some(()))
    })
    .await?;
    assert_eq!(stage.made(&old).await?, 0);
    stage.passed();
    Ok(())
}

/// Holds: T1.
#[tokio::test]
async fn a_key_that_is_none_keeps_the_hub_from_starting() -> Result<()> {
    let mut stage = Stage::without_hub("key", &[]).await?;
    stage
        .secrets()
        .delete(seal_key::NAME, &DeleteParams::default())
        .await?;
    stage.forge_secret(seal_key::NAME, &Marks::default()).await?;
    let hub = stage.spawn_hub(&stage.hub_user.kubeconfig()?)?;
    let status = hub.wait_exit(LIMIT).await?;
    assert!(
        !status.success() && hub.log().contains("holds no key of 32 bytes"),
        "{}",
        hub.log()
    );
    stage.passed();
    Ok(())
}

/// Holds: T1, T4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_made_again_under_load_each_run_once() -> Result<()> {
    const NAMES: usize = 6;
    const ROUNDS: usize = 8;
    let stage = Stage::new("again").await?;
    let tenant = stage.careless_tenant().await?;
    let lives = (0..NAMES).map(|number| {
        let (stage, tenant, name) = (&stage, &tenant, format!("shop-{number}"));
        async move {
            let mut all = Vec::new();
            for round in 0..ROUNDS {
                let task = stage.submit(stage.task(&name)).await?;
                match (number + round) % 4 {
                    0 => {}
                    1 => put_status(tenant, &name, &json!({"attempts": 7})).await?,
                    2 => drop(stage.job_of(&task).await?),
                    _ => stage.shows_its_result(&task).await?,
                }
                stage.delete(&task).await?;
                all.push(task);
            }
            let last = stage.submit(stage.task(&name)).await?;
            stage.shows_its_result(&last).await?;
            all.push(last);
            anyhow::Ok(all)
        }
    });
    let all = try_join_all(lives).await?.concat();
    let made = stage.requests().await?;
    for task in &all {
        let name = job_name_of(task);
        let jobs = made
            .iter()
            .filter(|e| e.action() == "create jobs" && e.name == name && e.code < 300);
        assert!(jobs.count() <= 1, "{name}");
    }
    assert_eq!(all.len(), NAMES * (ROUNDS + 1));
    stage.passed();
    Ok(())
}
