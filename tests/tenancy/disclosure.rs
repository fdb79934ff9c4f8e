//! What the hub shows of its work to a reader of its logs and statuses, and that no secret and no foreign text is ever in it.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "disclosure/failures.rs"]
mod failures;
#[path = "disclosure/pipeline.rs"]
mod pipeline;
#[path = "disclosure/planted.rs"]
mod planted;
#[path = "../pipeline/scene.rs"]
#[allow(dead_code, reason = "a part of what the tests of the pipeline need")]
mod scene;
#[path = "disclosure/servers.rs"]
mod servers;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Resource;
use kube::api::{DeleteParams, ListParams, PostParams};
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub_harness::finish::Exit;
use renderhub_harness::wait_for;
use serde_json::{Value, json};
use support::{CANARY, LIMIT, Stage};

/// Holds: E7.
#[tokio::test]
async fn metrics_count_and_name_no_one() -> Result<()> {
    let stage = Stage::new("metrics").await?;
    let good = stage.submit(stage.task("shop")).await?;
    stage.succeeds(&good).await?;
    stage
        .submit_with("waits", json!({"registryRef": {"name": "no-such-registry"}}))
        .await?;
    wait_for("the metrics to show both tasks", LIMIT, async || {
        let text = stage.hub().metrics().await?;
        let shows = |line: &str| text.lines().any(|l| l == line);
        let both =
            shows("renderhub_tasks{phase=\"succeeded\"} 1") && shows("renderhub_tasks{phase=\"pending\"} 1");
        anyhow::ensure!(both, "{text}");
        Ok(Some(()))
    })
    .await?;
    for (verb, resource) in [("create", "jobs"), ("delete", "jobs"), ("create", "secrets")] {
        let labels = [format!("verb=\"{verb}\""), format!("resource=\"{resource}\"")];
        let labels: Vec<_> = labels.iter().map(String::as_str).collect();
        assert_eq!(
            stage.counted("renderhub_api_calls_total", &labels).await?,
            1,
            "{labels:?}"
        );
    }
    assert!(
        stage
            .counted("renderhub_reconcile_duration_seconds_count", &[])
            .await?
            >= 2
    );
    let families = [
        "renderhub_work_queue_depth 0",
        "renderhub_waiting_tasks 0",
        "renderhub_queue_depth 0",
        "renderhub_events_dropped_total 0",
        "renderhub_orphans_removed_total 0",
    ];
    // What other tests change for the whole cluster wakes tasks of this hub too.
    let text = wait_for("a hub without work", LIMIT, async || {
        let text = stage.hub().metrics().await?;
        let is_shown = |family: &&str| text.lines().any(|line| line == *family);
        Ok(families.iter().all(is_shown).then_some(text))
    })
    .await?;
    assert!(text.ends_with("# EOF\n"));
    for name in [
        stage.scope.tenant.as_str(),
        "shop",
        "no-such-registry",
        "registry.test",
    ] {
        assert!(!text.contains(name), "{name} is in {text}");
    }
    stage.passed();
    Ok(())
}

/// The next line that contains all of this.
fn next<'a>(lines: &mut impl Iterator<Item = &'a Value>, wanted: &[(&str, &str)]) -> Option<&'a Value> {
    lines.find(|line| wanted.iter().all(|(field, value)| line[*field] == *value))
}

/// A platform operator who looks for why a task does not go on finds each decision about it, with its cause, in a line that names it.
#[tokio::test]
async fn each_decision_and_each_transition_is_logged_at_debug_and_not_before() -> Result<()> {
    for level in ["debug", "info"] {
        let stage = Stage::with_flags("told", &[&format!("--log-level={level}")]).await?;
        let task = stage.submit(stage.task("shop")).await?;
        stage.succeeds(&task).await?;
        let uid = task.meta().uid.clone().unwrap_or_default();
        let pass = json!([{"name": "pass", "task": uid, "kind": "RenderTask", "namespace": stage.scope.tenant, "task_name": "shop"}]);
        let steps = stage.log_lines("the next step of a task");
        let ready = stage.log_lines("a task is ready for a pass");
        let leases = stage.log_lines("the state of the hub's Lease changes");
        if level == "info" {
            assert!([steps, ready, leases].iter().all(Vec::is_empty));
            assert!(
                stage
                    .log_lines("ready")
                    .iter()
                    .all(|line| line["spans"].is_null())
            );
            stage.passed();
            continue;
        }
        let mut steps = steps.iter();
        for (step, why) in [
            ("Rest", "NoSlot"),
            ("AddFinalizer", "Start"),
            ("Create", "Start"),
            ("WriteStatus", "JobScheduled"),
            ("ReadJob", "JobMayHaveEnded"),
            ("WriteStatus", "JobSucceeded"),
            ("DeleteJob", "Succeeded"),
            ("DeleteSecret", "Succeeded"),
        ] {
            let found = next(&mut steps, &[("step", step), ("why", why)]);
            assert_eq!(found.map(|line| &line["spans"]), Some(&pass), "{step}");
        }
        let seen = next(&mut ready.iter(), &[("task", uid.as_str()), ("wake", "TaskSeen")]);
        assert!(seen.is_some(), "{ready:?}");
        assert!(next(&mut leases.iter(), &[("from", "starting"), ("to", "active")]).is_some());
        let calls = stage.log_lines("a call to an API server");
        let made = next(&mut calls.iter(), &[("verb", "create"), ("resource", "jobs")]);
        assert_eq!(
            made.map(|line| (&line["code"], &line["spans"])),
            Some((&json!(200), &pass))
        );
        stage.passed();
    }
    Ok(())
}

/// What a tenant has in its values, and a credential in a Secret that cannot be parsed.
const VALUE: &str = "canary-value";

/// Holds: E1, E3, E4, E6, E8.
#[tokio::test]
async fn no_secret_and_no_foreign_text_is_ever_printed() -> Result<()> {
    let mut stage = Stage::without_hub("canary", &["--log-level=trace"]).await?;
    stage.make_registry().await?;
    let trace = [("RUST_LOG", "trace")];
    let hub = stage.spawn_hub_with(&stage.hub_user.kubeconfig()?, &trace)?;
    hub.wait_ready().await?;
    stage.hub = Some(hub);
    let mut good = stage.task("good");
    good["spec"]["config"]["release"]["values"] = json!({"token": VALUE});
    let good = stage.submit(good).await?;
    let job = serde_json::to_string(&stage.job_of(&good).await?)?;
    assert!(!job.contains(CANARY) && !job.contains(VALUE) && !job.contains("pusher"));
    stage.complete(&good).await?;
    stage
        .condition(&good, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let bad = stage.submit(stage.task("bad")).await?;
    stage
        .fail(&bad, Exit::new("renderer", 1, VALUE), "BackoffLimitExceeded")
        .await?;
    stage.condition(&bad, JobFailed, "True", "JobFailed").await?;
    stage.grant(|resource| resource != "rendertasks/status").await?;
    wait_for("the hub to run into an error", LIMIT, async || {
        stage.submit(probe(&stage)).await?;
        Ok(stage.hub().log().contains("a pass failed").then_some(()))
    })
    .await?;
    stage.grant(|_| true).await?;
    spoil_the_credential(&stage).await?;
    let odd = format!("{}/{VALUE}", stage.scope.tenant);
    let refused = stage
        .submit_with("refused", json!({"registryRef": {"name": VALUE}}))
        .await?;
    stage
        .condition(&refused, JobScheduled, "False", "RegistryNotAllowed")
        .await?;
    let said = stage.everything_said().await?;
    assert!(said.len() > 1000 && said.contains("the chart was pushed"));
    for secret in [CANARY, VALUE, &odd, &STANDARD.encode(CANARY)] {
        assert!(!said.contains(secret), "{secret} was said");
    }
    stage.passed();
    Ok(())
}

/// Makes the registry's credential one that no parser takes, with the canary where an error would show it.
async fn spoil_the_credential(stage: &Stage) -> Result<()> {
    stage.secrets().delete("push", &DeleteParams::default()).await?;
    let spoilt = format!("{{\"auths\": {{\"registry.test:5000\": {{\"password\": \"{CANARY}\" {VALUE}");
    // The API server takes only JSON here, so the spoilt part is one level deeper.
    let config = json!({"auths": {"registry.test:5000": {"auth": spoilt, "password": [CANARY]}}});
    let secret = serde_json::from_value(json!({
        "metadata": {"name": "push"}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": config.to_string()},
    }))?;
    let made = stage.secrets().create(&PostParams::default(), &secret).await?;
    assert!(made.meta().uid.is_some());
    let all = ListParams::default();
    wait_for("a task to be refused for it", LIMIT, async || {
        stage.submit(probe(stage)).await?;
        let tasks = stage.tasks().list(&all).await?;
        let mut conditions = tasks
            .into_iter()
            .filter_map(|t| t.status)
            .flat_map(|s| s.conditions);
        Ok(conditions.any(|c| c.reason == "PushSecretInvalid").then_some(()))
    })
    .await
}

/// A task with a unique name.
fn probe(stage: &Stage) -> Value {
    let mut task = stage.task("probe");
    task["metadata"] = json!({"generateName": "probe-", "namespace": stage.scope.tenant});
    task
}
