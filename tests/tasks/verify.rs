//! A report is not proof: what the hub asks the platform's registry before a task succeeds, and what becomes of tasks whose chart
//! is not there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "this is all test code, and each test tells one story from its beginning to its end"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use renderhub::api::basic_auth::BasicCredential;
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub::api::{RenderTask, RenderTaskStatus};
use renderhub::renderer::auth::{Authenticator, TokenScope};
use renderhub::renderer::origin::Origin;
use renderhub::renderer::registry::RegistryClient as Pusher;
use renderhub::renderer::tls;
use renderhub::renderer::transport::{Transport, TransportLimits};
use renderhub_harness::finish;
use renderhub_harness::{Registry, RegistryOptions, apply, wait_for};
use serde_json::json;
use support::away::{LOOPBACK, away};
use support::registry::{Hostile, Reply, artifact, say};
use support::{CANARY, DIGEST, LIMIT, Stage};

const CONTENT: &str = "Docker-Content-Digest";

/// A registry that answers each look for a manifest with the status that the test sets, and with the digest that a
/// [`Stage::complete`] reports.
async fn scripted(status: &Arc<AtomicU16>) -> Hostile {
    let status = Arc::clone(status);
    Hostile::start(move |_, _| {
        Some(match status.load(Ordering::Relaxed) {
            0 => Reply::Hang,
            401 => say(401, &[("WWW-Authenticate", "Basic realm=\"r\"".to_owned())]),
            status => say(status, &[(CONTENT, DIGEST.to_owned())]),
        })
    })
    .await
}

trait Verification {
    /// Lets the registry's credential be another one.
    async fn change_push_secret(&self, username: &str, password: &str) -> Result<()>;
    /// A task whose repository is the one that tests push to.
    async fn submit_as(&self, name: &str) -> Result<RenderTask>;
    async fn unverified(&self, task: &RenderTask) -> Result<RenderTaskStatus>;
    async fn until_succeeded(&self, task: &RenderTask) -> Result<RenderTaskStatus>;
    /// Waits until the hub counted at least one of these.
    async fn has_counted(&self, result: &str) -> Result<()>;
    async fn runs_and_no_more(&self, task: &RenderTask) -> Result<()>;
}

impl Verification for Stage {
    async fn change_push_secret(&self, username: &str, password: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"stringData": {"username": username, "password": password}}));
        self.secrets()
            .patch("push", &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    async fn submit_as(&self, name: &str) -> Result<RenderTask> {
        self.submit_with(name, json!({})).await
    }

    async fn unverified(&self, task: &RenderTask) -> Result<RenderTaskStatus> {
        let status = self
            .condition(task, JobFailed, "True", "ResultUnverified")
            .await?;
        assert_eq!(status.digest, None, "a claim is not repeated");
        assert!(status.failure.is_some());
        Ok(status)
    }

    async fn until_succeeded(&self, task: &RenderTask) -> Result<RenderTaskStatus> {
        self.condition(task, JobSucceeded, "True", "JobSucceeded").await
    }

    async fn has_counted(&self, result: &str) -> Result<()> {
        let line = format!("renderhub_verifications_total{{result=\"{result}\"}}");
        wait_for(&format!("the hub to count {result}"), LIMIT, async || {
            Ok(self.hub().metrics().await?.contains(&line).then_some(()))
        })
        .await
    }

    async fn runs_and_no_more(&self, task: &RenderTask) -> Result<()> {
        let status = self
            .tasks()
            .get(&task.name_any())
            .await?
            .status
            .unwrap_or_default();
        let types: Vec<_> = status
            .conditions
            .iter()
            .map(|c| (&*c.type_, &*c.status))
            .collect();
        assert_eq!(types, [("JobScheduled", "True"), ("Ready", "False")]);
        Ok(())
    }
}

/// Only reads came here.
fn only_read(registry: &Hostile) {
    let seen = registry.seen();
    let changes: Vec<_> = seen
        .iter()
        .filter(|s| !matches!(s.method(), "HEAD" | "GET"))
        .collect();
    assert!(!seen.is_empty() && changes.is_empty(), "{changes:?}");
}

/// Holds: H6, C4.
#[tokio::test]
async fn what_a_real_registry_holds_succeeds_and_nothing_else() -> Result<()> {
    let stage = Stage::new("held").await?;
    let registry = Registry::start(RegistryOptions::new()).await?;
    stage
        .use_registry_at(&registry.host(), json!({"verify": "Digest"}))
        .await?;
    stage
        .change_push_secret(registry.username(), registry.password())
        .await?;
    let artifact = artifact("a chart");
    let host = registry.host().parse().unwrap();
    let auth = Authenticator {
        origin: Origin::of_registry(&host, true),
        repository: format!("{}/shop", stage.scope.tenant).parse().unwrap(),
        credential: Some(BasicCredential {
            username: registry.username().to_owned(),
            password: registry.password().to_owned().into(),
        }),
        token_realm: None,
        access: TokenScope::Push,
    };
    let mut pusher = Pusher::new(
        Transport::new(tls::no_tls().unwrap(), TransportLimits::default()),
        auth,
    );
    pusher.push(&"1.0.0".parse().unwrap(), &artifact).await.unwrap();
    let digest = artifact.manifest.digest.to_string();
    let (held, forged) = (stage.submit_as("held").await?, stage.submit_as("forged").await?);
    stage.complete_with(&forged, DIGEST).await?;
    stage.complete_with(&held, &digest).await?;
    assert_eq!(stage.until_succeeded(&held).await?.digest, Some(digest));
    stage.cleared(&held).await?;
    let status = stage.unverified(&forged).await?;
    let failed = status.conditions.iter().find(|c| c.type_ == "JobFailed").unwrap();
    assert!(failed.message.contains("does not hold"), "{}", failed.message);
    stage.passed();
    Ok(())
}

/// Holds: H6.
#[tokio::test]
async fn a_cluster_that_says_complete_without_a_push_is_not_believed() -> Result<()> {
    let stage = Stage::with_flags("forged", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let status = Arc::new(AtomicU16::new(404));
    let registry = scripted(&status).await;
    let host = registry.address.to_string();
    stage.use_registry_at(&host, json!({"verify": null})).await?;
    let task = stage.submit_to("forged", &cluster).await?;
    cluster.complete(&task).await?;
    stage.has_counted("Missing").await?;
    stage.runs_and_no_more(&task).await?;
    stage.unverified(&task).await?;
    only_read(&registry);
    // A pod that names nothing, or no pod at all, proves nothing either.
    let mute = stage.submit_to("mute", &cluster).await?;
    let job = cluster.job_of(&mute).await?;
    finish::complete_job(&cluster.admin, &cluster.remote.namespace, &job.name_any()).await?;
    stage.unverified(&mute).await?;
    // What the registry holds counts, and so does the report where the platform says so.
    status.store(200, Ordering::Relaxed);
    let task = stage.submit_to("held", &cluster).await?;
    cluster.complete(&task).await?;
    assert_eq!(
        stage.until_succeeded(&task).await?.digest.as_deref(),
        Some(DIGEST)
    );
    status.store(404, Ordering::Relaxed);
    stage.use_registry_at(&host, json!({"verify": "None"})).await?;
    let before = registry.seen().len();
    let task = stage.submit_to("believed", &cluster).await?;
    cluster.complete(&task).await?;
    stage.until_succeeded(&task).await?;
    assert_eq!(registry.seen().len(), before, "it was not asked");
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_registry_that_is_down_is_waited_for() -> Result<()> {
    let stage = Stage::with_flags("down", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let status = Arc::new(AtomicU16::new(503));
    let registry = scripted(&status).await;
    stage
        .use_registry_at(&registry.address.to_string(), json!({"verify": "Digest"}))
        .await?;
    let near = stage.submit_as("near").await?;
    let far = stage.submit_to("far", &cluster).await?;
    stage.complete(&near).await?;
    cluster.complete(&far).await?;
    wait_for("each to be asked for again", LIMIT, async || {
        Ok((registry.seen().len() >= 4).then_some(()))
    })
    .await?;
    for task in [&near, &far] {
        stage.runs_and_no_more(task).await?;
    }
    stage.has_counted("Silent").await?;
    status.store(200, Ordering::Relaxed);
    for task in [&near, &far] {
        assert_eq!(stage.until_succeeded(task).await?.digest.as_deref(), Some(DIGEST));
    }
    // One that is deleted meanwhile waits for nothing.
    status.store(503, Ordering::Relaxed);
    let task = stage.submit_as("deleted").await?;
    stage.complete(&task).await?;
    let before = registry.seen().len();
    wait_for("it to be asked for", LIMIT, async || {
        Ok((registry.seen().len() > before).then_some(()))
    })
    .await?;
    stage.delete(&task).await?;
    stage.cleared(&task).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_credential_that_may_not_read_is_reported_at_once_and_goes_nowhere_else() -> Result<()> {
    let stage = Stage::new("unread").await?;
    let status = Arc::new(AtomicU16::new(401));
    let registry = scripted(&status).await;
    let host = registry.address.to_string();
    stage.use_registry_at(&host, json!({"verify": "Digest"})).await?;
    let task = stage.submit_as("refused").await?;
    stage.complete(&task).await?;
    let message = stage.unverified(&task).await?.failure.unwrap().message;
    assert!(message.contains("does not let the hub look"), "{message}");
    let sent = format!("Basic {}", STANDARD.encode(format!("pusher:{CANARY}")));
    let seen = registry.seen();
    assert_eq!(
        seen.first().and_then(|s| s.authorization()),
        None,
        "it is not sent unasked"
    );
    assert!(seen.iter().any(|s| s.authorization() == Some(&sent)));
    only_read(&registry);
    // Where nothing depends on it, the report of the hub's own Job is enough.
    stage.use_registry_at(&host, json!({"verify": null})).await?;
    let task = stage.submit_as("believed").await?;
    stage.complete(&task).await?;
    stage.until_succeeded(&task).await?;
    // A redirect is not followed, and proves nothing.
    let trap = Hostile::honest().await;
    let elsewhere = format!("http://{}/v2/", trap.address);
    let mirror = Hostile::start(move |_, _| Some(say(307, &[("Location", elsewhere.clone())]))).await;
    stage
        .use_registry_at(&mirror.address.to_string(), json!({"verify": "Digest"}))
        .await?;
    let task = stage.submit_as("redirected").await?;
    stage.complete(&task).await?;
    stage.has_counted("Silent").await?;
    stage.runs_and_no_more(&task).await?;
    assert_eq!(trap.connections(), 0);
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_slow_registry_holds_up_no_other_task() -> Result<()> {
    let stage = Stage::with_flags(
        "slow",
        &["--max-active-jobs=4", "--max-active-jobs-per-namespace=4"],
    )
    .await?;
    let (hangs, answers) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicU16::new(200)));
    let (slow, quick) = (scripted(&hangs).await, scripted(&answers).await);
    stage
        .use_registry_at(&slow.address.to_string(), json!({"verify": "Digest"}))
        .await?;
    let other = format!("{}-quick", stage.scope.tenant);
    let registry = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": other},
        "spec": {
            "hostname": quick.address.to_string(), "plainHTTP": true, "verify": "Digest",
            "allowedNamespaces": [stage.scope.tenant],
        },
    });
    apply::object(&stage.admin, registry).await?;
    stage.sees_registries().await?;
    // More than the slots, and more than are asked at once.
    let mut waiting = Vec::new();
    for n in 0..8 {
        let task = stage.submit_as(&format!("slow-{n}")).await?;
        stage.complete(&task).await?;
        waiting.push(task);
    }
    wait_for("the slow registry to be asked", LIMIT, async || {
        Ok((slow.connections() >= 4).then_some(()))
    })
    .await?;
    let task = stage
        .submit_with("quick", json!({"registryRef": {"name": other}}))
        .await?;
    stage.complete(&task).await?;
    stage.until_succeeded(&task).await?;
    for task in &waiting {
        stage.runs_and_no_more(task).await?;
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_registry_that_cannot_be_reached_is_soon_left_alone() -> Result<()> {
    let stage = Stage::new("unreached").await?;
    let task = stage.submit_as("first").await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.complete(&task).await?;
    stage.until_succeeded(&task).await?;
    stage.has_counted("Silent").await?;
    let task = stage.submit_as("second").await?;
    stage.complete(&task).await?;
    stage.until_succeeded(&task).await?;
    stage.has_counted("Skipped").await?;
    // What the registry must confirm is no success without it.
    stage
        .put_registry(json!({"pushSecretRef": {"name": "push"}, "verify": "Digest"}))
        .await?;
    stage.sees_registries().await?;
    let task = stage.submit_as("third").await?;
    stage.complete(&task).await?;
    wait_for("the hub to ask again", LIMIT, async || {
        let metrics = stage.hub().metrics().await?;
        let line = metrics
            .lines()
            .find(|l| l.contains("verifications_total{result=\"Silent\"}"));
        let count = line.and_then(|l| l.rsplit(' ').next()?.parse::<u64>().ok());
        Ok(count.is_some_and(|n| n >= 2).then_some(()))
    })
    .await?;
    stage.runs_and_no_more(&task).await?;
    stage.passed();
    Ok(())
}
