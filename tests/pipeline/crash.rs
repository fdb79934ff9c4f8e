//! A hub that is killed with SIGKILL around any write of a Target's life comes to the same end, and no tag stands for two contents.
//!
//! A proxy stops one write before the API server gets it, or after it was done and before the hub gets the answer; then the hub is
//! killed. The hub after it ends what was begun, until it is killed around the next write. Charts are pushed only where a story says
//! so, because a chart that is pushed early would spare the writes that say how far it is.

#[path = "crash/kinds.rs"]
mod kinds;
#[path = "crash/life.rs"]
mod life;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use renderhub::api::labels::TARGET_FINALIZER;
use renderhub::api::pipeline::{HydratedTargetSpec, Target};
use renderhub_harness::wait_for;
use serde_json::json;

use kinds::{
    ADDS_FINALIZER, DELETES_BOOTSTRAP_TASK, DELETES_RELEASE_TASK, DELETES_VERSION, Kind, LETS_TARGET_GO,
    MAKES_BOOTSTRAP_TASK, MAKES_RELEASE_TASK, MAKES_VERSION, SAYS_CHARTS_ARE_MISSING, SAYS_TARGET_IS_READY,
    SAYS_VERSION_IS_MISSING, SAYS_VERSION_IS_PUSHED,
};
use life::Life;
use support::LIMIT;
use support::proxy::Stop;

/// Tells a story with a kill before each write and with one after it, both at once.
macro_rules! both_ways {
    ($story:ident) => {{
        let told = async |stop: Stop| $story(stop).await.with_context(|| format!("killed {stop:?}"));
        tokio::try_join!(told(Stop::Before), told(Stop::After))?;
        Ok(())
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_version_survives_a_kill_around_every_write() -> Result<()> {
    both_ways!(first_version)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_replaces_others_survives_a_kill_around_every_write() -> Result<()> {
    both_ways!(third_version)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_while_a_killed_hub_is_away_never_gets_a_number_that_was_used() -> Result<()> {
    both_ways!(changes_while_away)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_target_goes_with_all_of_its_own_after_a_kill_around_every_write() -> Result<()> {
    both_ways!(deletion)
}

async fn first_version(stop: Stop) -> Result<()> {
    let mut life = Life::new("born", stop).await?;
    life.kill_at(&ADDS_FINALIZER).await?;
    life.kill_at(&MAKES_RELEASE_TASK).await?;
    life.kill_at(&SAYS_CHARTS_ARE_MISSING).await?;
    life.stop_at(&MAKES_VERSION).await?;
    life.render_release().await?;
    life.killed(&MAKES_VERSION).await?;
    life.kill_at(&MAKES_BOOTSTRAP_TASK).await?;
    life.kill_at(&SAYS_VERSION_IS_MISSING).await?;
    life.stop_at(&SAYS_VERSION_IS_PUSHED).await?;
    life.push_version(|_| true).await?;
    life.killed(&SAYS_VERSION_IS_PUSHED).await?;
    life.kill_at(&SAYS_TARGET_IS_READY).await?;
    life.run().await?;
    life.ready(1).await?;
    let target = life.scene.api::<Target>().get("edge").await?;
    ensure!(target.finalizers() == [TARGET_FINALIZER], "the finalizer is gone");
    life.passed(1).await
}

/// The first two versions are made by a hub that nobody kills; with the third, the first is one too many.
async fn third_version(stop: Stop) -> Result<()> {
    let mut life = Life::new("replaced", stop).await?;
    life.run().await?;
    life.render_release().await?;
    life.push_version(|_| true).await?;
    life.ready(1).await?;
    life.scene.component_version("shop", "1.1.0").await?;
    life.render_release().await?;
    life.push_version(|spec| has(spec, "1.1.0")).await?;
    life.ready(2).await?;

    life.stop_at(&MAKES_RELEASE_TASK).await?;
    life.scene.component_version("shop", "1.2.0").await?;
    life.killed(&MAKES_RELEASE_TASK).await?;
    life.kill_at(&SAYS_CHARTS_ARE_MISSING).await?;
    life.stop_at(&MAKES_VERSION).await?;
    life.render_release().await?;
    life.killed(&MAKES_VERSION).await?;
    life.kill_at(&MAKES_BOOTSTRAP_TASK).await?;
    life.kill_at(&SAYS_VERSION_IS_MISSING).await?;
    life.kill_at(&DELETES_BOOTSTRAP_TASK).await?;
    life.kill_at(&DELETES_VERSION).await?;
    life.kill_at(&DELETES_RELEASE_TASK).await?;
    life.stop_at(&SAYS_VERSION_IS_PUSHED).await?;
    life.push_version(|spec| has(spec, "1.2.0")).await?;
    life.killed(&SAYS_VERSION_IS_PUSHED).await?;
    life.kill_at(&SAYS_TARGET_IS_READY).await?;
    life.run().await?;
    life.ready(3).await?;
    two_versions_are_kept(&life).await?;
    life.passed(3).await
}

/// The newest version and the one before it are there, with the tasks of their Releases, and the task of the newest.
async fn two_versions_are_kept(life: &Life) -> Result<()> {
    let versions = life.scene.versions("edge").await?;
    let components: Vec<&str> = versions
        .iter()
        .map(|version| version.spec.releases["shop"].component_version.as_str())
        .collect();
    ensure!(components == ["1.1.0", "1.2.0"], "{components:?}");
    wait_for("the tasks that are not needed to be gone", LIMIT, async || {
        let names: Vec<String> = life
            .scene
            .all_tasks()
            .await?
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        let count = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
        let is_so = (count("release-shop-"), count("bootstrap-edge-v")) == (2, 1);
        Ok(is_so.then_some(()))
    })
    .await
}

/// While no hub runs, the Target gets another content: what was begun keeps the content that it had.
async fn changes_while_away(stop: Stop) -> Result<()> {
    let kinds: [&Kind; 5] = [
        &MAKES_VERSION,
        &MAKES_BOOTSTRAP_TASK,
        &SAYS_VERSION_IS_MISSING,
        &SAYS_VERSION_IS_PUSHED,
        &SAYS_TARGET_IS_READY,
    ];
    let mut life = Life::new("changed", stop).await?;
    life.run().await?;
    life.render_release().await?;
    life.push_version(|_| true).await?;
    life.ready(1).await?;
    let mut site = json!({"site": "north"});
    for (round, kind) in kinds.into_iter().enumerate() {
        life.stop_at(kind).await?;
        if round == 0 {
            site = json!({"site": "south"});
            change_site(&life, &site).await?;
        }
        if [SAYS_VERSION_IS_PUSHED.name, SAYS_TARGET_IS_READY.name].contains(&kind.name) {
            life.push_version(|spec| spec.userdata.as_ref() == Some(&site))
                .await?;
        }
        life.killed(kind).await?;
        site = json!({"site": format!("away {round}")});
        change_site(&life, &site).await?;
    }
    life.run().await?;
    life.push_version(|spec| spec.userdata.as_ref() == Some(&site))
        .await?;
    // A version that never arrived leaves its number to the next content.
    let versions = if stop == Stop::Before { 6 } else { 7 };
    life.ready(versions).await?;
    life.passed(versions).await
}

async fn change_site(life: &Life, site: &serde_json::Value) -> Result<()> {
    life.scene.change_target("edge", json!({"userdata": site})).await
}

async fn deletion(stop: Stop) -> Result<()> {
    let mut life = Life::new("gone", stop).await?;
    life.run().await?;
    life.render_release().await?;
    life.push_version(|_| true).await?;
    life.ready(1).await?;
    // A Target that is suspended may need every task of a Release, so the last two writes come one after the other.
    life.scene.target("spare", json!({"suspend": true})).await?;
    life.scene
        .target_is("spare", "Ready", "False", "Suspended")
        .await?;
    life.stop_at(&DELETES_BOOTSTRAP_TASK).await?;
    let targets: Api<Target> = life.scene.api();
    targets.delete("edge", &DeleteParams::default()).await?;
    life.killed(&DELETES_BOOTSTRAP_TASK).await?;
    life.kill_at(&DELETES_VERSION).await?;
    life.kill_at(&LETS_TARGET_GO).await?;
    life.stop_at(&DELETES_RELEASE_TASK).await?;
    targets.delete("spare", &DeleteParams::default()).await?;
    life.killed(&DELETES_RELEASE_TASK).await?;
    life.run().await?;
    life.is_gone().await?;
    life.passed(1).await
}

fn has(spec: &HydratedTargetSpec, component: &str) -> bool {
    spec.releases["shop"].component_version == component
}
