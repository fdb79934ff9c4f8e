//! How many finished tasks a namespace keeps, and how fast the others go.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobSucceeded};
use renderhub::api::labels::FINALIZER;
use renderhub::plan::task::retention::PACE;
use renderhub_harness::audit::{Event, Mark};
use renderhub_harness::finish::Exit;
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use support::{LIMIT, Stage};

/// Finished tasks of the namespace with too many.
const MANY: usize = 300;
/// Those that are kept in each.
const KEPT: usize = 20;
/// Writes of the test in flight.
const AT_ONCE: usize = 16;
/// Longest that the removal of all may take: several times what their pace makes of it.
const REMOVED: Duration = Duration::from_secs(120);

trait Kept {
    /// Tasks of a namespace that a hub finished before, the one of a number so many seconds ago.
    async fn finished(&self, namespace: &str, count: usize, ago: impl Fn(usize) -> usize) -> Result<()>;
    async fn names(&self, namespace: &str) -> Result<BTreeSet<String>>;
    /// Waits until a namespace has exactly these tasks.
    async fn only(&self, namespace: &str, names: &BTreeSet<String>) -> Result<()>;
    /// Tasks that the hub deleted.
    async fn removals(&self, since: Mark) -> Result<Vec<Event>>;
}

impl Kept for Stage {
    async fn finished(&self, namespace: &str, count: usize, ago: impl Fn(usize) -> usize) -> Result<()> {
        let tasks: Api<RenderTask> = Api::namespaced(self.admin.clone(), namespace);
        let ago = &ago;
        // Of one moment: making them all takes a while.
        let now = Timestamp::now();
        let made = (0..count).map(|number| {
            let tasks = tasks.clone();
            async move {
                let mut task = self.task(&format!("old-{number}"));
                task["metadata"]["namespace"] = json!(namespace);
                task["metadata"]["finalizers"] = json!([FINALIZER]);
                let task: RenderTask = serde_json::from_value(task)?;
                let task = tasks.create(&PostParams::default(), &task).await?;
                let ended = now - SignedDuration::from_secs(i64::try_from(ago(number))?);
                let status = self.sealed(&task, succeeded(ended)).await?;
                let patch = Patch::Merge(json!({"status": status}));
                tasks
                    .patch_status(&task.name_any(), &PatchParams::default(), &patch)
                    .await?;
                Ok::<_, anyhow::Error>(())
            }
        });
        stream::iter(made).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn names(&self, namespace: &str) -> Result<BTreeSet<String>> {
        let tasks: Api<RenderTask> = Api::namespaced(self.admin.clone(), namespace);
        let list = tasks.list(&ListParams::default()).await?;
        Ok(list.iter().map(ResourceExt::name_any).collect())
    }

    async fn only(&self, namespace: &str, names: &BTreeSet<String>) -> Result<()> {
        wait_for("the newest tasks alone to be left", REMOVED, async || {
            Ok((self.names(namespace).await? == *names).then_some(()))
        })
        .await
    }

    async fn removals(&self, since: Mark) -> Result<Vec<Event>> {
        let audit = self.plane.audit()?;
        let events = audit.between(since, audit.mark().await?)?;
        let is_removal =
            |e: &Event| e.verb == "delete" && e.resource == "rendertasks" && e.user == self.hub_user.name();
        Ok(events.into_iter().filter(is_removal).collect())
    }
}

fn succeeded(ended: Timestamp) -> Value {
    let ended = ended.to_string();
    json!({"completionTime": ended, "conditions": [{
        "type": "JobSucceeded", "status": "True", "reason": "JobSucceeded", "message": "done",
        "lastTransitionTime": ended, "observedGeneration": 1,
    }]})
}

/// Asserts that they were asked for at the hub's pace: on the whole, and never many at once.
fn are_paced(events: &[Event]) {
    let mut times: Vec<Timestamp> = events.iter().map(|event| event.received).collect();
    times.sort();
    assert!(!times.is_empty(), "nothing was removed");
    let took = times[times.len() - 1].duration_since(times[0]);
    let took = Duration::try_from(took).unwrap_or_default();
    let least = PACE * u32::try_from(times.len() - 1).unwrap_or_default() * 3 / 4;
    assert!(took >= least, "{} were removed in {took:?}", times.len());
    let within = |from: &Timestamp| {
        let until = *from + SignedDuration::from_secs(1);
        times.iter().filter(|at| *at >= from && **at < until).count()
    };
    let most = times.iter().map(within).max().unwrap_or_default();
    // What a busy machine held up comes a little closer.
    let bound = Duration::from_secs(1).as_millis() / PACE.as_millis();
    assert!(
        u128::try_from(most).is_ok_and(|most| most <= 2 * bound),
        "{most} in one second"
    );
}

/// How many seconds ago the old ones ended: in another order than their names and their creations.
fn ago(number: usize) -> usize {
    10 + number * 7 % MANY
}

/// The newest of the old ones.
fn left(count: usize) -> BTreeSet<String> {
    let newest = (0..MANY).filter(|number| ago(*number) < 10 + count);
    newest.map(|number| format!("old-{number}")).collect()
}

#[tokio::test]
async fn the_newest_are_kept_and_the_others_go_at_their_pace_over_restarts() -> Result<()> {
    let keep = format!("--keep-finished-per-namespace={KEPT}");
    let mut stage = Stage::without_hub("keep", &[&keep]).await?;
    let (many, few) = (stage.scope.tenant.clone(), stage.plane.namespace("few").await?);
    stage.also_watch(&few).await?;
    stage.make_registry().await?;
    stage.finished(&many, MANY, ago).await?;
    stage.finished(&few, KEPT, |number| number).await?;
    let start = stage.plane.audit()?.mark().await?;
    stage.start_hub().await?;
    wait_for("some to be removed", LIMIT, async || {
        Ok((stage.names(&many).await?.len() < MANY - 40).then_some(()))
    })
    .await?;
    stage.kill_hub();
    let again = stage.plane.audit()?.mark().await?;
    stage.start_hub().await?;
    stage.only(&many, &left(KEPT)).await?;
    let removals = stage.removals(start).await?;
    assert!(removals.iter().all(|event| event.namespace == many));
    // Those that were under way when the hub was killed may have been asked for twice; a slow API server has a few.
    assert!(
        (MANY - KEPT..=MANY - KEPT + 8).contains(&removals.len()),
        "{} were removed",
        removals.len()
    );
    are_paced(&stage.removals(again).await?);

    // One more ends, and one less is left of the old; it needs no sweep.
    let task = stage.submit(stage.task("new")).await?;
    stage.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let mut expected = left(KEPT - 1);
    expected.insert("new".to_owned());
    stage.only(&many, &expected).await?;
    assert_eq!(
        stage.names(&few).await?.len(),
        KEPT,
        "nothing of others is touched"
    );
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_failed_task_is_not_counted_while_its_job_is_kept() -> Result<()> {
    let mut stage = Stage::without_hub("keep-failed", &["--keep-finished-per-namespace=1"]).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    let exit = || Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    let kept = stage.submit_with("kept", json!({"failedJobTTL": 3600})).await?;
    let short = stage.submit_with("short", json!({"failedJobTTL": 1})).await?;
    for task in [&kept, &short] {
        stage.fail(task, exit(), "PodFailurePolicy").await?;
        stage.condition(task, JobFailed, "True", "JobFailed").await?;
    }
    stage.cleared(&short).await?;
    for name in ["first", "second"] {
        let task = stage.submit(stage.task(name)).await?;
        stage.complete(&task).await?;
        stage
            .condition(&task, JobSucceeded, "True", "JobSucceeded")
            .await?;
        // Ends are recorded in seconds; of two in one second either may count as the newer.
        let ended = Timestamp::now().as_second();
        wait_for("the next second", LIMIT, async || {
            Ok((Timestamp::now().as_second() > ended).then_some(()))
        })
        .await?;
    }
    let expected = ["kept", "second"].map(str::to_owned).into();
    let tenant = stage.scope.tenant.clone();
    stage.only(&tenant, &expected).await?;
    assert_eq!(
        stage.objects(&kept).await?,
        (true, true),
        "it can still be looked at"
    );
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_removed_yet_is_removed_later() -> Result<()> {
    let mut stage = Stage::without_hub("keep-later", &["--keep-finished-per-namespace=0"]).await?;
    stage.make_registry().await?;
    stage.finished(&stage.scope.tenant, 3, |number| number).await?;
    let tasks = stage.tasks();
    // Another finalizer keeps one of them.
    let held = json!({"metadata": {"finalizers": [FINALIZER, "somebody.test/looks"]}});
    tasks
        .patch("old-1", &PatchParams::default(), &Patch::Merge(held))
        .await?;
    let start = stage.plane.audit()?.mark().await?;
    stage.start_hub().await?;
    let tenant = stage.scope.tenant.clone();
    stage.only(&tenant, &["old-1".to_owned()].into()).await?;
    wait_for("the hub to be done with the held one", LIMIT, async || {
        let held = tasks
            .get("old-1")
            .await?
            .metadata
            .finalizers
            .context("finalizers")?;
        Ok((held == ["somebody.test/looks"]).then_some(()))
    })
    .await?;
    // Another one comes and goes meanwhile.
    let task = stage.submit(stage.task("new")).await?;
    stage.complete(&task).await?;
    stage.only(&tenant, &["old-1".to_owned()].into()).await?;
    let asked = stage.removals(start).await?;
    let of_held = asked.iter().filter(|event| event.name == "old-1").count();
    assert_eq!(of_held, 1, "it is being deleted already, and not again and again");
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    tasks.patch("old-1", &PatchParams::default(), &free).await?;
    stage.passed();
    Ok(())
}
