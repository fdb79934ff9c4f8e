//! An upgrade from the release before this one, and the way back, lose no task and render none twice: chart, hub and renderer of
//! that release are built from this repository's history and installed with their default values. Tasks that are queued, that
//! run here and on another cluster, that failed and that finished are met by the other release's hub, and each ends as it
//! should.

#[path = "upgrade/front.rs"]
mod front;
#[path = "upgrade/tasks.rs"]
mod tasks;
#[path = "upgrade/world.rs"]
mod world;

use anyhow::{Result, ensure};
use renderhub::api::conditions::Reason;
use renderhub_harness::diagnose::Watch;
use serde_json::json;

use world::{EDGE, HUB, RENDERING, TENANT, World};

/// The arguments of helm, as in `docs/install.md`.
const UPGRADE: &[&str] = &["--reset-then-reuse-values", "--wait", "--timeout", "2m"];

#[tokio::test]
async fn an_upgrade_and_the_way_back_lose_nothing_and_render_nothing_twice() -> Result<()> {
    let world = World::start().await?;
    let here = Watch::new(&world.plane, &[TENANT, RENDERING, HUB]);
    let there = Watch::new(&world.edge, &[world.edge_namespace.as_str()]);
    world.install_the_earlier_release().await?;
    world.register().await?;
    world.finish_some().await?;

    world.upgrade_with_tasks_in_every_state().await?;
    world.go_back_with_tasks_in_every_state().await?;
    world.each_job_was_made_and_each_chart_pushed_once().await?;
    world.every_task_can_be_deleted().await?;
    here.passed();
    there.passed();
    Ok(())
}

impl World {
    /// One that succeeds here, one that succeeds on the other cluster, and one that fails, whose Job is kept.
    async fn finish_some(&self) -> Result<()> {
        self.submit("done", json!({})).await?;
        self.submit("edge-done", json!({ "clusterName": EDGE })).await?;
        self.succeeded(&["done", "edge-done"]).await?;
        let other =
            json!({ "repository": format!("{TENANT}/done"), "name": "done", "description": "Another" });
        self.submit("failed", other).await?;
        self.has("failed", Reason::TagConflict).await
    }

    async fn upgrade_with_tasks_in_every_state(&self) -> Result<()> {
        // Whatever can be is done while no pod waits: a push has five minutes in all.
        self.the_values_of_the_earlier_chart_are_refused().await?;
        self.hold_pushes();
        self.submit("running", json!({})).await?;
        self.submit("edge-running", json!({ "clusterName": EDGE }))
            .await?;
        // The release before lets every tenant name any host.
        self.submit("own", self.own_registry()).await?;
        self.until_pods(2, 1).await?;
        self.admit_jobs(3).await?;
        self.submit("queued", json!({})).await?;
        self.submit("own-queued", self.own_registry()).await?;
        self.submit("edge-queued", json!({ "clusterName": EDGE })).await?;
        for name in ["queued", "own-queued", "edge-queued"] {
            self.has(name, Reason::Queued).await?;
        }
        let before = self.picture().await?;

        let said = self.upgrade(UPGRADE).await?;
        every_change_is_told(&said)?;
        self.hub_is_connected().await?;
        self.nothing_has_moved(&before).await?;

        self.let_all_through().await?;
        let again = self.upgrade(&["--reuse-values", "--dry-run=server"]).await?;
        ensure!(!again.contains("has changed"), "nothing has since: {again}");
        self.succeeded(&["running", "edge-running", "own", "queued", "edge-queued"])
            .await?;
        // This release asks for a list of hosts, and says so before anything is rendered.
        self.has("own-queued", Reason::RegistryNotAllowed).await?;
        self.submit("new", json!({})).await?;
        self.submit("edge-new", json!({ "clusterName": EDGE })).await?;
        self.succeeded(&["new", "edge-new"]).await?;
        self.what_had_ended_is_as_it_was(&before).await
    }

    async fn go_back_with_tasks_in_every_state(&self) -> Result<()> {
        self.hold_pushes();
        self.submit("back-running", json!({})).await?;
        self.submit("back-edge-running", json!({ "clusterName": EDGE }))
            .await?;
        self.until_pods(1, 1).await?;
        self.admit_jobs(2).await?;
        self.submit("back-queued", json!({})).await?;
        self.submit("back-edge-queued", json!({ "clusterName": EDGE }))
            .await?;
        for name in ["back-queued", "back-edge-queued"] {
            self.has(name, Reason::Queued).await?;
        }
        let before = self.picture().await?;

        self.roll_back().await?;
        self.hub_is_connected().await?;
        self.nothing_has_moved(&before).await?;

        self.let_all_through().await?;
        let names = [
            "back-running",
            "back-edge-running",
            "back-queued",
            "back-edge-queued",
        ];
        self.succeeded(&names).await?;
        // Every host is allowed again.
        self.succeeded(&["own-queued"]).await?;
        self.submit("old", json!({})).await?;
        self.succeeded(&["old"]).await?;
        self.what_had_ended_is_as_it_was(&before).await
    }

    /// Nothing is installed for a user who takes over the old chart's values as a whole, and the error says what to do.
    async fn the_values_of_the_earlier_chart_are_refused(&self) -> Result<()> {
        let refused = self.upgrade(&["--reuse-values", "--dry-run=server"]).await;
        let said = format!(
            "{:#}",
            refused.err().unwrap_or_else(|| anyhow::anyhow!("it is accepted"))
        );
        ensure!(said.contains("use --reset-then-reuse-values"), "{said}");
        Ok(())
    }
}

/// The notes name each value of the chart's `changes.yaml`.
fn every_change_is_told(said: &str) -> Result<()> {
    let file = renderhub_harness::helm::renderhub_chart().join("changes.yaml");
    let changes = renderhub_harness::helm::documents(&std::fs::read_to_string(file)?)?;
    let values: Vec<_> = changes
        .iter()
        .filter_map(|all| all.as_array())
        .flatten()
        .filter_map(|entry| entry["value"].as_str())
        .collect();
    ensure!(values.contains(&"tenancy.ownRegistries.hosts"), "{values:?}");
    for value in values {
        ensure!(
            said.contains(&format!("\n- {value}: ")),
            "{value} is not in\n{said}"
        );
    }
    Ok(())
}
