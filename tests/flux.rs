//! From a Release to a running pod: the hub renders on one cluster, and Flux installs on another what the hub pushed.
//!
//! The hub is killed with SIGKILL in the middle of each change: a proxy stops one of its writes, before the API server gets it or
//! before the hub gets the answer. Another hub ends what was begun.

#[path = "flux/kills.rs"]
mod kills;
#[path = "flux/world.rs"]
mod world;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use renderhub::api::RenderTask;
use renderhub::api::pipeline::Target;
use serde_json::json;
use support::proxy::Stop;
use world::{Tenant, world};

const FIRST: &str = "version=1.0.0 greeting=hello site=north";
const SECOND: &str = "version=2.0.0 greeting=hello site=north";

/// Holds: F8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(
    clippy::too_many_lines,
    reason = "it tells one story from its beginning to its end"
)]
async fn a_release_becomes_a_pod_changes_stays_goes_back_and_goes() -> Result<()> {
    let world = world().await?;
    let cluster = &world.cluster;
    let mut tenant = Tenant::new(world).await?;
    tenant.start_hub().await?;
    let repository = format!("{}/bootstrap-edge", tenant.name());
    cluster.follow(&world.registry, &repository).await?;

    // It runs with its values and the userdata of the Target.
    tenant.stop_at(Stop::After, kills::makes_version)?;
    tenant.release("shop", "1.0.0").await?;
    tenant.release("blog", "1.0.0").await?;
    tenant.bind("shop").await?;
    tenant.bind("blog").await?;
    tenant.killed().await?;
    tenant.is_for_flux::<Target>("edge", "InProgress").await?;
    tenant.start_hub().await?;
    cluster.app_says("shop", FIRST).await?;
    let blog = cluster.app_says("blog", FIRST).await?.uid();
    tenant.target_is("Ready", "True", "Ready").await?;
    tenant.is_for_flux::<Target>("edge", "Current").await?;
    let first = tenant.versions().await?[0].spec.version;

    // A new version of the component rolls out.
    tenant.stop_at(Stop::Before, kills::says_that_a_release_is_rendered)?;
    tenant.make_version("2.0.0").await?;
    tenant.release("shop", "2.0.0").await?;
    let stopped = tenant.killed().await?;
    let task = kills::object_of(&stopped);
    tenant.is_for_flux::<RenderTask>(task, "InProgress").await?;
    tenant.is_for_flux::<Target>("edge", "InProgress").await?;
    tenant.start_hub().await?;
    let shop = cluster.app_says("shop", SECOND).await?.uid();
    let now = cluster.app_says("blog", FIRST).await?.uid();
    ensure!(now == blog, "what did not change was restarted");
    tenant.target_is("Ready", "True", "Ready").await?;
    tenant.is_for_flux::<RenderTask>(task, "Current").await?;

    // A grant ends, and takes nothing off.
    let before = tenant.versions().await?.len();
    tenant.stop_at(Stop::After, kills::says_that_a_release_is_not_ready)?;
    tenant.revoke().await?;
    tenant.killed().await?;
    tenant.start_hub().await?;
    tenant.target_is("Stalled", "True", "MissingDependencies").await?;
    tenant.is_for_flux::<Target>("edge", "Failed").await?;
    tenant.change_target(json!({"suspend": false})).await?;
    tenant.target_is("Stalled", "True", "MissingDependencies").await?;
    for (app, words, uid) in [("shop", SECOND, &shop), ("blog", FIRST, &blog)] {
        let now = cluster.app_says(app, words).await?.uid();
        ensure!(&now == uid, "the pod of {app} is another");
    }
    ensure!(
        tenant.versions().await?.len() == before,
        "there is another version"
    );
    tenant.grant().await?;
    tenant.target_is("Ready", "True", "Ready").await?;

    // Back to the first version, and forward again.
    tenant.stop_at(Stop::After, kills::makes_bootstrap_task)?;
    tenant.change_target(json!({"rollbackTo": first})).await?;
    tenant.killed().await?;
    tenant.start_hub().await?;
    cluster.app_says("shop", FIRST).await?;
    tenant.target_is("Ready", "True", "Ready").await?;
    tenant.stop_at(Stop::Before, kills::says_that_a_version_is_pushed)?;
    tenant.change_target(json!({"rollbackTo": null})).await?;
    tenant.killed().await?;
    tenant.start_hub().await?;
    cluster.app_says("shop", SECOND).await?;
    tenant.target_is("Ready", "True", "Ready").await?;

    // What is taken away on purpose goes, and the rest stays.
    tenant.stop_at(Stop::After, kills::says_that_a_version_is_pushed)?;
    tenant.unbind("blog").await?;
    tenant.killed().await?;
    tenant.start_hub().await?;
    cluster.app_is_gone("blog").await?;
    cluster.app_says("shop", SECOND).await?;
    tenant.target_is("Ready", "True", "Ready").await?;
    tenant.passed()
}

/// Helm waits by the library of kstatus that Flux reads statuses with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flux_and_helm_read_whether_a_task_and_a_target_are_ready_or_failed() -> Result<()> {
    let world = world().await?;
    let mut tenant = Tenant::new(world).await?;
    // No hub has looked at them yet; of a RenderTask Flux cannot tell.
    tenant.submit("unseen").await?;
    tenant.is_for_flux::<RenderTask>("unseen", "Current").await?;
    tenant.is_for_flux::<Target>("edge", "InProgress").await?;
    tenant.start_hub().await?;
    let helm = world.helm()?.with_cluster(world.hub_plane.admin().kubeconfig()?);
    let chart = tenant.chart("good", true)?;
    let words = ["--namespace", tenant.name(), "--wait", "--timeout"];
    helm.run(&[&["install", "good", &chart], &words[..], &["4m"]].concat())
        .await?;
    tenant.is_for_flux::<Target>("good", "Current").await?;
    tenant.is_for_flux::<RenderTask>("good", "Current").await?;

    let chart = tenant.chart("bad", false)?;
    let bad = [&["install", "bad", &chart], &words[..], &["60s"]].concat();
    let (is_good, said) = helm.try_run(&bad).await?;
    ensure!(!is_good, "helm took a Target that has no registry for ready");
    let line = said.lines().find(|line| line.contains("Target/"));
    ensure!(line.is_some_and(|line| line.contains("Failed")), "{said}");
    tenant.is_for_flux::<Target>("bad", "Failed").await?;
    tenant.is_for_flux::<RenderTask>("bad", "Failed").await?;
    tenant.passed()
}
