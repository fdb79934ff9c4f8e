//! What one tenant fills on clusters costs no other tenant anything: kept failures, the ledger, events.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled};
use renderhub::plan::remote::ledger::LEDGER_BYTES;
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::wait_for;
use serde_json::json;

use support::away::{Cluster, LOOPBACK, another, away};
use support::{LIMIT, Stage, has};

/// Bytes of values that a ConfigMap may have.
const CONFIG_MAP: usize = 1 << 20;
/// Tasks that are deleted while another tenant is loud.
const DELETED: usize = 6;
/// Tasks of a loud tenant that are made at a time.
const AT_ONCE: usize = 8;

trait Fails {
    /// Fails the task's Job there.
    async fn fail(&self, task: &RenderTask) -> Result<()>;
}

impl Fails for Cluster<'_> {
    async fn fail(&self, task: &RenderTask) -> Result<()> {
        let job = self.job_of(task).await?;
        let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
        finish::pod_for_job(&self.admin, &job, &[exit]).await?;
        finish::fail_job(
            &self.admin,
            &self.remote.namespace,
            &job.name_any(),
            "PodFailurePolicy",
        )
        .await?;
        Ok(())
    }
}

/// Holds: B4.
#[tokio::test]
async fn a_cluster_keeps_the_newest_failures_of_a_namespace_and_the_hub_its_own() -> Result<()> {
    let flags = [LOOPBACK, "--keep-failed-jobs-per-namespace=1"];
    let stage = Stage::with_flags("kept-away", &flags).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let mut there = Vec::new();
    let here = stage.submit(stage.task("here")).await?;
    let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    stage.fail(&here, exit, "PodFailurePolicy").await?;
    stage.condition(&here, JobFailed, "True", "JobFailed").await?;
    for name in ["first", "second", "third"] {
        let task = stage.submit_to(name, &cluster).await?;
        cluster.fail(&task).await?;
        stage.condition(&task, JobFailed, "True", "JobFailed").await?;
        let ended = Timestamp::now().as_second();
        wait_for(
            "the next second, since ends are told in seconds",
            LIMIT,
            async || Ok((Timestamp::now().as_second() > ended).then_some(())),
        )
        .await?;
        there.push(task);
    }
    for task in &there[..2] {
        cluster.cleared(task).await?;
    }
    assert_eq!(cluster.jobs().list(&ListParams::default()).await?.items.len(), 1);
    cluster.job_of(&there[2]).await?;
    assert_eq!(stage.objects(&here).await?, (true, true));
    let made = cluster.writes().await?;
    assert_eq!(made.iter().filter(|w| *w == "create jobs").count(), 3, "{made:?}");
    stage.passed();
    Ok(())
}

/// The tasks of a namespace.
fn tasks_in(client: &Client, namespace: &str) -> Api<RenderTask> {
    Api::namespaced(client.clone(), namespace)
}

/// What warnings about deletions say in a namespace.
async fn warnings(client: &Client, namespace: &str) -> Result<Vec<String>> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let all = events.list(&ListParams::default()).await?.items;
    let forced = all
        .into_iter()
        .filter(|e| e.reason.as_deref() == Some("TeardownForced"));
    Ok(forced.filter_map(|event| event.note).collect())
}

/// Submits a task of another namespace than the stage's for a cluster, and waits until its Job runs.
async fn runs(stage: &Stage, namespace: &str, cluster: &Cluster<'_>) -> Result<RenderTask> {
    let mut task = stage.task("shop");
    task["metadata"]["namespace"] = json!(namespace);
    task["spec"]["repository"] = json!(format!("{namespace}/shop"));
    task["spec"]["clusterName"] = json!(cluster.name);
    let tasks = tasks_in(&stage.admin, namespace);
    tasks
        .create(&PostParams::default(), &serde_json::from_value(task)?)
        .await?;
    wait_for("the Job to run", LIMIT, async || {
        let task = tasks.get("shop").await?;
        let status = task.status.clone().unwrap_or_default();
        Ok(has(&status, JobScheduled, "True", "JobScheduled").then_some(task))
    })
    .await
}

/// Deletes a task, and waits until it is gone.
async fn delete(client: &Client, task: &RenderTask) -> Result<()> {
    let tasks = tasks_in(client, &task.namespace().unwrap_or_default());
    let name = task.name_any();
    tasks.delete(&name, &DeleteParams::default()).await?;
    wait_for("the task to be gone", LIMIT, async || {
        Ok(tasks.get_opt(&name).await?.is_none().then_some(()))
    })
    .await
}

/// Fills the ledger of the stage's hub with orphans of a namespace, up to the last byte that the API server takes.
async fn fill_ledger(stage: &Stage, namespace: &str) -> Result<usize> {
    let hub_id = stage.hub_id().await?;
    let entry = |n: usize, length: usize| {
        json!({
            "place": {"cluster": "c".repeat(253), "namespace": "renders"}, "tenant": namespace, "name": "n".repeat(length),
            "since": Timestamp::from_second(1_700_000_000 + i64::try_from(n).unwrap_or_default()).unwrap_or_default(),
        })
        .to_string()
    };
    let empty = entry(0, 0).len();
    let (each, mut left) = (empty + 253, CONFIG_MAP);
    let mut data = serde_json::Map::new();
    while left >= empty {
        let length = if left >= each + empty { 253 } else { left - empty };
        let text = entry(data.len(), length);
        left -= text.len();
        data.insert(format!("orphan.{namespace}-{}", data.len()), json!(text));
    }
    let count = data.len();
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": format!("renderhub-ledger-{hub_id}")}, "data": data,
    }))?;
    let maps: Api<ConfigMap> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
    maps.create(&PostParams::default(), &map).await?;
    Ok(count)
}

/// Holds: B8, D3.
#[tokio::test]
async fn a_full_ledger_keeps_no_task_from_going_and_costs_who_did_not_fill_it_nothing() -> Result<()> {
    let mut stage = Stage::without_hub("full", &[LOOPBACK, "--orphan-grace-period=0s"]).await?;
    let greedy = stage.plane.namespace("greedy").await?;
    stage.also_watch(&greedy).await?;
    stage.make_push_secret("push").await?;
    let both = json!([stage.scope.tenant, greedy]);
    stage
        .put_registry(json!({"pushSecretRef": {"name": "push"}, "allowedNamespaces": both}))
        .await?;
    let filled = fill_ledger(&stage, &greedy).await?;
    stage.start_hub().await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({"allowedNamespaces": both})).await?;
    let of_greedy = runs(&stage, &greedy, &cluster).await?;
    let task = stage.submit_to("shop", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    plane.stop_api_server()?;
    stage.connected(&cluster.name, "False", "Unreachable").await?;

    // Who did not fill it has room.
    delete(&stage.admin, &task).await?;
    let key = format!("orphan.{}", task.uid().unwrap_or_default());
    let ledger = stage.ledger().await?;
    let (_, orphan) = ledger
        .iter()
        .find(|(found, _)| *found == key)
        .context("the record")?;
    assert_eq!(orphan["tenant"], stage.scope.tenant);
    assert!(
        ledger.len() > filled / 10,
        "{} of {filled} are left",
        ledger.len()
    );
    let bytes: usize = ledger
        .iter()
        .map(|(key, text)| key.len() + text.to_string().len())
        .sum();
    assert!(bytes <= LEDGER_BYTES, "{bytes}");

    // The tenant that did has none left, gets a message, and waits for nothing.
    delete(&stage.admin, &of_greedy).await?;
    let key = format!("orphan.{}", of_greedy.uid().unwrap_or_default());
    assert!(stage.ledger().await?.iter().all(|(found, _)| *found != key));
    for (namespace, word) in [
        (&stage.scope.tenant, "the hub has recorded them"),
        (&greedy, "the hub has not recorded them"),
    ] {
        let told = wait_for("the warning", LIMIT, async || {
            Ok(warnings(&stage.admin, namespace).await?.pop())
        })
        .await?;
        assert!(told.contains(word), "{told}");
    }

    // The record outlives the hub, and is worked off.
    stage.restart_hub().await?;
    plane.start_api_server().await?;
    cluster.cleared(&task).await?;
    stage.passed();
    Ok(())
}

/// Holds: B19.
#[tokio::test]
async fn a_tenant_with_many_events_silences_no_other_ones_warnings() -> Result<()> {
    let mut stage = Stage::without_hub("loud", &[LOOPBACK, "--orphan-grace-period=0s"]).await?;
    let loud = stage.plane.namespace("loud").await?;
    stage.also_watch(&loud).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    let mut deleted = Vec::new();
    for n in 0..DELETED {
        let task = stage.submit_to(&format!("shop-{n}"), &cluster).await?;
        stage
            .condition(&task, JobScheduled, "True", "JobScheduled")
            .await?;
        deleted.push(task);
    }
    plane.stop_api_server()?;
    stage.connected(&cluster.name, "False", "Unreachable").await?;
    let is_told = AtomicBool::new(false);
    let (of_loud, stage_ref) = (tasks_in(&stage.admin, &loud), &stage);
    let flood = async {
        // The registry admits none of them, and each gets a message.
        while !is_told.load(Ordering::Relaxed) {
            let made = (0..AT_ONCE).map(|_| async {
                let mut task = stage_ref.task("loud");
                task["metadata"] = json!({"generateName": "loud-", "namespace": loud});
                let task: RenderTask = serde_json::from_value(task)?;
                of_loud.create(&PostParams::default(), &task).await?;
                anyhow::Ok(())
            });
            futures::future::try_join_all(made).await?;
        }
        anyhow::Ok(())
    };
    let story = async {
        wait_for("the loud tenant to be cut short", LIMIT, async || {
            let dropped = stage_ref.counted("renderhub_events_dropped_total", &[]).await?;
            Ok((dropped > 0).then_some(()))
        })
        .await?;
        for task in &deleted {
            delete(&stage_ref.admin, task).await?;
        }
        wait_for("each warning", LIMIT, async || {
            let told = warnings(&stage_ref.admin, &stage_ref.scope.tenant).await?;
            Ok((told.len() == DELETED).then_some(()))
        })
        .await?;
        is_told.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    tokio::try_join!(flood, story)?;
    stage.passed();
    Ok(())
}
