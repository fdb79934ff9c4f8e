//! A renderer in a tenant's hands gains nothing: on a real node, with the hub as the chart installs it, an image whose `render`
//! does whatever the tenant's configuration says finds no credential, reaches no right, and takes nobody else down.
//!
//! All tests share one world and run side by side, so each is a neighbour of the others.

#[path = "installation/scan.rs"]
mod scan;
#[path = "hostile_pod/world.rs"]
mod world;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::ListParams;
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use scan::{everything, found};
use world::{CLOUD_CREDENTIAL, HUB, LIMIT, METADATA, RENDERING, TENANT, World, files, world};

const PASSWORD: &str = "/etc/renderer/credentials/password";

/// Holds: R1, R3.
#[tokio::test]
async fn a_hostile_renderer_reads_everything_and_finds_no_credential() -> Result<()> {
    let world = world().await?;
    world
        .submit("everything", "hostile", "everything", json!({}))
        .await?;
    world.submit("looked", "hostile", "look", json!({})).await?;
    let failed = world.end("looked").await?;
    assert_eq!(failed.0, "JobFailed");
    ensure!(
        !failed.1.contains("FILE"),
        "a pod's words are in the task: {}",
        failed.1
    );
    let read = world.log("looked").await?;
    for seen in [
        "FILE /etc/renderer/config.json",
        r#""mode":"look""#,
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        ensure!(read.contains(seen), "it has not looked: {seen}\n{read}");
    }
    // Each of these would be a way out, or to somebody else's files.
    for gained in [
        "READ ", "MADE ", "MOUNTED", "WROTE ", "BECAME ", "CHANGED ", "ENTERED",
    ] {
        ensure!(!read.contains(gained), "{gained}\n{read}");
    }
    for variable in ["KUBERNETES_SERVICE", "RENDERHUB_", "REGISTRY_", "DOCKER_CONFIG"] {
        ensure!(
            !read.contains(&format!("\n{variable}")),
            "{variable} is in its environment"
        );
    }
    // The pusher pushed what it was given, which was all that the other half could find.
    assert_eq!(world.end("everything").await?.0, "JobSucceeded");
    let loot = std::fs::read_to_string(world.pulled("everything").await?.join("loot.txt"))?;
    ensure!(
        loot.contains("FILE /etc/renderer/config.json"),
        "the chart has no loot"
    );
    let canaries = world.canaries();
    ensure!(
        !found(&canaries, &read) && !found(&canaries, &loot),
        "it found the credential"
    );
    Ok(())
}

/// Holds: R1.
#[tokio::test]
async fn what_is_put_in_place_of_the_chart_is_not_followed() -> Result<()> {
    let world = world().await?;
    let (not_a_chart, too_large) = (
        "the chart archive is missing or not a chart",
        "the configuration or the chart is too large",
    );
    let at = |target: &str| json!({ "target": target });
    let table = [
        ("link-password", "link", at(PASSWORD), not_a_chart),
        (
            "link-username",
            "link",
            at("/etc/renderer/credentials/username"),
            not_a_chart,
        ),
        ("link-zero", "link", at("/dev/zero"), not_a_chart),
        ("link-environ", "link", at("/proc/self/environ"), not_a_chart),
        ("link-loop", "link", at("/chart/chart.tgz"), not_a_chart),
        ("hardlink", "hardlink", at(PASSWORD), not_a_chart),
        ("link-inside", "linkinside", at(PASSWORD), not_a_chart),
        ("pipe", "pipe", json!({}), not_a_chart),
        ("directory", "directory", json!({}), not_a_chart),
        ("nothing", "nothing", json!({}), not_a_chart),
        ("garbage", "garbage", json!({}), not_a_chart),
        ("zeros", "zeros", json!({}), not_a_chart),
        ("sparse", "sparse", json!({}), too_large),
        (
            "lie",
            "lie",
            json!({}),
            "the pod ended without a word of the renderer",
        ),
    ];
    for (name, mode, more, _) in &table {
        world.submit(name, "hostile", mode, more.clone()).await?;
    }
    for (name, _, _, said) in table {
        let ended = world.end(name).await?;
        assert_eq!(ended, ("JobFailed".to_owned(), said.to_owned()), "{name}");
    }
    let log = world.log("hardlink").await?;
    ensure!(!log.contains("LINKED"), "{log}");
    Ok(())
}

/// Holds: R1.
#[tokio::test]
async fn a_process_that_outlives_its_container_cannot_change_the_chart() -> Result<()> {
    let world = world().await?;
    world.submit("linger", "hostile", "linger", json!({})).await?;
    assert_eq!(world.end("linger").await?.0, "JobSucceeded");
    let loot = std::fs::read_to_string(world.pulled("linger").await?.join("loot.txt"))?;
    assert_eq!(loot, "first\n");
    Ok(())
}

/// Holds: R4.
#[tokio::test]
async fn what_a_pod_can_connect_to_gives_it_nothing() -> Result<()> {
    let world = world().await?;
    let services: Api<Service> = Api::namespaced(world.admin().await?, "default");
    let service = services
        .get("kubernetes")
        .await?
        .spec
        .and_then(|spec| spec.cluster_ip);
    let service = service.context("the API server has no Service")?;
    let node = world.node.address();
    let targets = [
        (
            "apiserver",
            format!("{}:{}", world.plane.address(), world.plane.port()),
        ),
        ("service", format!("{service}:443")),
        ("kubelet", format!("{node}:10250")),
        ("neighbour", world.neighbour.clone()),
        ("metadata", format!("{METADATA}:80")),
        ("registry", world.registry.host()),
    ];
    let list: Vec<String> = targets.iter().map(|(name, at)| format!("{name}={at}")).collect();
    let more = json!({"targets": list.join(","), "metadata": METADATA});
    world.submit("connect", "hostile", "connect", more).await?;
    assert_eq!(world.end("connect").await?.0, "JobFailed");
    let log = world.log("connect").await?;
    eprintln!("{log}");
    ensure!(log.contains("CONNECT done"), "{log}");
    Ok(())
}

/// Holds: R5.
#[tokio::test]
async fn bombs_end_by_themselves_and_neighbours_do_not_notice() -> Result<()> {
    let world = world().await?;
    let bombs = [
        ("fork", "brief"),
        ("memory", "hostile"),
        ("disk", "hostile"),
        ("log", "hostile"),
        ("word", "hostile"),
        ("sleep", "brief"),
    ];
    for (mode, class) in bombs {
        world
            .submit(&format!("bomb-{mode}"), class, mode, json!({}))
            .await?;
    }
    for (mode, _) in bombs {
        world.until_started(&format!("bomb-{mode}")).await?;
    }
    world
        .submit_config("good", None, release("good", json!({})))
        .await?;
    assert_eq!(world.end("good").await?.0, "JobSucceeded");
    for (mode, _) in bombs {
        let name = format!("bomb-{mode}");
        let ended = world.end(&name).await?;
        let pods = world.pods(&name).await?;
        eprintln!(
            "{mode}: {ended:?} {} {}",
            pods.len(),
            pods.first().map(summary).unwrap_or_default()
        );
    }
    eprintln!(
        "{}",
        world
            .log("bomb-fork")
            .await?
            .lines()
            .rev()
            .take(4)
            .collect::<Vec<_>>()
            .join("\n")
    );
    Ok(())
}

fn summary(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let states: Vec<_> = status
        .init_container_statuses
        .iter()
        .flatten()
        .map(|c| c.state.clone())
        .collect();
    format!(
        "{:?} {:?} {}",
        status.reason,
        status.message,
        serde_json::to_string(&states).unwrap()
    )
}

/// A configuration of the real renderer.
fn release(name: &str, values: Value) -> Value {
    json!({"type": "release", "release": {
        "chart": {"name": name, "description": "", "version": "1.0.0", "appVersion": "1"},
        "input": {
            "component": {"name": "shop"},
            "resources": {"chart": {"repository": "charts.example.com/shop", "tag": "1.0.0"}},
            "entrypoint": {"resourceName": "chart", "type": "helm"},
        },
        "values": values,
    }})
}
