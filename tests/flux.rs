//! From a Release to a running pod: the hub renders on one cluster, and Flux installs on another what the hub pushed.

#[path = "flux/world.rs"]
mod world;

mod support;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::json;
use world::{Tenant, world};

const FIRST: &str = "version=1.0.0 greeting=hello site=north";
const SECOND: &str = "version=2.0.0 greeting=hello site=north";

/// Holds: F8.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "it tells one story from its beginning to its end"
)]
async fn a_release_becomes_a_pod_changes_stays_goes_back_and_goes() -> Result<()> {
    let world = world().await?;
    let mut tenant = Tenant::new(world).await?;
    tenant.stage.start_hub().await?;
    world.follow(&format!("{}/bootstrap-edge", tenant.name())).await?;

    // It runs with its values and the userdata of the Target.
    tenant.release("shop", "1.0.0").await?;
    tenant.release("blog", "1.0.0").await?;
    tenant.bind("shop").await?;
    tenant.bind("blog").await?;
    tenant.crash_amid(&BTreeSet::new()).await?;
    world.app_says("shop", FIRST).await?;
    let blog = world.app_says("blog", FIRST).await?;
    tenant.target_is("Ready", "True", "Ready").await?;
    let first = tenant.versions().await?[0].spec.version;

    // Another version of the component rolls out.
    let before = tenant.task_uids().await?;
    tenant.release("shop", "2.0.0").await?;
    tenant.crash_amid(&before).await?;
    world.app_says("shop", SECOND).await?;
    ensure!(
        world.app_says("blog", FIRST).await? == blog,
        "what did not change was restarted"
    );

    // A grant ends, and takes nothing off.
    let shop = world.app_says("shop", SECOND).await?;
    tenant.revoke().await?;
    tenant.stage.restart_hub().await?;
    tenant.target_is("Stalled", "True", "MissingDependencies").await?;
    tenant.change_target(json!({"suspend": false})).await?;
    ensure!(
        world.app_says("shop", SECOND).await? == shop,
        "the pod is another"
    );
    ensure!(world.app_says("blog", FIRST).await? == blog, "the pod is another");
    tenant.grant().await?;
    tenant.target_is("Ready", "True", "Ready").await?;

    // Back to the first version, and forward again.
    let before = tenant.task_uids().await?;
    tenant.change_target(json!({"rollbackTo": first})).await?;
    tenant.crash_amid(&before).await?;
    world.app_says("shop", FIRST).await?;
    tenant.change_target(json!({"rollbackTo": null})).await?;
    world.app_says("shop", SECOND).await?;

    // What is taken away on purpose goes, and the rest stays.
    let before = tenant.task_uids().await?;
    tenant.unbind("blog").await?;
    tenant.crash_amid(&before).await?;
    world.app_is_gone("blog").await?;
    world.app_says("shop", SECOND).await?;
    tenant.target_is("Ready", "True", "Ready").await?;
    tenant.stage.passed();
    Ok(())
}

/// Helm waits by the kstatus library of Flux.
#[tokio::test]
async fn kstatus_reads_whether_a_target_is_ready_or_failed() -> Result<()> {
    let world = world().await?;
    let mut tenant = Tenant::new(world).await?;
    tenant.stage.start_hub().await?;
    let helm = world.helm()?.with_cluster(world.hub_plane.admin().kubeconfig()?);
    let chart = tenant.chart("good", tenant.name(), "app-1.0.0")?;
    let words = [
        "install",
        "good",
        &chart,
        "--namespace",
        tenant.name(),
        "--wait",
        "--timeout",
    ];
    helm.run(&[&words[..], &["4m"]].concat()).await?;
    tenant.is_ready("good").await?;

    let chart = tenant.chart("bad", "none-of-that-name", "none-of-that-name")?;
    let words = [
        "install",
        "bad",
        &chart,
        "--namespace",
        tenant.name(),
        "--wait",
        "--timeout",
    ];
    let (is_good, said) = helm.try_run(&[&words[..], &["20s"]].concat()).await?;
    ensure!(!is_good, "helm took a Target that has no registry for ready");
    let line = said.lines().find(|line| line.contains("Target/"));
    ensure!(line.is_some_and(|line| line.contains("Failed")), "{said}");
    tenant.stage.passed();
    Ok(())
}
