//! Pull Secrets on other clusters of the platform's: copied there, used as they are where a person made them, and cleaned when a
//! cluster that was away is back.

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub::api::labels::PULL_COPY;
use renderhub_harness::audit::Event;
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use support::away::{Cluster, LOOPBACK, another};
use support::{LIMIT, Stage, plane};

fn pull_secret(name: &str, namespace: &str) -> Value {
    let file = json!({"auths": {"registry.example.com": {"username": "u", "password": name}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": namespace}, "stringData": {".dockerconfigjson": file.to_string()},
    })
}

/// Names of the Secrets that the pod of a Job is pulled with.
fn names(job: &Job) -> Vec<String> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let secrets = pod
        .and_then(|pod| pod.image_pull_secrets.clone())
        .unwrap_or_default();
    secrets.into_iter().map(|secret| secret.name).collect()
}

async fn until_copies(cluster: &Cluster<'_>, count: usize) -> Result<Vec<Secret>> {
    wait_for(&format!("{count} copies on the cluster"), LIMIT, async || {
        let copies = cluster
            .secrets()
            .list(&ListParams::default().labels(PULL_COPY))
            .await?
            .items;
        Ok((copies.len() == count).then_some(copies))
    })
    .await
}

/// Waits until two sweeps have asked whether a Job names a copy.
async fn until_asked_twice(cluster: &Cluster<'_>) -> Result<()> {
    wait_for("two sweeps to ask for Jobs with the copy", LIMIT, async || {
        let asked = cluster.requests().await?;
        let is_it = |event: &&Event| event.action() == "list jobs" && event.uri.contains("pull-copy-");
        Ok((asked.iter().filter(is_it).count() >= 2).then_some(()))
    })
    .await
}

/// Holds: S1, S3.
#[tokio::test]
async fn a_cluster_gets_copies_for_its_jobs_and_is_cleaned_when_it_is_back() -> Result<()> {
    let sources = plane::plane().await?.namespace("pull-sources").await?;
    let flag = format!("--pull-secret-namespace={sources}");
    let flags = [LOOPBACK, &flag, "--gc-interval=2s", "--orphan-grace-period=0s"];
    let mut stage = Stage::with_flags("pulls", &flags).await?;
    for name in ["copied", "by-hand"] {
        apply::object(&stage.admin, pull_secret(name, &sources)).await?;
    }
    let class = format!("{}-private", stage.scope.tenant);
    let spec = json!({
        "image": "registry.example.com/team/renderer:1", "imagePullSecrets": [{"name": "by-hand"}, {"name": "copied"}],
    });
    let object = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RendererClass", "metadata": {"name": class}, "spec": spec,
    });
    apply::object(&stage.admin, object).await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    let by_hand: Secret = serde_json::from_value(pull_secret("by-hand", &cluster.remote.namespace))?;
    cluster.secrets().create(&PostParams::default(), &by_hand).await?;

    let there = json!({"clusterName": cluster.name, "rendererClassName": class});
    let task = stage.submit_with("shop", there.clone()).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let copies = until_copies(&cluster, 1).await?;
    let copy = copies.first().context("there is one")?;
    assert_eq!(copy.immutable, Some(true));
    assert_eq!(
        names(&cluster.job_of(&task).await?),
        ["by-hand".to_owned(), copy.name_any()]
    );
    // The Job keeps it over a restart of the hub, which does not know that it made it.
    stage.restart_hub().await?;
    until_asked_twice(&cluster).await?;
    until_copies(&cluster, 1).await?;

    plane.stop_api_server()?;
    stage.delete(&task).await?;
    plane.start_api_server().await?;
    until_copies(&cluster, 0).await?;
    let left: Api<Secret> = cluster.secrets();
    assert!(
        left.get_opt("by-hand").await?.is_some(),
        "what a person made stays"
    );
    stage.passed();
    Ok(())
}
