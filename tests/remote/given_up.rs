//! Jobs that were given up with their cluster: when it is back they are removed before anything else runs there.

use super::ClusterBarrier;
use anyhow::Result;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use serde_json::json;

use support::away::{LOOPBACK, another};
use support::{Stage, job_name_of};

/// Holds: B33.
#[tokio::test]
async fn what_was_given_up_is_removed_before_anything_else_runs_there() -> Result<()> {
    let mut stage = Stage::with_flags("given-up", &[LOOPBACK, "--cluster-lost-timeout=2s"]).await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    let lost = [
        stage.submit_to("seen", &cluster).await?,
        stage.submit_to("too", &cluster).await?,
    ];
    for task in &lost {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
    }
    plane.stop_api_server()?;
    for task in &lost {
        stage.condition(task, JobFailed, "True", "JobLost").await?;
    }
    let next = stage.submit_to("next", &cluster).await?;
    stage
        .condition(&next, JobScheduled, "False", "WaitingForCluster")
        .await?;
    // A hub that starts meanwhile knows of them by their labels alone.
    stage.restart_hub().await?;
    plane.start_api_server().await?;
    for task in &lost {
        cluster.cleared(task).await?;
    }
    cluster.complete(&next).await?;
    stage
        .condition(&next, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let requests = cluster.requests().await?;
    let writes: Vec<_> = requests.iter().filter(|e| e.is_write()).collect();
    let of = |action: &str, name: &str| {
        writes
            .iter()
            .position(|e| e.action() == action && (e.name == name || e.name.is_empty()))
    };
    let started = writes.iter().rposition(|e| e.action() == "create secrets");
    for task in &lost {
        let removed = of("delete jobs", &job_name_of(task));
        assert!(removed.is_some() && removed < started, "{writes:#?}");
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_late_result_of_what_was_given_up_changes_nothing() -> Result<()> {
    let stage = Stage::with_flags("late", &[LOOPBACK, "--cluster-lost-timeout=2s"]).await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    let task = stage.submit_to("shop", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    plane.stop_api_server()?;
    let lost = stage.condition(&task, JobFailed, "True", "JobLost").await?;
    // It is there before the hub can remove the Job.
    stage.hub().freeze()?;
    plane.start_api_server().await?;
    cluster.complete(&task).await?;
    stage.hub().thaw()?;
    stage.connected(&cluster.name, "True", "Connected").await?;
    cluster.cleared(&task).await?;
    stage.cluster_barrier(&cluster).await?;
    let status = stage.tasks().get("shop").await?.status.unwrap_or_default();
    assert_eq!(status.conditions, lost.conditions);
    assert_eq!(status.digest, None);
    stage.passed();
    Ok(())
}
