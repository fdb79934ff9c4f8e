//! Why a task does not start: each reason, that nothing is made for it, and that it starts once the cause is corrected.

#[path = "refusals/offered.rs"]
mod offered;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use renderhub::api::conditions::ConditionType::{JobScheduled, Ready, Stalled};
use renderhub::api::labels::REGISTRY_HOST;
use renderhub::api::{RenderTask, RenderTaskStatus};
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};
use support::{LIMIT, Stage, has, message_of};

trait Refusals {
    /// Waits until the task is refused for this reason, everywhere that it says so.
    async fn refused(&self, task: &RenderTask, reason: &str, is_final: bool) -> Result<String>;
    /// Waits until the task's Job is made.
    async fn starts(&self, task: &RenderTask, after: &str) -> Result<()>;
    /// Asserts that the hub has not even tried to make anything for any task.
    async fn made_nothing(&self) -> Result<()>;
    /// What the hub asked of the API server by the task's name, and what its events say.
    async fn said_of(&self, task: &RenderTask) -> Result<(Vec<String>, Vec<String>)>;
    async fn replace_push_secret(&self, type_: &str, data: Value) -> Result<()>;
}

impl Refusals for Stage {
    async fn refused(&self, task: &RenderTask, reason: &str, is_final: bool) -> Result<String> {
        let status = self.condition(task, JobScheduled, "False", reason).await?;
        assert!(has(&status, Ready, "False", reason), "{reason}");
        assert_eq!(has(&status, Stalled, "True", reason), is_final, "{reason}");
        assert_eq!(status.observed_generation, Some(1));
        assert!(status.job_ref.is_none() && status.start_time.is_none());
        Ok(message_of(&status, JobScheduled).to_owned())
    }

    async fn starts(&self, task: &RenderTask, after: &str) -> Result<()> {
        let what = format!("{} to start by itself after {after}", task.name_any());
        let is_so = |status: &RenderTaskStatus| has(status, JobScheduled, "True", "JobScheduled");
        let status = self.status_when(task, &what, is_so).await?;
        assert!(!status.conditions.iter().any(|c| c.type_ == "Stalled"));
        assert_eq!(self.objects(task).await?, (true, true));
        Ok(())
    }

    async fn made_nothing(&self) -> Result<()> {
        let tries: Vec<_> = self.requests().await?;
        let tries = tries
            .iter()
            .filter(|e| e.verb == "create" && e.group != "events.k8s.io");
        let tries: Vec<_> = tries.map(|e| (e.action(), &e.name)).collect();
        assert!(tries.is_empty(), "{tries:?}");
        let finalized = self.tasks().list(&kube::api::ListParams::default()).await?;
        assert!(finalized.iter().all(|t| t.finalizers().is_empty()));
        Ok(())
    }

    async fn said_of(&self, task: &RenderTask) -> Result<(Vec<String>, Vec<String>)> {
        let name = task.name_any();
        let asked = self.requests().await?;
        let asked = asked.iter().filter(|event| event.name == name);
        let asked = asked.map(renderhub_harness::audit::Event::action).collect();
        let events = self.events().await?;
        let events = events
            .iter()
            .filter(|event| event.regarding.as_ref().and_then(|r| r.name.as_ref()) == Some(&name));
        let events = events.map(|event| format!("{:?} {:?} {:?}", event.type_, event.reason, event.note));
        Ok((asked, events.collect()))
    }

    async fn replace_push_secret(&self, type_: &str, data: Value) -> Result<()> {
        _ = self.secrets().delete("push", &DeleteParams::default()).await;
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "push"}, "type": type_, "stringData": data,
        }))?;
        self.secrets().create(&PostParams::default(), &secret).await?;
        Ok(())
    }
}

fn docker_config(host: &str) -> Value {
    let config = json!({"auths": {host: {"username": "pusher", "password": support::CANARY}}});
    json!({".dockerconfigjson": config.to_string()})
}

const DOCKER: &str = "kubernetes.io/dockerconfigjson";

/// Holds: C2.
#[tokio::test]
async fn what_is_behind_a_closed_gate_is_refused_by_name() -> Result<()> {
    let stage = Stage::new("features").await?;
    let kube_config = json!({"secretRef": {"name": "cluster"}});
    let table = [
        ("kubeConfig", json!({"kubeConfig": kube_config})),
        (
            "kubeConfig",
            json!({"kubeConfig": kube_config, "deploymentNamespace": "x"}),
        ),
    ];
    for (number, (field, spec)) in table.into_iter().enumerate() {
        let task = stage.submit_with(&format!("task-{number}"), spec).await?;
        let message = stage.refused(&task, "FeatureDisabled", true).await?;
        assert!(message.contains(field), "{message}");
    }
    stage.made_nothing().await?;
    stage.passed();
    Ok(())
}

/// Holds: T5.
#[tokio::test]
async fn a_configuration_that_fits_no_secret_is_refused() -> Result<()> {
    let stage = Stage::new("large").await?;
    let mut task = stage.task("large");
    let large = "v".repeat(1_048_576 - 4_096);
    task["spec"]["config"]["release"]["values"] = json!({"text": large});
    let task = stage.submit(task).await?;
    stage.refused(&task, "ConfigTooLarge", true).await?;
    stage.made_nothing().await?;
    // Just below the limit it is made: the limit is the one that a Secret has.
    let mut fits = stage.task("fits");
    let frame = fits["spec"]["config"].to_string().len();
    let values = json!({"replicas": 3, "text": "v".repeat(1_048_576 - 4_096 - frame - 10)});
    fits["spec"]["config"]["release"]["values"] = values;
    assert_eq!(fits["spec"]["config"].to_string().len(), 1_048_576 - 4_096);
    let fits = stage.submit(fits).await?;
    stage
        .condition(&fits, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.passed();
    Ok(())
}

/// Holds: T9, B17.
#[tokio::test]
async fn a_registry_decides_who_pushes_where() -> Result<()> {
    let mut stage = Stage::without_hub("grants", &[]).await?;
    let tenant = stage.scope.tenant.clone();
    stage
        .put_registry(json!({"allowedNamespaces": ["somebody-else", format!("{tenant}2")]}))
        .await?;
    stage.start_hub().await?;
    let waiting = stage.submit(stage.task("waiting")).await?;
    let message = stage.refused(&waiting, "RegistryNotAllowed", false).await?;
    let nowhere = stage
        .submit_with(
            "nowhere",
            json!({"registryRef": {"name": format!("{tenant}-none")}}),
        )
        .await?;
    // One that is for others reads the same as one that does not exist, in conditions and in events.
    assert_eq!(
        stage.refused(&nowhere, "RegistryNotAllowed", false).await?,
        message
    );
    assert_eq!(stage.said_of(&nowhere).await?, stage.said_of(&waiting).await?);
    stage.made_nothing().await?;
    stage.put_registry(json!({"allowedNamespaces": [tenant]})).await?;
    stage.starts(&waiting, "its namespace is allowed").await?;
    let other = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry",
        "metadata": {"name": format!("{tenant}-none")},
        "spec": {"hostname": "other.test", "allowedNamespaces": ["*"]},
    });
    apply::object(&stage.admin, other).await?;
    stage.starts(&nowhere, "its registry is made").await?;
    stage.passed();
    Ok(())
}

/// Holds: C3.
#[tokio::test]
async fn a_repository_lies_within_the_prefix_segment_by_segment() -> Result<()> {
    let stage = Stage::new("prefix").await?;
    let tenant = stage.scope.tenant.clone();
    let outside = [
        "shop".to_owned(),
        format!("{tenant}2/shop"),
        format!("{tenant}-x/shop"),
        format!("x/{tenant}/shop"),
        format!("{}/shop", &tenant[..tenant.len() - 1]),
    ];
    let mut refused = Vec::new();
    for (number, repository) in outside.into_iter().enumerate() {
        let spec = json!({"repository": repository});
        let task = stage.submit_with(&format!("outside-{number}"), spec).await?;
        let message = stage.refused(&task, "RepositoryNotAllowed", true).await?;
        assert!(message.contains(&format!("{tenant}/")), "{message}");
        refused.push(task);
    }
    stage.made_nothing().await?;
    let within = stage
        .submit_with("within", json!({"repository": format!("{tenant}/deep/er/shop")}))
        .await?;
    stage.starts(&within, "nothing: it is allowed").await?;
    stage.put_registry(json!({"repositoryPrefix": ""})).await?;
    for task in &refused {
        stage.starts(task, "the whole registry is granted").await?;
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_task_waits_for_the_credential_and_starts_with_it() -> Result<()> {
    let mut stage = Stage::without_hub("credential", &[]).await?;
    stage
        .put_registry(json!({"pushSecretRef": {"name": "push"}}))
        .await?;
    stage.start_hub().await?;
    let first = stage.submit(stage.task("first")).await?;
    stage.refused(&first, "PushSecretNotFound", false).await?;
    stage.made_nothing().await?;
    stage.make_push_secret("push").await?;
    stage.starts(&first, "the Secret is made").await?;

    stage
        .replace_push_secret("Opaque", json!({"username": "pusher", "password": "x"}))
        .await?;
    let second = stage.first_refused("second", "PushSecretInvalid").await?;
    stage
        .replace_push_secret(DOCKER, docker_config("elsewhere.test"))
        .await?;
    let third = stage.first_refused("third", "PushSecretInvalid").await?;
    for task in [&second, &third] {
        assert_eq!(stage.objects(task).await?, (false, false));
    }
    let mended = Patch::Merge(json!({"stringData": docker_config("registry.test:5000")}));
    stage
        .secrets()
        .patch("push", &PatchParams::default(), &mended)
        .await?;
    stage.starts(&second, "the Secret is mended").await?;
    stage.starts(&third, "the Secret is mended").await?;

    stage.secrets().delete("push", &DeleteParams::default()).await?;
    stage.first_refused("fourth", "PushSecretNotFound").await?;
    let said = stage.everything_said().await?;
    assert!(!said.contains(support::CANARY));
    stage.passed();
    Ok(())
}

/// Holds: B18.
#[tokio::test]
async fn a_credential_that_names_another_host_is_not_used() -> Result<()> {
    let mut stage = Stage::without_hub("bound", &[]).await?;
    let name = stage.scope.tenant.clone();
    stage.make_registry().await?;
    let secrets = stage.secrets();
    let name_host = async |host: Option<&str>| -> Result<()> {
        let change = Patch::Merge(json!({"metadata": {"annotations": {REGISTRY_HOST: host}}}));
        secrets.patch("push", &PatchParams::default(), &change).await?;
        Ok(())
    };
    name_host(Some("old.test:5000")).await?;
    stage.start_hub().await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage.refused(&task, "PushSecretInvalid", false).await?;
    stage.made_nothing().await?;
    name_host(Some("registry.test:5000")).await?;
    stage.starts(&task, "its credential is for the host").await?;
    // One without a host is used, and the platform operator gets a warning in the log and in the status, which
    // `platform` reads: here hubs of other tests write it too.
    let warns = || {
        let log = stage.hub().log();
        let registry = format!("\"registry\":\"{name}\"");
        log.lines()
            .any(|line| line.contains("does not say which host it is for") && line.contains(&registry))
    };
    assert!(!warns());
    name_host(None).await?;
    wait_for("the hub to warn", LIMIT, async || Ok(warns().then_some(()))).await?;
    let other = stage.submit(stage.task("other")).await?;
    stage
        .condition(&other, JobScheduled, "True", "JobScheduled")
        .await?;
    assert!(!stage.everything_said().await?.contains("old.test"));
    stage.passed();
    Ok(())
}

trait FirstRefused {
    /// Submits tasks until one is refused: those before it came before the hub knew.
    async fn first_refused(&self, prefix: &str, reason: &str) -> Result<RenderTask>;
}

impl FirstRefused for Stage {
    async fn first_refused(&self, prefix: &str, reason: &str) -> Result<RenderTask> {
        wait_for(
            &format!("a task to be refused with {reason}"),
            LIMIT,
            async || {
                let mut task = self.task(prefix);
                task["metadata"] =
                    json!({"generateName": format!("{prefix}-"), "namespace": self.scope.tenant});
                let task = self.submit(task).await?;
                let status = self
                    .status_when(&task, "any answer", |s| !s.conditions.is_empty())
                    .await?;
                Ok(has(&status, JobScheduled, "False", reason).then_some(task))
            },
        )
        .await
    }
}

/// Holds: T9.
#[tokio::test]
async fn a_task_waits_for_its_renderer_class() -> Result<()> {
    let stage = Stage::new("class").await?;
    let class = format!("class-{}", stage.scope.tenant);
    let missing = stage
        .submit_with("missing", json!({"rendererClassName": class}))
        .await?;
    let message = stage.refused(&missing, "RendererClassNotFound", false).await?;
    stage
        .put_class(
            &class,
            json!({"image": "renderer.test/r:1", "allowedNamespaces": ["somebody-else"]}),
        )
        .await?;
    let hidden = stage
        .submit_with("hidden", json!({"rendererClassName": class}))
        .await?;
    // One that is for others reads the same as one that does not exist.
    assert_eq!(
        stage.refused(&hidden, "RendererClassNotFound", false).await?,
        message
    );
    stage.made_nothing().await?;
    let allowed = json!({"image": "renderer.test/r:1", "allowedNamespaces": [stage.scope.tenant]});
    stage.put_class(&class, allowed).await?;
    stage.starts(&missing, "its class is there").await?;
    stage.starts(&hidden, "its class is there").await?;
    let job = stage.job_of(&missing).await?;
    let pod = job.spec.and_then(|s| s.template.spec).unwrap_or_default();
    assert!(
        pod.containers
            .iter()
            .all(|c| c.image.as_deref() == Some("renderer.test/r:1"))
    );
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_cause_that_is_mended_while_the_hub_is_gone_is_found_mended() -> Result<()> {
    let mut stage = Stage::without_hub("asleep", &[]).await?;
    stage.start_hub().await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage.refused(&task, "RegistryNotAllowed", false).await?;
    stage.kill_hub();
    stage.make_registry().await?;
    stage.start_hub().await?;
    stage.starts(&task, "the hub is back").await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_right_that_a_watch_lacks_is_named_in_the_log() -> Result<()> {
    let mut stage = Stage::without_hub("lacks", &[]).await?;
    stage.make_registry().await?;
    stage.blind_to("pods").await?;
    let hub = stage.spawn_hub(&stage.hub_user.kubeconfig()?)?;
    stage.hub = Some(hub);
    let namespace = stage.scope.rendering.clone();
    wait_for("the log to name the right", LIMIT, async || {
        let log = stage.hub().log();
        let is_it = |line: &str| {
            let words = ["Forbidden", "watch", "pods", &namespace, "grant it"];
            words.iter().all(|word| line.contains(word))
        };
        Ok(log.lines().any(is_it).then_some(()))
    })
    .await?;
    stage.grant(|_| true).await?;
    stage.hub().wait_ready().await?;
    stage.barrier().await?;
    stage.passed();
    Ok(())
}
