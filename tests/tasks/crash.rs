//! A hub that is killed with SIGKILL around any of its writes, and started again, comes to the same end.
//!
//! A proxy stops one write before the API server gets it, or after it was done and before the hub gets the answer; then the hub
//! is killed. Each path is tried with each of its writes, both ways.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub::api::labels::FINALIZER;
use renderhub_harness::finish::{self, Exit, Outcome};
use renderhub_harness::{apply, wait_for};
use serde_json::json;
use support::proxy::{Proxy, Stop};
use support::{DIGEST, LIMIT, Stage, has, job_name_of};

/// Writes of each path: finalizer, Secret, Job and status; then status and two deletes, or two deletes and the finalizer.
const WRITES: usize = 7;
/// Writes until the Job is recorded.
const STARTED: usize = 4;
/// Lives at once; each has a hub of its own.
const AT_ONCE: usize = 4;
/// The registry of every life; anonymous, so that no hub writes on it more than once.
const REGISTRY: &str = "crash";

#[derive(Clone, Copy, Debug)]
enum Path {
    Success,
    Failure,
    Deletion,
}

/// Where a hub is killed.
#[derive(Clone, Copy, Debug)]
struct Kill {
    path: Path,
    write: usize,
    stop: Stop,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_survives_a_kill_around_every_write() -> Result<()> {
    every_kill(Path::Success).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_survives_a_kill_around_every_write() -> Result<()> {
    every_kill(Path::Failure).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_survives_a_kill_around_every_write() -> Result<()> {
    every_kill(Path::Deletion).await
}

async fn every_kill(path: Path) -> Result<()> {
    make_registry().await?;
    let stops = [Stop::Before, Stop::After];
    let kills = (1..=WRITES).flat_map(|write| stops.map(|stop| Kill { path, write, stop }));
    let lives = kills.map(|kill| async move { survive(kill).await.with_context(|| format!("{kill:?}")) });
    stream::iter(lives).buffer_unordered(AT_ONCE).try_collect().await
}

async fn make_registry() -> Result<()> {
    let registry = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": REGISTRY},
        "spec": {"hostname": "registry.test:5000", "allowedNamespaces": ["*"]},
    });
    apply::object(&support::plane::admin().await?, registry).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_any_write_changes_nothing() -> Result<()> {
    make_registry().await?;
    let lives =
        (1..=WRITES).map(|write| async move { lose_answer(write).await.with_context(|| write.to_string()) });
    stream::iter(lives).buffer_unordered(AT_ONCE).try_collect().await
}

/// A success whose hub gets an error for a write that was done.
async fn lose_answer(write: usize) -> Result<()> {
    let mut stage = Stage::without_hub("lost", &[]).await?;
    let spec = json!({"registryRef": {"name": REGISTRY}});
    let task = stage.submit_with("shop", spec).await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    proxy.stop_at(write, Stop::Lost);
    let _hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    let ended = tokio::spawn(end_jobs(&stage, Path::Success));
    proxy.stopped().await?;
    succeeded(&stage, &task, secrets(write, Stop::Lost)).await?;
    ended.abort();
    stage.passed();
    Ok(())
}

/// A hub that knows of its Job neither by the answer nor by its watch leaves the config Secret, which a pod may be reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_stays_where_the_answer_of_its_job_is_lost_and_the_watch_is_late() -> Result<()> {
    make_registry().await?;
    let mut stage = Stage::without_hub("late", &[]).await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    hub.wait_ready().await?;
    proxy.hold_jobs(true);
    proxy.stop_when(Stop::Lost, |_, write| write.creates("jobs"));
    let task = stage
        .submit_with("shop", json!({"registryRef": {"name": REGISTRY}}))
        .await?;
    proxy.stopped().await?;
    let job = stage.job_of(&task).await?;
    let made = stage.secrets().get(&job.name_any()).await?.uid();
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let now = stage.secrets().get(&job.name_any()).await?.uid();
    ensure!(now == made, "the Secret of a Job that may run was made anew");
    proxy.hold_jobs(false);
    let ended = tokio::spawn(end_jobs(&stage, Path::Success));
    succeeded(&stage, &task, 1).await?;
    ended.abort();
    stage.passed();
    Ok(())
}

async fn survive(kill: Kill) -> Result<()> {
    let mut stage = Stage::without_hub("crash", &[]).await?;
    let spec = json!({"registryRef": {"name": REGISTRY}, "failedJobTTL": 0});
    let task = stage.submit_with("shop", spec).await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    proxy.stop_at(kill.write, kill.stop);
    let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    let ended = tokio::spawn(end_jobs(&stage, kill.path));
    let is_late = matches!(kill.path, Path::Deletion) && kill.write > STARTED;
    if is_late {
        stage
            .condition(&task, JobScheduled, "True", "JobScheduled")
            .await?;
        stage.tasks().delete("shop", &DeleteParams::default()).await?;
    }
    proxy.stopped().await?;
    hub.kill9();
    drop(proxy);
    if matches!(kill.path, Path::Deletion) && !is_late {
        stage.tasks().delete("shop", &DeleteParams::default()).await?;
    }
    stage.start_hub().await?;
    let secrets = secrets(kill.write, kill.stop);
    match kill.path {
        Path::Success => succeeded(&stage, &task, secrets).await?,
        Path::Failure => failed(&stage, &task, secrets).await?,
        Path::Deletion => deleted(&stage, kill).await?,
    }
    ended.abort();
    stage.passed();
    Ok(())
}

/// Ends the Jobs of a life as its path wants it; those of a deletion never end.
fn end_jobs(stage: &Stage, path: Path) -> impl Future<Output = ()> + use<> {
    let (client, namespace) = (stage.admin.clone(), stage.scope.rendering.clone());
    async move {
        let said = json!({"phase": "Push", "reason": "Pushed", "digest": DIGEST}).to_string();
        let outcome = match path {
            Path::Success => Outcome::Complete(said),
            Path::Failure => {
                let exit = Exit::new("renderer", 1, r#"{"phase":"Push","reason":"Forbidden"}"#);
                Outcome::Failed("BackoffLimitExceeded".to_owned(), exit)
            }
            Path::Deletion => return,
        };
        _ = finish::every_job(client, &namespace, |_| outcome.clone()).await;
    }
}

/// How often the config Secret is made: once more where a hub finds one that no Job uses yet, because its marks say nothing of what
/// it holds.
fn secrets(write: usize, stop: Stop) -> usize {
    match (write, stop) {
        (2, Stop::After | Stop::Lost) | (3, Stop::Before) => 2,
        _ => 1,
    }
}

async fn succeeded(stage: &Stage, task: &RenderTask, secrets: usize) -> Result<()> {
    let done = stage
        .condition(task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    ensure!(done.digest.as_deref() == Some(DIGEST), "the digest is lost");
    let url = format!("oci://registry.test:5000/{}/shop:1.0.0", stage.scope.tenant);
    ensure!(done.chart_url == Some(url) && done.failure.is_none());
    finished(stage, task, secrets).await
}

async fn failed(stage: &Stage, task: &RenderTask, secrets: usize) -> Result<()> {
    let failed = stage.condition(task, JobFailed, "True", "JobFailed").await?;
    let message = failed.failure.map(|f| f.message);
    ensure!(message.as_deref() == Some("the push credential may not push to this repository"));
    finished(stage, task, secrets).await
}

/// One Job, one result that never changes, a start and an end, and nothing left, before and after the deletion.
async fn finished(stage: &Stage, task: &RenderTask, secrets: usize) -> Result<()> {
    stage.cleared(task).await?;
    nothing_is_left(stage).await?;
    ensure!(made_jobs(stage).await? == 1, "there was another Job");
    let now = stage.tasks().get("shop").await?;
    ensure!(now.finalizers() == [FINALIZER], "the finalizer is gone");
    let last = now.status.context("a status")?;
    ensure!(last.start_time.is_some() && last.completion_time.is_some() && last.job_ref.is_some());
    for status in stage.history(task).await? {
        let has_ended = has(&status, JobSucceeded, "True", "JobSucceeded")
            || status.conditions.iter().any(|c| c.type_ == "JobFailed");
        ensure!(!has_ended || status == last, "there was another result");
    }
    stage.delete(task).await?;
    nothing_is_left(stage).await?;
    ensure!(made_jobs(stage).await? == 1, "there was another Job");
    ensure!(stage.successes("create secrets", &job_name_of(task)).await? == secrets);
    Ok(())
}

async fn deleted(stage: &Stage, kill: Kill) -> Result<()> {
    wait_for("the task to be gone", LIMIT, async || {
        Ok(stage.tasks().get_opt("shop").await?.is_none().then_some(()))
    })
    .await?;
    nothing_is_left(stage).await?;
    let was_made = kill.write > 3 || (kill.write == 3 && kill.stop == Stop::After);
    let made = made_jobs(stage).await?;
    ensure!(made == usize::from(was_made), "{made} Jobs were made");
    Ok(())
}

async fn nothing_is_left(stage: &Stage) -> Result<()> {
    wait_for("the rendering namespace to be empty", LIMIT, async || {
        let all = ListParams::default();
        let jobs = stage.jobs().list(&all).await?.items.len();
        let mut secrets = stage.secrets().list(&all).await?.items;
        secrets.retain(|secret| secret.name_any() != renderhub::kubernetes::seal_key::NAME);
        Ok((jobs + secrets.len() == 0).then_some(()))
    })
    .await
}

/// Jobs that were ever made in the life's namespace, by whomever.
async fn made_jobs(stage: &Stage) -> Result<usize> {
    let made = stage.requests().await?;
    let is_one = |e: &&renderhub_harness::audit::Event| e.action() == "create jobs" && e.code < 300;
    Ok(made.iter().filter(is_one).count())
}
