//! No tenant keeps the hub busy by writing much: not on tasks, not with tasks, and not on objects that only look like the hub's.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "storms/large.rs"]
mod large;

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub::api::{QueuePolicy, RenderTask};
use renderhub_harness::{apply, finish, turn, wait_for};
use serde_json::json;
use support::careless::put_status;
use support::{LIMIT, Stage, has, job_name_of};
use tokio::time::{Instant, interval};

/// How long a storm lasts.
const STORM: Duration = Duration::from_secs(60);
/// Time between two writes of a storm: 100 a second.
const BEAT: Duration = Duration::from_millis(10);
/// Jobs in a tenant's namespace that look like the hub's.
const FORGED: usize = 10_000;
/// Tasks of one namespace that come at once.
const FLOOD: usize = 300;
/// Writes of the test in flight.
const AT_ONCE: usize = 32;

trait Storms {
    /// Writes an annotation a hundred times a second; how often it was written.
    async fn storm(&self, name: &str) -> Result<usize>;
    /// Writes a false status as often as the API server takes one; how often.
    async fn fight(&self, name: &str) -> Result<usize>;
    /// What the hub asked for about an object of this name since then: reads, and writes.
    async fn asked(&self, name: &str, since: Timestamp) -> Result<(usize, usize)>;
}

impl Storms for Stage {
    async fn storm(&self, name: &str) -> Result<usize> {
        let (mut beat, end) = (interval(BEAT), Instant::now() + STORM);
        let beats = stream::poll_fn(move |cx| beat.poll_tick(cx).map(Some));
        let beats = beats.take_while(move |at| futures::future::ready(*at < end));
        let tasks = self.tasks();
        let writes = beats.enumerate().map(|(number, _)| {
            let (tasks, number) = (tasks.clone(), number.to_string());
            async move {
                let note = Patch::Merge(json!({"metadata": {"annotations": {"storm": number}}}));
                tasks.patch(name, &PatchParams::default(), &note).await.map(drop)
            }
        });
        // More at once only make the API server repeat its own work on the one object, until it gives up on some.
        let answers: Vec<kube::Result<()>> = writes.buffer_unordered(4).collect().await;
        Ok(answers.iter().filter(|answer| answer.is_ok()).count())
    }

    async fn fight(&self, name: &str) -> Result<usize> {
        let (tasks, end) = (self.careless_tenant().await?, Instant::now() + STORM);
        let mut beat = interval(BEAT);
        let mut writes = 0;
        while beat.tick().await < end {
            let answer = put_status(&tasks, name, &json!({"attempts": writes % 1_000})).await;
            writes += usize::from(answer.is_ok());
        }
        Ok(writes)
    }

    async fn asked(&self, name: &str, since: Timestamp) -> Result<(usize, usize)> {
        let all = self.requests().await?;
        let about = all
            .iter()
            .filter(|e| e.name == name && e.received >= since && e.verb != "watch");
        let (writes, reads): (Vec<_>, Vec<_>) = about.partition(|e| e.is_write());
        Ok((reads.len(), writes.len()))
    }
}

/// Holds: D2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_writes_costs_the_hub_one_a_second() -> Result<()> {
    let _turn = turn().await?;
    let stage = Stage::new("storm").await?;
    let (calm, fought) = (stage.scheduled("noted").await?, stage.scheduled("fought").await?);
    stage.succeeds(&fought).await?;
    let result = stage.tasks().get("fought").await?.status;
    let begin = Timestamp::now();
    let (notes, lies) = tokio::try_join!(stage.storm("noted"), stage.fight("fought"))?;
    let seconds = usize::try_from(Timestamp::now().duration_since(begin).as_secs())?;
    wait_for("the result to be put right", LIMIT, async || {
        Ok((stage.tasks().get("fought").await?.status == result).then_some(()))
    })
    .await?;
    let seen = stage.counted("renderhub_forged_statuses_total", &[]).await?;
    println!("{notes} notes and {lies} false statuses, of which {seen} were seen, in {seconds} s");
    assert!(notes > 600 && lies > 120, "{notes} notes, {lies} false statuses");
    assert_eq!(
        stage.asked("noted", begin).await?.1,
        0,
        "a note is no reason to write"
    );
    let (reads, writes) = stage.asked("fought", begin).await?;
    println!("{reads} reads, {writes} writes");
    // One more for the end, and one for what is left of a second.
    assert!(
        writes <= seconds + 2 && reads <= seconds + 2,
        "{reads} reads, {writes} writes in {seconds} s"
    );
    assert!(writes > seconds / 10, "{writes} writes are no defence");
    stage.succeeds(&calm).await?;
    for task in [&calm, &fought] {
        assert_eq!(stage.successes("create jobs", &job_name_of(task)).await?, 1);
    }
    stage.passed();
    Ok(())
}

/// Passes for a Job that runs on: the hub looks whether its pods wait for an image after 20 s, and then after pauses that double.
const LOOKS: u64 = 3;

/// A Job in the tenant's namespace with the name and every mark of the hub's own; but for the first, a number more.
fn forged(task: &RenderTask, ours: &Job, number: usize) -> Job {
    let (spec, mut job) = (
        json!({"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "renderer", "image": "foreign.test/x"}],
        }}}),
        Job::default(),
    );
    job.spec = serde_json::from_value(spec).ok();
    let suffix = if number == 0 {
        String::new()
    } else {
        format!("-{number}")
    };
    job.metadata.name = Some(job_name_of(task) + &suffix);
    job.metadata.labels = Some(ours.labels().clone());
    job.metadata.annotations = Some(ours.annotations().clone());
    job.metadata.owner_references = task.controller_owner_ref(&()).map(|owner| vec![owner]);
    job
}

/// Holds: T3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_tenant_are_not_looked_at() -> Result<()> {
    let _turn = turn().await?;
    let stage = Stage::new("jobs").await?;
    let task = stage.scheduled("shop").await?;
    let ours = stage.job_of(&task).await?;
    let jobs: Api<Job> = Api::namespaced(stage.admin.clone(), &stage.scope.tenant);
    let before = stage
        .counted("renderhub_reconcile_duration_seconds_count", &[])
        .await?;
    let begin = Timestamp::now();
    let make = |number: usize| {
        let (jobs, job) = (jobs.clone(), forged(&task, &ours, number));
        async move { jobs.create(&PostParams::default(), &job).await.map(drop) }
    };
    let mut all = stream::iter((0..FORGED).map(make)).buffer_unordered(AT_ONCE);
    while all.try_next().await?.is_some() {}
    println!(
        "{FORGED} Jobs in {} s",
        Timestamp::now().duration_since(begin).as_secs()
    );
    let after = stage
        .counted("renderhub_reconcile_duration_seconds_count", &[])
        .await?;
    let passes = after - before;
    assert!(passes <= LOOKS, "{passes} passes for the Jobs of a tenant");
    let name = job_name_of(&task);
    assert_eq!(stage.asked(&name, begin).await?, (0, 0));
    stage.succeeds(&task).await?;
    assert!(jobs.get_opt(&name).await?.is_some(), "the tenant's own stays");
    stage.passed();
    Ok(())
}

/// Holds: D1.
#[tokio::test]
async fn a_flood_in_one_namespace_holds_up_no_other() -> Result<()> {
    let _turn = turn().await?;
    let caps = ["--max-active-jobs=2", "--max-active-jobs-per-namespace=2"];
    let mut stage = Stage::without_hub("flood", &caps).await?;
    let calm = stage.plane.namespace("calm").await?;
    stage.also_watch(&calm).await?;
    stage
        .put_registry(json!({"allowedNamespaces": [stage.scope.tenant, calm]}))
        .await?;
    stage.start_hub().await?;
    let tasks = (0..FLOOD).map(|number| stage.submit(stage.task(&format!("flood-{number}"))));
    stream::iter(tasks)
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    let running = wait_for("the flood to take every slot", LIMIT, async || {
        let all = stage.tasks().list(&ListParams::default()).await?.items;
        let runs = |t: &RenderTask| {
            let status = t.status.clone().unwrap_or_default();
            has(&status, JobScheduled, "True", "JobScheduled")
        };
        let running: Vec<_> = all.into_iter().filter(runs).collect();
        Ok((running.len() == 2).then_some(running))
    })
    .await?;

    let mut task = stage.task("calm");
    task["metadata"]["namespace"] = json!(calm);
    task["spec"]["repository"] = json!(format!("{calm}/shop"));
    let of_calm: Api<RenderTask> = Api::namespaced(stage.admin.clone(), &calm);
    of_calm
        .create(&PostParams::default(), &serde_json::from_value(task)?)
        .await?;
    let line = format!("renderhub_waiting_tasks {}", FLOOD - 2 + 1);
    wait_for("the hub to know of all that wait", LIMIT, async || {
        let text = stage.hub().metrics().await?;
        Ok(text.lines().any(|l| l == line).then_some(()))
    })
    .await?;
    // One slot is given back and no other ever will be: it goes to the tenant that came last, and not to the one that asks most.
    stage.complete(&running[0]).await?;
    wait_for("the calm tenant's turn", LIMIT, async || {
        let status = of_calm.get("calm").await?.status.unwrap_or_default();
        Ok(has(&status, JobScheduled, "True", "JobScheduled").then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}

/// Tasks of each namespace that share one slot.
const SHARED: usize = 18;

trait Lines {
    /// Ends the one Job that runs; the namespace of its task.
    async fn end_one(&self, ended: &mut Vec<String>) -> Result<String>;
    /// Waits until so many tasks are in line, as the metrics have it.
    async fn wait_in_line(&self, lines: &[String]) -> Result<()>;
}

impl Lines for Stage {
    async fn end_one(&self, ended: &mut Vec<String>) -> Result<String> {
        let job = wait_for("the next Job", LIMIT, async || {
            let jobs = self.jobs().list(&ListParams::default()).await?;
            Ok(jobs.into_iter().find(|job| !ended.contains(&job.name_any())))
        })
        .await?;
        ended.push(job.name_any());
        let message = json!({"phase": "Push", "reason": "Pushed", "digest": support::DIGEST}).to_string();
        finish::pod_for_job(&self.admin, &job, &[finish::Exit::new("renderer", 0, message)]).await?;
        finish::complete_job(&self.admin, &self.scope.rendering, &job.name_any()).await?;
        Ok(job.annotations()["renderhub.dev/task-namespace"].clone())
    }

    async fn wait_in_line(&self, lines: &[String]) -> Result<()> {
        wait_for("the tasks to stand in line", LIMIT, async || {
            let text = self.hub().metrics().await?;
            let has = |line: &String| text.lines().any(|shown| shown == line);
            Ok(lines.iter().all(has).then_some(()))
        })
        .await
    }
}

/// Holds: B14.
#[tokio::test]
async fn the_number_of_waiting_tasks_is_shown_and_not_their_owner() -> Result<()> {
    let caps = ["--max-active-jobs=1", "--max-active-jobs-per-namespace=1"];
    let stage = Stage::with_flags("unnamed", &caps).await?;
    for number in 0..3 {
        stage.submit(stage.task(&format!("task-{number}"))).await?;
    }
    stage
        .wait_in_line(&["renderhub_queue_depth 2".to_owned()])
        .await?;
    let text = stage.hub().metrics().await?;
    assert!(!text.contains(&stage.scope.tenant), "{text}");
    stage.passed();
    Ok(())
}

/// Holds: D1.
#[tokio::test]
async fn a_namespace_has_the_turns_that_the_platform_gives_it() -> Result<()> {
    let caps = [
        "--max-active-jobs=1",
        "--max-active-jobs-per-namespace=1",
        "--metrics-by-namespace",
    ];
    let mut stage = Stage::without_hub("turns", &caps).await?;
    let (light, heavy) = (stage.scope.tenant.clone(), stage.plane.namespace("heavy").await?);
    stage.also_watch(&heavy).await?;
    stage
        .put_registry(json!({"allowedNamespaces": [light, heavy]}))
        .await?;
    let policy = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "QueuePolicy", "metadata": {"name": heavy},
        "spec": {"namespaces": [heavy], "weight": 3},
    });
    apply::object(&stage.admin, policy).await?;
    for number in 0..SHARED {
        stage.submit(stage.task(&format!("light-{number}"))).await?;
        let mut task = stage.task(&format!("heavy-{number}"));
        task["metadata"]["namespace"] = json!(heavy);
        task["spec"]["repository"] = json!(format!("{heavy}/shop"));
        let of_heavy: Api<RenderTask> = Api::namespaced(stage.admin.clone(), &heavy);
        let task: RenderTask = serde_json::from_value(task)?;
        of_heavy.create(&PostParams::default(), &task).await?;
    }
    stage.start_hub().await?;
    stage
        .wait_in_line(&[format!("renderhub_waiting_tasks {}", 2 * SHARED - 1)])
        .await?;
    let mut ended = Vec::new();
    stage.end_one(&mut ended).await?;
    let mut turns = Vec::new();
    for _ in 0..12 {
        turns.push(stage.end_one(&mut ended).await?);
    }
    let of_heavy = turns.iter().filter(|namespace| **namespace == heavy).count();
    assert!(
        (8..=10).contains(&of_heavy),
        "three of four, within one: {turns:?}"
    );
    assert!(
        stage
            .hub()
            .metrics()
            .await?
            .contains(&format!("renderhub_queue_depth{{namespace=\"{light}\"}}"))
    );

    // Without the policy they are equal; the one that runs had its slot before that.
    let policies: Api<QueuePolicy> = Api::all(stage.admin.clone());
    policies.delete(&heavy, &DeleteParams::default()).await?;
    stage.end_one(&mut ended).await?;
    let mut turns = Vec::new();
    for _ in 0..6 {
        turns.push(stage.end_one(&mut ended).await?);
    }
    let of_heavy = turns.iter().filter(|namespace| **namespace == heavy).count();
    assert!((2..=4).contains(&of_heavy), "half of them, within one: {turns:?}");
    while ended.len() < 2 * SHARED {
        stage.end_one(&mut ended).await?;
    }
    wait_for("no namespace to be shown any more", LIMIT, async || {
        let text = stage.hub().metrics().await?;
        Ok((!text.contains("renderhub_queue_depth{")).then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}
