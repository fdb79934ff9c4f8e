//! The charts that the pipeline asks for, as the renderer makes them and helm reads them.

use anyhow::{Context, Result};
use renderhub::api::RendererConfig;
use renderhub_harness::helm::{self, Helm};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::scene::Scene;
use support::programs;

/// What helm makes of the chart of a configuration, with the values that the chart has by default.
async fn objects(config: &RendererConfig) -> Result<Vec<Value>> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("config.json"), serde_json::to_vec(config)?)?;
    let output = Command::new(programs::renderer())
        .args(["render", "config.json", "--out", "chart.tgz"])
        .current_dir(dir.path())
        .kill_on_drop(true)
        .output()
        .await?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let chart = dir.path().join("chart.tgz").display().to_string();
    let text = Helm::new()?
        .run(&["template", "fleet", &chart, "--namespace", "flux-system"])
        .await?;
    helm::documents(&text)
}

fn of_kind<'o>(objects: &'o [Value], kind: &str) -> Result<&'o Value> {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.with_context(|| format!("there is no {kind}"))
}

#[tokio::test]
async fn flux_is_told_the_very_chart_that_was_pushed_and_the_pull_secrets_by_host() -> Result<()> {
    let scene = Scene::new("charts").await?;
    scene
        .stage
        .put_registry(json!({"pushSecretRef": {"name": "push"}, "targetPullSecretName": "charts-pull"}))
        .await?;
    scene
        .release(
            "shop",
            "1.0.0",
            json!({"values": {"replicas": 2}, "targetNamespace": "shop"}),
        )
        .await?;
    scene
        .registry(
            "images",
            json!({"hostname": "registry.test", "targetPullSecretName": "images-pull"}),
        )
        .await?;
    scene
        .target("edge", json!({"userdata": {"site": "north\n- evil: {{ true }}"}}))
        .await?;
    scene.bind_registry("edge", "images").await?;
    scene.bind("edge", "shop").await?;
    let release = scene.complete_next("release-shop-").await?;
    let made = objects(&release.spec.config).await?;
    let source = of_kind(&made, "OCIRepository")?;
    assert_eq!(source["spec"]["url"], "oci://registry.test/shop");
    assert_eq!(source["spec"]["secretRef"]["name"], "images-pull");
    let installed = of_kind(&made, "HelmRelease")?;
    assert_eq!(installed["spec"]["values"]["replicas"], 2);
    assert_eq!(installed["spec"]["targetNamespace"], "shop");
    let bootstrap = scene.complete_next("bootstrap-edge-v").await?;
    let made = objects(&bootstrap.spec.config).await?;
    let source = of_kind(&made, "OCIRepository")?;
    let repository = format!("oci://registry.test:5000/{}", release.spec.repository);
    assert_eq!(source["spec"]["url"], repository);
    assert_eq!(source["spec"]["ref"]["semver"], release.spec.tag);
    assert_eq!(source["spec"]["secretRef"]["name"], "charts-pull");
    let installed = of_kind(&made, "HelmRelease")?;
    assert_eq!(
        installed["spec"]["values"]["userdata"]["site"],
        "north\n- evil: {{ true }}"
    );
    scene.ready("edge").await?;
    scene.passed();
    Ok(())
}

/// What is made for the longest names that Kubernetes takes is taken by the API server, the renderer and helm.
#[tokio::test]
async fn the_longest_names_are_rendered() -> Result<()> {
    let scene = Scene::new("names").await?;
    let (target, release) = ("t".repeat(253), "r".repeat(253));
    scene.release(&release, "1.0.0", json!({})).await?;
    scene
        .target_with(&target, json!({"ring": "one"}), json!({}))
        .await?;
    let profile = "p".repeat(253);
    scene
        .profile(&profile, &release, json!({"ring": "one"}), json!(null))
        .await?;
    let task = scene.complete_next("release-rrr").await?;
    let made = objects(&task.spec.config).await?;
    assert_eq!(of_kind(&made, "HelmRelease")?["kind"], "HelmRelease");
    let task = scene.complete_next("bootstrap-ttt").await?;
    let made = objects(&task.spec.config).await?;
    assert_eq!(of_kind(&made, "HelmRelease")?["kind"], "HelmRelease");
    scene.ready(&target).await?;
    scene.passed();
    Ok(())
}
