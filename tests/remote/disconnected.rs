//! A cluster that the platform operator keeps the hub away from: not a byte goes there, nothing that runs there is given up,
//! all of it goes on when the hub may connect again, and the hub hears of it whatever else it waits for.

use super::hostile::Liars;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use renderhub::api::ClusterRegistry;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub_harness::hostile::{Face, Hostile, Http, Reply, Shown};
use renderhub_harness::{apply, wait_for};
use serde_json::json;

use support::away::{LOOPBACK, another, away};
use support::proxy::Proxy;
use support::{LIMIT, Stage};

/// Waits until the clock of a loss that began then would be over.
async fn until_past(began: Instant, lost: Duration) -> Result<()> {
    wait_for("the time of a loss to be over", LIMIT, async || {
        Ok((began.elapsed() > lost + Duration::from_secs(1)).then_some(()))
    })
    .await
}

/// Holds: B1.
#[tokio::test]
async fn a_disconnected_cluster_gets_no_byte_and_its_tasks_lose_no_time() -> Result<()> {
    // Long enough to connect again in, on a busy machine.
    let lost = Duration::from_secs(20);
    let flags = [LOOPBACK, "--cluster-lost-timeout=20s", "--orphan-grace-period=1s"];
    let mut stage = Stage::with_flags("kept-away", &flags).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    // One that was never connected to counts connections.
    let face = Face {
        http: Http::Two,
        shown: Shown::Right,
    };
    let server = Hostile::start(face, |_| Reply::Never).await?;
    let silent = stage.register_server("silent", &server, true).await?;
    let [running, removed] = [
        stage.submit_to("running", &cluster).await?,
        stage.submit_to("removed", &cluster).await?,
    ];
    for task in [&running, &removed] {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
    }

    stage
        .change_cluster(&cluster.name, json!({"disconnect": true}))
        .await?;
    let seen = stage.connected(&cluster.name, "False", "Disconnected").await?;
    let conditions = seen.status.unwrap_or_default().conditions;
    assert!(
        conditions[0].message.contains("spec.disconnect") && !conditions[0].message.contains("http"),
        "{}",
        conditions[0].message
    );
    stage.connected(&silent, "False", "Disconnected").await?;
    let (began, since) = (Instant::now(), k8s_openapi::jiff::Timestamp::now());
    let waiting = stage.submit_to("waiting", &cluster).await?;
    stage
        .condition(&waiting, JobScheduled, "False", "WaitingForCluster")
        .await?;
    stage.delete(&removed).await?;
    // It is kept in the spec, so a hub that starts keeps away too.
    stage.restart_hub().await?;
    stage.barrier().await?;
    stage.connected(&cluster.name, "False", "Disconnected").await?;
    until_past(began, lost).await?;
    stage.barrier().await?;
    let status = stage.tasks().get("running").await?.status.unwrap_or_default();
    assert!(
        status.conditions.iter().all(|c| c.type_ != "JobFailed"),
        "{:?}",
        status.conditions
    );
    let ledger = stage.ledger().await?;
    let orphan = format!("orphan.{}", removed.uid().unwrap_or_default());
    assert_eq!(ledger.iter().map(|(key, _)| key).collect::<Vec<_>>(), [&orphan]);
    let requests = cluster.requests().await?;
    let late: Vec<_> = requests.iter().filter(|e| e.received >= since).collect();
    assert!(late.is_empty(), "{late:#?}");
    assert_eq!(server.accepted(), 0);

    // Everything goes on.
    for name in [&cluster.name, &silent] {
        stage.change_cluster(name, json!({"disconnect": false})).await?;
    }
    for task in [&running, &waiting] {
        cluster.complete(task).await?;
        stage
            .condition(task, JobSucceeded, "True", "JobSucceeded")
            .await?;
    }
    cluster.cleared(&removed).await?;
    wait_for("the record to go", LIMIT, async || {
        Ok(stage.ledger().await?.is_empty().then_some(()))
    })
    .await?;
    wait_for("the other one to be tried", LIMIT, async || {
        Ok((server.accepted() > 0).then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}

/// Holds: B1.
#[tokio::test]
async fn the_clock_of_a_loss_runs_again_from_the_first_attempt_to_connect() -> Result<()> {
    let stage = Stage::with_flags("clock", &[LOOPBACK, "--cluster-lost-timeout=2s"]).await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    let task = stage.submit_to("shop", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    stage
        .change_cluster(&cluster.name, json!({"disconnect": true}))
        .await?;
    stage.connected(&cluster.name, "False", "Disconnected").await?;
    plane.stop_api_server()?;
    until_past(Instant::now(), Duration::from_secs(2)).await?;
    stage.barrier().await?;
    let status = stage.tasks().get("shop").await?.status.unwrap_or_default();
    assert!(status.conditions.iter().all(|c| c.type_ != "JobFailed"));
    stage
        .change_cluster(&cluster.name, json!({"disconnect": false}))
        .await?;
    stage.connected(&cluster.name, "False", "Unreachable").await?;
    stage.condition(&task, JobFailed, "True", "JobLost").await?;
    stage.passed();
    Ok(())
}

/// More changes of `RenderCluster`s than a queue between two controllers holds.
const BEHIND: usize = 20;

/// The catalog controller waits for its writes, up to 30 seconds for each; the operator who keeps the hub away does not.
///
/// Holds: B1.
#[tokio::test]
async fn a_cluster_is_kept_away_although_writes_of_statuses_hang() -> Result<()> {
    let mut stage = Stage::without_hub("hang", &[LOOPBACK]).await?;
    stage.make_registry().await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    hub.wait_ready().await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    stage.connected(&cluster.name, "True", "Connected").await?;

    let path = format!("/clusterregistries/{}/status", stage.scope.tenant);
    proxy.hang(move |_, asked| asked.ends_with(&path));
    let registries: Api<ClusterRegistry> = Api::all(stage.admin.clone());
    let changed = Patch::Merge(json!({"spec": {"repositoryPrefix": "elsewhere"}}));
    registries
        .patch(&stage.scope.tenant, &PatchParams::default(), &changed)
        .await?;
    wait_for("the status of the registry to be written", LIMIT, async || {
        Ok((proxy.hanging() == (1, 0)).then_some(()))
    })
    .await?;
    for number in 0..BEHIND {
        let name = format!("{}-{number}", stage.scope.tenant);
        let other = cluster.remote.render_cluster(&name, &name);
        apply::object(&stage.admin, other).await?;
    }
    stage
        .change_cluster(&cluster.name, json!({"disconnect": true}))
        .await?;
    stage.connected(&cluster.name, "False", "Disconnected").await?;
    assert_eq!(proxy.hanging(), (1, 0), "the write that hung first still hangs");
    proxy.hang(|_, _| false);
    stage.passed();
    Ok(())
}
