//! What a hub leaves behind is swept by the one that serves its namespace, and by no other.

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::labels::HUB_ID;
use renderhub_harness::audit::Mark;
use renderhub_harness::wait_for;
use serde_json::json;

use crate::{Two, is_hubs};
use support::forge::Marks;
use support::{LIMIT, Stage, job_name_of};

/// Removes a task while no watch shows it.
async fn snatch(stage: &Stage, task: &RenderTask) -> Result<()> {
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let name = task.name_any();
    stage.tasks().patch(&name, &PatchParams::default(), &none).await?;
    stage.tasks().delete(&name, &DeleteParams::default()).await?;
    wait_for("the task to be gone", LIMIT, async || {
        Ok(stage.tasks().get_opt(&name).await?.is_none().then_some(()))
    })
    .await
}

/// Waits until a hub has swept so many times from now on.
async fn sweeps(hub: &Stage, times: usize) -> Result<()> {
    let swept = async |begin: Mark| -> Result<usize> {
        let counts = hub.plane.audit()?.counts(begin, hub.hub_user.name()).await?;
        Ok(counts.get("list secrets").copied().unwrap_or_default())
    };
    let begin = hub.plane.audit()?.mark().await?;
    wait_for("sweeps", LIMIT, async || {
        Ok((swept(begin).await? >= times).then_some(()))
    })
    .await
}

impl Two {
    /// Labels of a hub of this cluster that does not run, for a task that exists or not.
    async fn kins(&self, task: &RenderTask) -> Result<(Marks, Marks)> {
        let own = self.to.hub_id().await?;
        let (_, cluster) = own.rsplit_once('-').expect("an id has two parts");
        let uid = task.uid().unwrap_or_default();
        let kin = self.moving.marks(task, &format!("gone-{cluster}"), &uid);
        Ok((kin, self.moving.marks(task, "gone-0123abcd", &uid)))
    }
}

/// Holds: C5, D3.
#[tokio::test]
async fn only_the_hub_of_a_namespace_sweeps_what_another_hub_left_of_it() -> Result<()> {
    let mut two = Two::new("sweep", &["--gc-interval=1s"]).await?;
    let (gone, job) = two.started("gone", json!({})).await?;
    let (never, _) = two.started("never", json!({})).await?;
    let (cut, _) = two.started("cut", json!({})).await?;
    two.leave().await?;
    for task in [&gone, &never, &cut] {
        snatch(&two.moving, task).await?;
    }
    // Of a task that is gone too: made by a hub of another cluster, and one of a namespace that neither serves.
    let (of_kin, of_stranger) = two.kins(&never).await?;
    two.moving
        .jobs()
        .delete(&job_name_of(&never), &DeleteParams::background())
        .await?;
    wait_for("the name to be free", LIMIT, async || {
        let found = two.moving.jobs().get_opt(&job_name_of(&never)).await?;
        Ok(found.is_none().then_some(()))
    })
    .await?;
    let strangers = two.moving.forge_job(&job_name_of(&never), &of_stranger).await?;
    two.moving
        .secrets()
        .delete(&job_name_of(&never), &DeleteParams::default())
        .await?;
    let mut elsewhere = of_kin;
    let namespace = "renderhub.dev/task-namespace".to_owned();
    elsewhere
        .annotations
        .insert(namespace, "served-by-nobody".to_owned());
    let others = two.moving.forge_secret(&job_name_of(&never), &elsewhere).await?;
    for hub in [&two.from, &two.to] {
        sweeps(hub, 3).await?;
    }
    assert_eq!(two.moving.objects(&gone).await?, (true, true), "it is nobody's");
    assert_eq!(two.moving.jobs().get(&job.name_any()).await?.uid(), job.uid());

    two.arrive().await?;
    for task in [&gone, &cut] {
        two.moving.cleared(task).await?;
    }
    sweeps(&two.to, 3).await?;
    two.moving.job_is_untouched(&strangers).await?;
    two.moving.secret_is_untouched(&others).await?;
    ensure!(two.to.counted("renderhub_orphans_removed_total", &[]).await? >= 4);
    two.passed();
    Ok(())
}

/// Holds: C5.
#[tokio::test]
async fn what_only_looks_like_another_hubs_is_left_alone() -> Result<()> {
    let mut two = Two::new("lookalike", &["--gc-interval=1s"]).await?;
    // A Job of the task's name and UID by a hub of this cluster, but of another spec; the same by a hub of another cluster.
    for number in 0..2 {
        two.from.kill_hub();
        let task = two
            .moving
            .submit(two.moving.task(&format!("shop-{number}")))
            .await?;
        let (kin, stranger) = two.kins(&task).await?;
        let marks = if number == 0 { kin } else { stranger };
        let foreign = two.moving.forge_job(&job_name_of(&task), &marks).await?;
        two.from.start_hub().await?;
        two.moving.conflicts(&task).await?;
        sweeps(&two.from, 3).await?;
        sweeps(&two.to, 3).await?;
        two.moving.job_is_untouched(&foreign).await?;
    }
    two.passed();
    Ok(())
}

/// A Job that one hub made its own and another one's id is on again, as after a move of which a part came late: the watch shows
/// that it went, and the sweep finds it.
///
/// Holds: C5.
#[tokio::test]
async fn a_job_that_carries_another_hubs_id_is_taken_over_while_the_hub_runs() -> Result<()> {
    let two = Two::new("late", &["--gc-interval=1s"]).await?;
    let (task, job) = two.started("shop", json!({})).await?;
    let name = job.name_any();
    let other = Patch::Merge(json!({"metadata": {"labels": {HUB_ID: two.to.hub_id().await?}}}));
    two.moving
        .jobs()
        .patch(&name, &PatchParams::default(), &other)
        .await?;
    let now = is_hubs(&two.moving, &two.from.hub_id().await?, &task).await?;
    assert_eq!(now.uid(), job.uid());
    two.moving.complete(&task).await?;
    two.succeeds(&task).await?;
    two.made_once(&[&task]).await?;
    two.passed();
    Ok(())
}
