//! What a task costs the API server, counted in its audit log; writes are the currency.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobScheduled, JobSucceeded};
use renderhub::api::labels::FINALIZER;
use renderhub_harness::audit::Mark;
use renderhub_harness::wait_for;
use serde_json::{Value, json};
use support::instances::until_renewed;
use support::{DIGEST, LIMIT, Stage, plane};

/// Tasks whose writes are counted.
const TASKS: usize = 8;
/// Finished tasks that a hub finds when it starts.
const FINISHED: usize = 1000;

/// What is asked by a create and leaves nothing behind.
const QUESTIONS: [&str; 4] = [
    "create localsubjectaccessreviews",
    "create selfsubjectaccessreviews",
    "create selfsubjectreviews",
    "create selfsubjectrulesreviews",
];

type Counts = BTreeMap<String, usize>;

/// What the hub asked for since `begin`, without watches, without what it asks before it starts and without its Lease, which
/// cost the same whatever there is to do.
async fn counts(stage: &Stage, begin: Mark) -> Result<Counts> {
    let mut counts = stage.plane.audit()?.counts(begin, stage.hub_user.name()).await?;
    let is_housekeeping = |action: &str| action.ends_with("reviews") || action.ends_with(" leases");
    counts.retain(|action, _| !action.starts_with("watch ") && !is_housekeeping(action));
    Ok(counts)
}

/// Runs tasks from their creation to the last write for them, and counts.
async fn cost_of_successes(stage: &Stage) -> Result<Counts> {
    let begin = stage.plane.audit()?.mark().await?;
    let names = (0..TASKS).map(|number| format!("shop-{number}"));
    let tasks: Vec<_> = stream::iter(names)
        .then(|name| async move { stage.submit(stage.task(&name)).await })
        .try_collect()
        .await?;
    for task in &tasks {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
        stage.complete(task).await?;
    }
    for task in &tasks {
        stage
            .condition(task, JobSucceeded, "True", "JobSucceeded")
            .await?;
        stage.cleared(task).await?;
    }
    wait_for("the last event", LIMIT, async || {
        Ok((stage.events().await?.len() >= TASKS).then_some(()))
    })
    .await?;
    counts(stage, begin).await
}

fn sum(counts: &Counts, is_one: impl Fn(&str) -> bool) -> usize {
    let matching = counts.iter().filter(|(action, _)| is_one(action));
    matching.map(|(_, count)| count).sum()
}

fn is_event(action: &str) -> bool {
    action.ends_with(" events")
}

fn is_read(action: &str) -> bool {
    action.starts_with("get ") || action.starts_with("list ")
}

/// Asserts that each task cost exactly this: one of each but two statuses, an event or two; a read at most, of its pods, where
/// their watch was behind that of Jobs.
fn assert_cost(counts: &Counts, finalizers: usize) {
    let writes: Counts = counts
        .iter()
        .filter(|(action, _)| !is_read(action) && !is_event(action))
        .map(|(action, count)| (action.clone(), *count))
        .collect();
    let mut expected: Counts = [
        ("create secrets", 1),
        ("create jobs", 1),
        ("patch rendertasks/status", 2),
        ("delete jobs", 1),
        ("delete secrets", 1),
    ]
    .into_iter()
    .map(|(action, each)| (action.to_owned(), each * TASKS))
    .collect();
    if finalizers > 0 {
        expected.insert("patch rendertasks".to_owned(), finalizers * TASKS);
    }
    assert_eq!(writes, expected);
    let reads = sum(counts, is_read);
    assert!(reads <= TASKS, "{reads} reads for {TASKS} tasks: {counts:?}");
    let of_pods = sum(counts, |action| action == "list pods");
    assert_eq!(reads, of_pods, "the watch shows how a Job ended: {counts:?}");
    let events = sum(counts, is_event);
    assert!(events <= 2 * TASKS, "{events} events for {TASKS} tasks");
}

#[tokio::test]
async fn a_success_costs_seven_writes_and_no_read_of_its_job() -> Result<()> {
    let stage = Stage::new("seven").await?;
    assert_cost(&cost_of_successes(&stage).await?, 1);
    // The record of the namespace that it lists is written before tasks are treated by it, the verdict after that, each once.
    let count = stage
        .successes("patch clusterregistries/status", &stage.scope.tenant)
        .await?;
    assert_eq!(count, 2);
    stage.passed();
    Ok(())
}

/// Waits until the API server puts the finalizer on new tasks.
async fn until_finalized(stage: &Stage) -> Result<()> {
    let probe: RenderTask = serde_json::from_value(stage.task("probe"))?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait_for("the mutating policy to be in force", LIMIT, async || {
        let made = stage.tasks().create(&dry_run, &probe).await?;
        Ok((made.finalizers() == [FINALIZER]).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_success_costs_six_writes_where_the_api_server_sets_the_finalizer() -> Result<()> {
    let mut stage = Stage::on(plane::own_plane(&["crds", "policies"]).await?, "six", &[]).await?;
    until_finalized(&stage).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    assert_cost(&cost_of_successes(&stage).await?, 0);
    // Such a task is refused and deleted like any other.
    let refused = stage
        .submit_with("refused", json!({"registryRef": {"name": "no-such-registry"}}))
        .await?;
    assert_eq!(refused.finalizers(), [FINALIZER]);
    stage
        .condition(&refused, JobScheduled, "False", "RegistryNotAllowed")
        .await?;
    stage.delete(&refused).await?;
    stage.passed();
    Ok(())
}

/// The status of a task that ended some time ago, as the hub writes it.
fn finished_status(stage: &Stage, number: usize) -> Value {
    let now = Timestamp::now().to_string();
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "the chart was pushed",
            "observedGeneration": 1, "lastTransitionTime": now,
        })
    };
    let object = |api: &str, kind: &str| {
        json!({
            "apiVersion": api, "kind": kind, "namespace": stage.scope.rendering,
            "name": format!("render-old-{number}"), "uid": format!("00000000-0000-4000-8000-{number:012}"),
        })
    };
    let has_failed = number.is_multiple_of(10);
    let end = if has_failed { "JobFailed" } else { "JobSucceeded" };
    let ready = if has_failed { "False" } else { "True" };
    json!({
        "conditions": [
            condition("JobScheduled", "True", "JobScheduled"),
            condition(end, "True", end),
            condition("Ready", ready, end),
        ],
        "observedGeneration": 1, "jobRef": object("batch/v1", "Job"), "configSecretRef": object("v1", "Secret"),
        "chartURL": format!("oci://registry.test:5000/{}/shop:1.0.0", stage.scope.tenant),
        "digest": DIGEST, "attempts": 1, "startTime": now, "completionTime": now,
    })
}

async fn make_finished(stage: &Stage) -> Result<()> {
    let tasks: Api<RenderTask> = stage.tasks();
    let make = |number: usize| {
        let tasks = tasks.clone();
        async move {
            let mut task = stage.task(&format!("old-{number}"));
            task["metadata"]["finalizers"] = json!([FINALIZER]);
            if number.is_multiple_of(10) {
                task["spec"]["failedJobTTL"] = json!(0);
            }
            let task = stage.submit(task).await?;
            let status = stage.sealed(&task, finished_status(stage, number)).await?;
            let status = Patch::Merge(json!({"status": status}));
            tasks
                .patch_status(&task.name_any(), &PatchParams::default(), &status)
                .await?;
            anyhow::Ok(())
        }
    };
    stream::iter((0..FINISHED).map(make))
        .buffer_unordered(8)
        .try_collect()
        .await
}

/// Holds: B23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_writes_nothing_for_a_thousand_finished_tasks() -> Result<()> {
    let mut stage = Stage::without_hub("restart", &[]).await?;
    make_finished(&stage).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    // One more task runs to its end behind them all, so that whatever they ask for has been done.
    stage.barrier().await?;
    let made = stage.requests().await?;
    let about_old: Vec<_> = made
        .iter()
        .filter(|e| e.name.contains("old-"))
        .map(|e| (e.action(), &e.name))
        .collect();
    assert!(about_old.is_empty(), "{about_old:?}");
    stage.knows_finished().await?;

    // Once more, with nothing else to do at all: not a single write, and no object is read.
    stage.kill_hub();
    let begin = stage.plane.audit()?.mark().await?;
    stage.start_hub().await?;
    stage.knows_finished().await?;
    let asked = counts(&stage, begin).await?;
    let writes = sum(&asked, |action| !is_read(action));
    assert_eq!(writes, 0, "{asked:?}");
    let reads = sum(&asked, |action| {
        action.starts_with("get rendertasks") || action.starts_with("get jobs")
    });
    assert_eq!(reads, 0, "{asked:?}");
    // Not even later: what it wrote until its Lease was renewed is that Lease, by name.
    until_renewed(&stage).await?;
    let lease = stage.lease_name("").await?;
    let mut written = BTreeSet::new();
    let mut questions = BTreeSet::new();
    for event in stage.plane.audit()?.since(begin).await? {
        let is_answered = event.stage == "ResponseComplete" && event.user == stage.hub_user.name();
        if is_answered && event.is_write() {
            let is_question = QUESTIONS.contains(&event.action().as_str());
            let list = if is_question { &mut questions } else { &mut written };
            list.insert(format!("{} {}", event.action(), event.name));
        }
    }
    eprintln!("written: {written:?}, asked by a create: {questions:?}");
    assert_eq!(written, [format!("update leases {lease}")].into());
    stage.passed();
    Ok(())
}

trait Finished {
    /// Waits until the hub shows all finished tasks; it does once its first round over them is done.
    async fn knows_finished(&self) -> Result<()>;
}

impl Finished for Stage {
    async fn knows_finished(&self) -> Result<()> {
        wait_for("the metrics to show all tasks", LIMIT, async || {
            let text = self.hub().metrics().await?;
            let shows = |line: String| text.lines().any(|l| l == line);
            let (good, bad) = (FINISHED * 9 / 10, FINISHED / 10);
            let all = shows(format!("renderhub_tasks{{phase=\"succeeded\"}} {good}"))
                && shows(format!("renderhub_tasks{{phase=\"failed\"}} {bad}"));
            Ok(all.then_some(()))
        })
        .await
    }
}
