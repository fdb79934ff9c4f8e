//! Tasks that run on a cluster of the platform's: started there, followed, recorded and cleared, with nothing more than the
//! Role of the example; and what becomes of them when it is lost.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "remote/bounds.rs"]
mod bounds;
#[path = "remote/disconnected.rs"]
mod disconnected;
#[path = "remote/given_up.rs"]
mod given_up;
#[path = "remote/hostile.rs"]
mod hostile;
#[path = "remote/made_up.rs"]
mod made_up;
#[path = "remote/own.rs"]
mod own;
#[path = "remote/pull_secrets.rs"]
mod pull_secrets;
#[path = "remote/removed.rs"]
mod removed;
#[path = "remote/rights.rs"]
mod rights;

use anyhow::Result;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub_harness::remote::ACCOUNT;
use renderhub_harness::wait_for;
use serde_json::json;
use support::away::{Cluster, LOOPBACK, another, away};
use support::{CANARY, DIGEST, LIMIT, Stage, has, job_name_of, message_of};

/// Holds: C2, H7.
#[tokio::test]
async fn a_task_runs_on_another_cluster_with_the_rights_of_the_example() -> Result<()> {
    let stage = Stage::with_flags("abroad", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    stage.connected(&cluster.name, "True", "Connected").await?;
    let task = stage.submit_to("shop", &cluster).await?;
    let job = cluster.job_of(&task).await?;
    let status = stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let job_ref = status.job_ref.expect("the Job is recorded");
    assert_eq!(
        (
            job_ref.cluster.as_deref(),
            job_ref.namespace.as_str(),
            job_ref.uid
        ),
        (Some(&*cluster.name), &*cluster.remote.namespace, job.uid())
    );
    let secret = cluster.secrets().get(&job_name_of(&task)).await?;
    let data = secret.data.unwrap_or_default();
    assert_eq!(data["password"].0, CANARY.as_bytes(), "the credential goes along");
    assert_eq!(secret.immutable, Some(true));
    let pod = job.spec.and_then(|spec| spec.template.spec).expect("a pod");
    assert_eq!(
        (
            pod.service_account_name.as_deref(),
            pod.automount_service_account_token
        ),
        (Some("default"), Some(false))
    );
    assert_eq!(
        stage.objects(&task).await?,
        (false, false),
        "nothing runs on the hub"
    );
    cluster.complete(&task).await?;
    let status = stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert_eq!(status.digest.as_deref(), Some(DIGEST));
    assert_eq!(
        status.chart_url,
        Some(format!(
            "oci://registry.test:5000/{}/shop:1.0.0",
            stage.scope.tenant
        ))
    );
    cluster.cleared(&task).await?;
    let writes = cluster.writes().await?;
    assert_eq!(
        writes,
        ["create secrets", "create jobs", "delete jobs", "delete secrets"],
        "and no more"
    );
    let requests = cluster.requests().await?;
    let elsewhere = requests
        .iter()
        .filter(|e| !e.namespace.is_empty() && e.namespace != cluster.remote.namespace);
    let elsewhere: Vec<_> = elsewhere.map(|e| e.uri.clone()).collect();
    assert!(
        elsewhere.iter().all(|uri| uri.contains("namespaces/kube-system")),
        "{elsewhere:?}"
    );
    stage.passed();
    Ok(())
}

/// Holds: H5.
#[tokio::test]
async fn a_job_that_another_client_removes_is_lost_at_once_and_so_is_one_that_replaces_it() -> Result<()> {
    let stage = Stage::with_flags("removed", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let task = stage.submit_to("gone", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    cluster.remove_job(&task).await?;
    stage.condition(&task, JobFailed, "True", "JobLost").await?;
    let task = stage.submit_to("replaced", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let mut other = cluster.job_of(&task).await?;
    stage.hub().freeze()?;
    cluster.remove_job(&task).await?;
    other.metadata.resource_version = None;
    other.metadata.uid = None;
    let spec = other.spec.as_mut().expect("a spec");
    spec.selector = None;
    let labels = spec
        .template
        .metadata
        .as_mut()
        .and_then(|meta| meta.labels.as_mut());
    if let Some(labels) = labels {
        labels.retain(|key, _| !key.contains("controller-uid") && !key.contains("job-name"));
    }
    wait_for("the name to be free", LIMIT, async || {
        Ok(cluster.jobs().create(&PostParams::default(), &other).await.ok())
    })
    .await?;
    cluster.complete(&task).await?;
    stage.hub().thaw()?;
    let status = stage.condition(&task, JobFailed, "True", "JobLost").await?;
    assert_eq!(status.digest, None, "another Job's result is not the task's");
    stage.passed();
    Ok(())
}

/// Holds: C2, H7, T9.
#[tokio::test]
async fn where_the_platform_does_not_let_it_nothing_is_sent() -> Result<()> {
    let stage = Stage::with_flags("refused", &[LOOPBACK]).await?;
    let bare = stage.register(away().await?, json!({"registries": []})).await?;
    let others = stage
        .register(away().await?, json!({"allowedNamespaces": ["somebody-else"]}))
        .await?;
    let still = stage.register(away().await?, json!({"suspend": true})).await?;
    for cluster in [&bare, &others, &still] {
        stage.connected(&cluster.name, "True", "Connected").await?;
    }
    let refused = async |name: &str, cluster: &str, reason: &str| -> Result<String> {
        let task = stage.submit_with(name, json!({"clusterName": cluster})).await?;
        let status = stage.condition(&task, JobScheduled, "False", reason).await?;
        Ok(message_of(&status, JobScheduled).to_owned())
    };
    refused("credential", &bare.name, "CredentialsNotAllowedOnCluster").await?;
    let missing = refused("missing", "no-such-cluster", "ClusterNotFound").await?;
    let not_allowed = refused("not-allowed", &others.name, "ClusterNotFound").await?;
    assert_eq!(missing, not_allowed, "a cluster for others reads as none");
    refused("suspended", &still.name, "WaitingForCluster").await?;
    for cluster in [&bare, &others, &still] {
        assert_eq!(cluster.writes().await?, [""; 0]);
    }
    // What the platform changes starts them by itself.
    stage
        .change_cluster(&bare.name, json!({"registries": [stage.scope.tenant]}))
        .await?;
    stage
        .change_cluster(&still.name, json!({"suspend": false}))
        .await?;
    for (name, cluster) in [("credential", &bare), ("suspended", &still)] {
        let task = stage.tasks().get(name).await?;
        cluster.complete(&task).await?;
        stage
            .condition(&task, JobSucceeded, "True", "JobSucceeded")
            .await?;
    }
    stage.passed();
    Ok(())
}

/// Holds: C5.
#[tokio::test]
async fn foreign_objects_there_are_never_touched() -> Result<()> {
    let stage = Stage::with_flags("foreign", &[LOOPBACK, "--gc-interval=1s"]).await?;
    let cluster = stage.register(away().await?, json!({"suspend": true})).await?;
    let task = stage.submit_to("shop", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "False", "WaitingForCluster")
        .await?;
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "x", "image": "x.test/x:1"}]});
    let foreign = serde_json::from_value(json!({
        "metadata": {"name": job_name_of(&task), "labels": {"app.kubernetes.io/managed-by": "somebody"}},
        "spec": {"template": {"spec": pod}},
    }))?;
    let foreign = cluster.jobs().create(&PostParams::default(), &foreign).await?;
    stage
        .change_cluster(&cluster.name, json!({"suspend": false}))
        .await?;
    stage
        .condition(&task, JobScheduled, "False", "NameConflict")
        .await?;
    stage.delete(&task).await?;
    stage.cluster_barrier(&cluster).await?;
    let found = cluster.jobs().get(&foreign.name_any()).await?;
    assert_eq!(
        (found.uid(), found.metadata.deletion_timestamp),
        (foreign.uid(), None)
    );
    stage.passed();
    Ok(())
}

trait ClusterBarrier {
    /// Lets the hub handle every event of a cluster so far: a new task there runs to its end.
    async fn cluster_barrier(&self, cluster: &Cluster<'_>) -> Result<()>;
}

impl ClusterBarrier for Stage {
    async fn cluster_barrier(&self, cluster: &Cluster<'_>) -> Result<()> {
        let task = self.submit_to("barrier", cluster).await?;
        cluster.complete(&task).await?;
        self.condition(&task, JobSucceeded, "True", "JobSucceeded")
            .await?;
        cluster.cleared(&task).await?;
        self.delete(&task).await
    }
}

#[tokio::test]
async fn a_lost_cluster_keeps_its_tasks_as_they_are_and_goes_on_when_it_returns() -> Result<()> {
    let mut stage = Stage::with_flags("outage", &[LOOPBACK]).await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    let elsewhere = stage.register(away().await?, json!({})).await?;
    let [running, ended, removed] = [
        stage.submit_to("running", &cluster).await?,
        stage.submit_to("ended", &cluster).await?,
        stage.submit_to("removed", &cluster).await?,
    ];
    for task in [&running, &ended, &removed] {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
    }
    plane.stop_api_server()?;
    let lost = stage.connected(&cluster.name, "False", "Unreachable").await?;
    let conditions = lost.status.unwrap_or_default().conditions;
    let connected = conditions
        .iter()
        .find(|c| c.type_ == "Connected")
        .expect("it was waited for");
    assert!(
        connected.message.contains("; connection attempts: "),
        "{}",
        connected.message
    );
    assert!(
        connected.message.contains(", next connection attempt: 20"),
        "{}",
        connected.message
    );
    let waiting = stage.submit_to("waiting", &cluster).await?;
    stage
        .condition(&waiting, JobScheduled, "False", "WaitingForCluster")
        .await?;
    // No other task notices.
    let other = stage.submit_to("other", &elsewhere).await?;
    elsewhere.complete(&other).await?;
    stage
        .condition(&other, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let lost = stage.ledger().await?;
    assert!(lost.iter().any(|(key, _)| key.starts_with("lost.")), "{lost:?}");
    // Nor does a hub that starts meanwhile, and it goes on counting from the first loss.
    stage.restart_hub().await?;
    stage.barrier().await?;
    for task in [&running, &ended, &removed] {
        let status = stage
            .tasks()
            .get(&task.name_any())
            .await?
            .status
            .unwrap_or_default();
        assert!(has(&status, JobScheduled, "True", "JobScheduled"));
        assert!(status.conditions.iter().all(|c| c.type_ != "JobFailed"));
    }
    assert_eq!(stage.ledger().await?, lost);
    plane.start_api_server().await?;
    cluster.complete(&ended).await?;
    cluster.remove_job(&removed).await?;
    stage
        .condition(&ended, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.condition(&removed, JobFailed, "True", "JobLost").await?;
    for task in [&running, &waiting] {
        cluster.complete(task).await?;
        stage
            .condition(task, JobSucceeded, "True", "JobSucceeded")
            .await?;
        cluster.cleared(task).await?;
    }
    let jobs = cluster.writes().await?;
    assert_eq!(
        jobs.iter().filter(|w| *w == "create jobs").count(),
        4,
        "one Job a task: {jobs:?}"
    );
    wait_for("the loss to be forgotten", LIMIT, async || {
        Ok(stage.ledger().await?.is_empty().then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}

/// Holds: D3.
#[tokio::test]
async fn a_deletion_waits_only_so_long_and_what_it_leaves_goes_when_the_cluster_returns() -> Result<()> {
    let mut stage = Stage::with_flags("stranded", &[LOOPBACK, "--orphan-grace-period=2s"]).await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    let task = stage.submit_to("shop", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let job = cluster.job_of(&task).await?;
    plane.stop_api_server()?;
    stage.connected(&cluster.name, "False", "Unreachable").await?;
    stage.delete(&task).await?;
    let orphans: Vec<_> = stage
        .ledger()
        .await?
        .into_iter()
        .filter(|(key, _)| key.starts_with("orphan."))
        .collect();
    let [(key, orphan)] = &orphans[..] else {
        panic!("{orphans:?}")
    };
    assert_eq!(*key, format!("orphan.{}", task.uid().unwrap_or_default()));
    assert_eq!(orphan["place"]["cluster"], cluster.name);
    assert_eq!(orphan["jobUid"], job.uid().unwrap_or_default());
    let event = wait_for("the event", LIMIT, async || {
        let events = stage.events().await?;
        Ok(events
            .into_iter()
            .find(|e| e.reason.as_deref() == Some("TeardownForced")))
    })
    .await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    // The record outlives the hub.
    stage.restart_hub().await?;
    plane.start_api_server().await?;
    cluster.cleared(&task).await?;
    wait_for("the record to go", LIMIT, async || {
        let ledger = stage.ledger().await?;
        Ok(ledger
            .iter()
            .all(|(key, _)| !key.starts_with("orphan."))
            .then_some(()))
    })
    .await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_forbids_to_remove_keeps_no_task_from_going() -> Result<()> {
    let stage = Stage::with_flags("forbidden", &[LOOPBACK, "--orphan-grace-period=0s"]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let task = stage.submit_to("shop", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let roles: Api<Role> = Api::namespaced(cluster.admin.clone(), &cluster.remote.namespace);
    let mut role = roles.get(ACCOUNT).await?;
    for rule in role.rules.iter_mut().flatten() {
        rule.verbs.retain(|verb| verb != "delete");
    }
    roles.replace(ACCOUNT, &PostParams::default(), &role).await?;
    let user = cluster.remote.identity().await?.client().await?;
    let jobs: Api<Job> = Api::namespaced(user, &cluster.remote.namespace);
    wait_for("the right to be gone", LIMIT, async || {
        let answer = jobs.delete("no-such-job", &DeleteParams::default()).await;
        Ok(matches!(answer, Err(kube::Error::Api(status)) if status.code == 403).then_some(()))
    })
    .await?;
    stage.delete(&task).await?;
    let ledger = stage.ledger().await?;
    assert!(
        ledger.iter().any(|(key, _)| key.starts_with("orphan.")),
        "{ledger:?}"
    );
    assert!(cluster.jobs().get_opt(&job_name_of(&task)).await?.is_some());
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn tasks_on_a_lost_cluster_delay_no_other() -> Result<()> {
    let flags = [
        LOOPBACK,
        "--max-active-jobs=1",
        "--max-active-jobs-per-namespace=1",
    ];
    let stage = Stage::with_flags("slots", &flags).await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    let away = stage.submit_to("away", &cluster).await?;
    stage
        .condition(&away, JobScheduled, "True", "JobScheduled")
        .await?;
    let here = stage.submit(stage.task("here")).await?;
    plane.stop_api_server()?;
    stage.complete(&here).await?;
    stage
        .condition(&here, JobSucceeded, "True", "JobSucceeded")
        .await?;
    plane.start_api_server().await?;
    cluster.complete(&away).await?;
    stage
        .condition(&away, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_cluster_runs_no_more_than_it_may() -> Result<()> {
    let stage = Stage::with_flags("capped", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({"maxActiveJobs": 2})).await?;
    let mut tasks = Vec::new();
    for n in 0..5 {
        tasks.push(stage.submit_to(&format!("task-{n}"), &cluster).await?);
    }
    let here = stage.submit(stage.task("here")).await?;
    stage.complete(&here).await?;
    for n in 0..5 {
        let jobs = wait_for("as many Jobs as may run", LIMIT, async || {
            let jobs = cluster.jobs().list_metadata(&ListParams::default()).await?.items;
            Ok((jobs.len() == 2.min(5 - n)).then_some(jobs))
        })
        .await?;
        let first = jobs
            .into_iter()
            .map(|job| job.name_any())
            .min()
            .unwrap_or_default();
        let task = tasks
            .iter()
            .find(|task| job_name_of(task) == first)
            .expect("a task of it");
        cluster.complete(task).await?;
        stage
            .condition(task, JobSucceeded, "True", "JobSucceeded")
            .await?;
        cluster.cleared(task).await?;
    }
    stage.passed();
    Ok(())
}
