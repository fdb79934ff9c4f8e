//! A namespace that moves from one hub to another: Jobs that run go on, Jobs that ended are reported correctly, and nothing is
//! made twice.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "moving/elsewhere.rs"]
mod elsewhere;
#[path = "moving/sweeps.rs"]
mod sweeps;
#[path = "moving/unowned.rs"]
mod unowned;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub::api::labels::HUB_ID;
use renderhub_harness::audit::Mark;
use renderhub_harness::finish::Exit;
use renderhub_harness::wait_for;
use serde_json::json;
use support::{DIGEST, LIMIT, Stage, job_name_of};

/// Two hubs with one rendering namespace, and a namespace that moves between them.
struct Two {
    /// The hub that has the namespace at first.
    from: Stage,
    /// The hub that gets it.
    to: Stage,
    /// The namespace, with no hub of its own.
    moving: Stage,
}

impl Two {
    /// Both hubs run, and the first one serves the namespace.
    async fn new(prefix: &str, flags: &[&str]) -> Result<Self> {
        let mut from = Stage::without_hub(&format!("{prefix}-from"), flags).await?;
        let mut to = Stage::without_hub(&format!("{prefix}-to"), flags).await?;
        let mut moving = Stage::without_hub(&format!("{prefix}-moving"), flags).await?;
        for stage in [&mut to, &mut moving] {
            stage.scope.rendering.clone_from(&from.scope.rendering);
        }
        moving.make_registry().await?;
        for stage in [&from, &to] {
            stage
                .put_registry(json!({"pushSecretRef": {"name": "push"}}))
                .await?;
        }
        from.watch_besides(&[&moving.scope.tenant]).await?;
        to.watch_besides(&[]).await?;
        from.start_hub().await?;
        to.start_hub().await?;
        Ok(Self { from, to, moving })
    }

    /// The first hub ends, as it does when its list is changed; until [`Two::arrive`] no hub watches the namespace.
    async fn leave(&mut self) -> Result<Mark> {
        move_out(&mut self.from).await
    }

    /// The second hub starts anew with the namespace in its list.
    async fn arrive(&mut self) -> Result<()> {
        move_in(&mut self.to, &self.moving.scope.tenant).await
    }

    /// Waits until the task's Job is the second hub's.
    async fn is_adopted(&self, task: &RenderTask) -> Result<Job> {
        is_hubs(&self.moving, &self.to.hub_id().await?, task).await
    }

    fn passed(self) {
        for stage in [self.from, self.to, self.moving] {
            stage.passed();
        }
    }
}

/// Ends a hub and starts it with a list that holds its own namespace only; the place in the audit log from which it must
/// not have asked for anything of another.
async fn move_out(hub: &mut Stage) -> Result<Mark> {
    let ended = hub.hub().sigterm(LIMIT).await?;
    ensure!(ended.code() == Some(0), "{}", hub.hub().log());
    let mark = hub.plane.audit()?.mark().await?;
    hub.watch_besides(&[]).await?;
    hub.start_hub().await?;
    Ok(mark)
}

async fn move_in(hub: &mut Stage, namespace: &str) -> Result<()> {
    let ended = hub.hub().sigterm(LIMIT).await?;
    ensure!(ended.code() == Some(0), "{}", hub.hub().log());
    hub.watch_besides(&[namespace]).await?;
    hub.start_hub().await
}

async fn is_hubs(stage: &Stage, hub_id: &str, task: &RenderTask) -> Result<Job> {
    let name = job_name_of(task);
    wait_for("the Job to be taken over", LIMIT, async || {
        let job = stage.jobs().get_opt(&name).await?;
        Ok(job.filter(|job| job.labels().get(HUB_ID).is_some_and(|id| id == hub_id)))
    })
    .await
}

/// What a hub recorded as if it had not: as after the crash between making the objects and saying so.
async fn forget_status(stage: &Stage, task: &RenderTask) -> Result<()> {
    let nothing = Patch::Merge(json!({"status": null}));
    stage
        .tasks()
        .patch_status(&task.name_any(), &PatchParams::default(), &nothing)
        .await?;
    Ok(())
}

impl Two {
    /// A task that runs under the first hub, and its Job.
    async fn started(&self, name: &str, spec: serde_json::Value) -> Result<(RenderTask, Job)> {
        let task = self.moving.submit_with(name, spec).await?;
        self.moving
            .condition(&task, JobScheduled, "True", "JobScheduled")
            .await?;
        let job = self.moving.job_of(&task).await?;
        Ok((task, job))
    }

    async fn succeeds(&self, task: &RenderTask) -> Result<()> {
        let status = self
            .moving
            .condition(task, JobSucceeded, "True", "JobSucceeded")
            .await?;
        assert_eq!(status.digest.as_deref(), Some(DIGEST), "the pod's word counts");
        assert_eq!(status.attempts, Some(1));
        self.moving.cleared(task).await
    }

    /// Each of these Jobs was made once, by whichever of the two.
    async fn made_once(&self, tasks: &[&RenderTask]) -> Result<()> {
        for task in tasks {
            let name = job_name_of(task);
            let by_from = self.from.successes("create jobs", &name).await?;
            let by_to = self.to.successes("create jobs", &name).await?;
            assert_eq!(by_from + by_to, 1, "{name}");
        }
        Ok(())
    }

    /// The first hub asked for nothing in the namespace since it left it, and the second one never for anything of the first
    /// one's own.
    async fn kept_to_their_own(&self, left: Mark) -> Result<()> {
        let of = |stages: &[&Stage]| -> BTreeSet<String> {
            let mut all: BTreeSet<_> = stages.iter().map(|s| s.scope.tenant.clone()).collect();
            all.insert(self.from.scope.rendering.clone());
            // Events on what has no namespace, such as a RenderCluster, are there; the rights let a hub do no more.
            all.insert("default".to_owned());
            all
        };
        let asked = self.from.namespaces_since(left, false).await?;
        ensure!(asked.is_subset(&of(&[&self.from])), "the first one: {asked:?}");
        let asked = self.to.namespaces_since(Mark::START, false).await?;
        ensure!(
            asked.is_subset(&of(&[&self.to, &self.moving])),
            "the second one: {asked:?}"
        );
        Ok(())
    }
}

/// Everything that the second hub finds must be known at its start and by its watch: no sweep comes to its help.
///
/// Holds: C5, M5.
#[tokio::test]
async fn what_one_hub_started_another_one_finishes() -> Result<()> {
    let mut two = Two::new("move", &["--gc-interval=1h"]).await?;
    let (running, job) = two.started("running", json!({})).await?;
    let (ended, _) = two.started("ended", json!({})).await?;
    let (broken, _) = two.started("broken", json!({})).await?;
    let (unsaid, unsaid_job) = two.started("unsaid", json!({})).await?;
    let (deleted, _) = two.started("deleted", json!({})).await?;
    let (failed, _) = two.started("failed", json!({"failedJobTTL": 15})).await?;
    let exit = || Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    two.moving.fail(&failed, exit(), "PodFailurePolicy").await?;
    two.moving
        .condition(&failed, JobFailed, "True", "JobFailed")
        .await?;

    let left = two.leave().await?;
    // No hub watches now.
    two.moving.complete(&ended).await?;
    two.moving.fail(&broken, exit(), "PodFailurePolicy").await?;
    forget_status(&two.moving, &unsaid).await?;
    two.moving
        .tasks()
        .delete("deleted", &DeleteParams::default())
        .await?;
    let waiting = two.moving.submit(two.moving.task("waiting")).await?;
    two.from.barrier().await?;
    two.arrive().await?;

    two.succeeds(&ended).await?;
    let status = two
        .moving
        .condition(&broken, JobFailed, "True", "JobFailed")
        .await?;
    let failure = status.failure.context("the pod's word")?;
    assert_eq!(failure.exit_code, Some(2));
    for (task, before) in [(&running, &job), (&unsaid, &unsaid_job)] {
        let now = two.is_adopted(task).await?;
        assert_eq!(now.uid(), before.uid(), "the Job that ran goes on");
        let status = two
            .moving
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
        assert_eq!(status.job_ref.and_then(|job| job.uid), before.uid());
    }
    for task in [&running, &unsaid, &waiting] {
        two.moving.complete(task).await?;
        two.succeeds(task).await?;
    }
    // What failed before stays for as long as its task says, and goes then.
    two.moving.cleared(&failed).await?;
    wait_for("the deleted task to be gone", LIMIT, async || {
        let task = two.moving.tasks().get_opt("deleted").await?;
        Ok(task.is_none().then_some(()))
    })
    .await?;
    two.moving.cleared(&deleted).await?;
    let all = [&running, &ended, &broken, &unsaid, &deleted, &failed, &waiting];
    two.made_once(&all).await?;
    two.kept_to_their_own(left).await?;

    // And back again.
    let (back, job) = two.started("back", json!({})).await?;
    let left = move_out(&mut two.to).await?;
    move_in(&mut two.from, &two.moving.scope.tenant).await?;
    let now = is_hubs(&two.moving, &two.from.hub_id().await?, &back).await?;
    assert_eq!(now.uid(), job.uid());
    two.moving.complete(&back).await?;
    two.succeeds(&back).await?;
    two.made_once(&[&back]).await?;
    let asked = two.to.namespaces_since(left, false).await?;
    ensure!(!asked.contains(&two.moving.scope.tenant), "{asked:?}");
    ensure!(two.from.counted("renderhub_adopted_jobs_total", &[]).await? >= 1);
    two.passed();
    Ok(())
}
