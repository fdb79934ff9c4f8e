//! Every failure is reported in the hub's own text, whatever the failed object holds.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta, PostParams};
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub::api::conditions::is_true;
use renderhub::api::{ClusterRegistry, RenderTask, RenderTaskStatus};
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use support::scan::{AUTH, FOREIGN, IDENTITY_TOKEN, OTHER_KEY, REGISTRY_TOKEN, VALUE};
use support::{CANARY, DIGEST, LIMIT, Stage, job_name_of};

const BASIC: &str = "kubernetes.io/basic-auth";
const DOCKER: &str = "kubernetes.io/dockerconfigjson";
const INVALID: &str = "PushSecretInvalid";
const USABLE: &str = "JobScheduled";

/// Credentials in every shape, each a Secret's type and content, and what becomes of a task that needs it.
#[rustfmt::skip]
fn credentials() -> Vec<(&'static str, Value, &'static str)> {
    let text = |data: Value| json!({"stringData": data});
    let docker = |auths: Value| json!({"stringData": {".dockerconfigjson": json!({"auths": auths}).to_string()}});
    let host = |entry: Value| docker(json!({"registry.test:5000": entry}));
    let not_utf8 = STANDARD.encode([CANARY.as_bytes(), &[0xff, 0xfe]].concat());
    let both = json!({"auth": STANDARD.encode(format!("pusher:{AUTH}")), "identitytoken": IDENTITY_TOKEN,
        "registrytoken": REGISTRY_TOKEN, "email": OTHER_KEY});
    vec![
        (BASIC, text(json!({"username": "pusher", "password": CANARY, "other": OTHER_KEY})), USABLE),
        (BASIC, text(json!({"password": CANARY})), INVALID),
        (BASIC, text(json!({"username": "", "password": CANARY})), INVALID),
        (BASIC, text(json!({"username": CANARY})), INVALID),
        (BASIC, text(json!({"username": format!("{CANARY}:{AUTH}"), "password": CANARY})), INVALID),
        (BASIC, text(json!({"username": "pusher", "password": CANARY.repeat(5000)})), INVALID),
        (BASIC, json!({"stringData": {"username": "pusher"}, "data": {"password": not_utf8}}), INVALID),
        ("Opaque", text(json!({"username": "pusher", "password": CANARY})), INVALID),
        ("example.com/of-mine", text(json!({CANARY.replace(|c: char| !c.is_ascii_alphanumeric(), "."): CANARY})), INVALID),
        (DOCKER, host(both), USABLE),
        (DOCKER, host(json!({"username": "pusher", "password": CANARY})), USABLE),
        (DOCKER, host(json!({"auth": format!("!{AUTH}")})), INVALID),
        (DOCKER, host(json!({"auth": STANDARD.encode(AUTH)})), INVALID),
        (DOCKER, host(json!({"auth": [AUTH], "password": {"x": CANARY}})), INVALID),
        (DOCKER, host(json!(AUTH)), INVALID),
        (DOCKER, host(json!([AUTH, CANARY])), INVALID),
        (DOCKER, host(json!({"username": "a:b", "password": CANARY})), INVALID),
        (DOCKER, host(json!({"identitytoken": IDENTITY_TOKEN})), INVALID),
        (DOCKER, host(json!({"registrytoken": REGISTRY_TOKEN})), INVALID),
        (DOCKER, docker(json!([CANARY, AUTH])), INVALID),
        (DOCKER, docker(json!(CANARY)), INVALID),
        (DOCKER, docker(json!({CANARY: {"username": "u", "password": CANARY}})), INVALID),
        (DOCKER, docker(json!({format!("https://u:{CANARY}@registry.test:5000/v1/"): {"auth": "dTpw"}})), INVALID),
        (DOCKER, text(json!({".dockerconfigjson": json!({"credHelpers": {"registry.test:5000": CANARY}}).to_string()})), INVALID),
    ]
}

trait Registries {
    /// A registry of its own for a credential; its name.
    async fn registry_with(&self, number: usize, type_: &str, content: &Value) -> Result<String>;
}

impl Registries for Stage {
    async fn registry_with(&self, number: usize, type_: &str, content: &Value) -> Result<String> {
        let name = format!("{}-{number}", self.scope.tenant);
        // As `kubectl apply` leaves it.
        let applied = json!({"kubectl.kubernetes.io/last-applied-configuration": content.to_string()});
        let mut secret = json!({"metadata": {"name": name, "annotations": applied}, "type": type_});
        for (key, value) in content.as_object().context("no object")? {
            secret[key] = value.clone();
        }
        let secret: Secret = serde_json::from_value(secret)?;
        self.secrets().create(&PostParams::default(), &secret).await?;
        let registry: ClusterRegistry = serde_json::from_value(json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": name},
            "spec": {"hostname": "registry.test:5000", "allowedNamespaces": [self.scope.tenant],
                "pushSecretRef": {"name": name}},
        }))?;
        let api: Api<ClusterRegistry> = Api::all(self.admin.clone());
        api.create(&PostParams::default(), &registry).await?;
        Ok(name)
    }
}

/// Holds: E5, E6.
#[tokio::test]
async fn no_form_of_a_credential_is_printed() -> Result<()> {
    let mut stage = Stage::without_hub("shapes", &["--log-level=trace"]).await?;
    let mut tasks = Vec::new();
    for (number, (type_, content, reason)) in credentials().into_iter().enumerate() {
        let name = stage.registry_with(number, type_, &content).await?;
        let registry = json!({"registryRef": {"name": name}});
        tasks.push((
            stage.submit_with(&format!("task-{number}"), registry).await?,
            reason,
        ));
    }
    stage.start_hub().await?;
    try_join_all(tasks.iter().map(async |(task, reason)| {
        let status = if *reason == USABLE { "True" } else { "False" };
        stage.condition(task, JobScheduled, status, reason).await
    }))
    .await?;
    stage.passed();
    Ok(())
}

/// Termination messages of pods that are none of the renderer's.
fn last_words() -> Vec<String> {
    let (digest, hex) = (DIGEST, &DIGEST[7..]);
    let ansi = format!("\u{1b}[31m{FOREIGN}\u{1b}]0;x\u{7}\r\n{{\"level\":\"ERROR\"}}");
    vec![
        FOREIGN.to_owned(),
        VALUE.to_owned(),
        ansi.clone(),
        CANARY.to_owned(),
        format!("Basic {}", STANDARD.encode(format!("pusher:{CANARY}"))),
        json!({"phase": "Push", "reason": FOREIGN}).to_string(),
        json!({"phase": FOREIGN, "reason": "Internal"}).to_string(),
        json!({"phase": "Push", "reason": "Internal", "message": ansi}).to_string(),
        json!({"phase": "Push", "reason": "Pushed", "digest": FOREIGN}).to_string(),
        json!({"phase": "Push", "reason": "Pushed", "digest": format!("sha256:{FOREIGN}")}).to_string(),
        json!({"phase": "Push", "reason": "Unauthorized", "digest": digest}).to_string(),
        format!("{} {FOREIGN}", json!({"phase": "Push", "reason": "Internal"})),
        format!(r#"{{"phase":"Push","reason":"Pushed","digest":"sha256:{hex}","reason":"{FOREIGN}"}}"#),
        format!("{}{FOREIGN}", "[".repeat(10_000)),
        FOREIGN.repeat(1024 * 1024 / FOREIGN.len()),
    ]
}

/// Holds: E3, E4, E8.
#[tokio::test]
async fn no_termination_message_of_a_pod_is_repeated() -> Result<()> {
    let stage = Stage::with_flags("words", &["--log-level=trace"]).await?;
    let submitted = last_words().into_iter().enumerate().map(async |(number, word)| {
        let failed = stage.submit(stage.task(&format!("failed-{number}"))).await?;
        let ended = stage.submit(stage.task(&format!("ended-{number}"))).await?;
        stage
            .fail(&failed, Exit::new("renderer", 1, word.clone()), FOREIGN)
            .await?;
        let job = stage.job_of(&ended).await?;
        finish::pod_for_job(&stage.admin, &job, &[Exit::new("renderer", 0, word)]).await?;
        finish::complete_job(&stage.admin, &stage.scope.rendering, &job.name_any()).await?;
        let failed = stage.condition(&failed, JobFailed, "True", "JobFailed").await?;
        let is_over = |s: &RenderTaskStatus| {
            [JobFailed, JobSucceeded]
                .into_iter()
                .any(|type_| is_true(&s.conditions, type_))
        };
        let ended = stage.status_when(&ended, "an end", is_over).await?;
        anyhow::Ok([failed, ended])
    });
    for status in try_join_all(submitted).await?.concat() {
        // No message of a pod that was not understood makes a success.
        ensure!(status.digest.is_none(), "{:?}", status.conditions);
    }
    stage.passed();
    Ok(())
}

/// Every key that the hub may put on what it makes.
fn is_ours(key: &str) -> bool {
    key.starts_with("renderhub.dev/") || key.starts_with("app.kubernetes.io/")
}

fn keys(metadata: &ObjectMeta) -> Vec<String> {
    let labels = metadata.labels.iter().flatten();
    let all = labels.chain(metadata.annotations.iter().flatten());
    all.map(|(key, _)| key.clone()).collect()
}

/// Whether nothing of a Secret becomes a variable: credentials are files.
fn has_clean_environment(job: &Job) -> bool {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = pod
        .iter()
        .flat_map(|pod| pod.init_containers.iter().flatten().chain(&pod.containers));
    let mut containers = containers.peekable();
    containers.peek().is_some()
        && containers.all(|container| {
            let mut variables = container.env.iter().flatten();
            container.env_from.is_none() && variables.all(|variable| variable.value_from.is_none())
        })
}

/// A task with all that people put on objects. Its owner exists, because the garbage collector removes what has lost its owner.
async fn adorned(stage: &Stage, name: &str) -> Result<Value> {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": stage.scope.tenant}});
    let owner = apply::object(&stage.admin, owner).await?;
    let mut task = stage.task(name);
    let values = json!({"token": VALUE, "deep": {"er": [VALUE]}});
    task["spec"]["config"]["release"]["values"] = values;
    task["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration": task.to_string(),
        "example.com/token": FOREIGN, "renderhub.dev/destination": FOREIGN, "a": VALUE,
    });
    task["metadata"]["labels"] = json!({"example.com/team": "cAnary-team", "app.kubernetes.io/name": "mine"});
    task["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": owner.metadata.uid}]);
    Ok(task)
}

/// Holds: E5, E6, E7.
#[tokio::test]
async fn what_is_derived_copies_nothing_and_no_task_stores_what_was_resolved() -> Result<()> {
    let stage = Stage::new("derived").await?;
    let task = stage.submit(adorned(&stage, "shop").await?).await?;
    let job = stage.job_of(&task).await?;
    let secret = stage.secrets().get(&job_name_of(&task)).await?;
    let pod = job
        .spec
        .as_ref()
        .and_then(|spec| spec.template.metadata.clone())
        .context("a template")?;
    for metadata in [&job.metadata, &secret.metadata, &pod] {
        // The Job controller's own labels are on the template too.
        let foreign: Vec<_> = keys(metadata)
            .into_iter()
            .filter(|key| {
                !is_ours(key)
                    && !key.contains("batch.kubernetes.io/")
                    && !["job-name", "controller-uid"].contains(&key.as_str())
            })
            .collect();
        ensure!(foreign.is_empty(), "{foreign:?} was copied");
        let text = serde_json::to_string(metadata)?;
        ensure!(!text.contains("cAnary"), "{text}");
        ensure!(metadata.owner_references.is_none(), "an owner was copied");
    }
    ensure!(
        !serde_json::to_string(&job)?.contains("cAnary"),
        "the Job shows what a tenant wrote"
    );
    ensure!(has_clean_environment(&job), "a credential is in an environment");
    stage.succeeds(&task).await?;
    // A tenant's values are where the tenant wrote them, and nowhere else in the object.
    let stored = stage.tasks().get("shop").await?;
    let mut rest = serde_json::to_value(&stored)?;
    for home in ["/spec/config", "/metadata/annotations"] {
        rest.pointer_mut(home).context("a home")?.take();
    }
    ensure!(
        !rest.to_string().contains(VALUE),
        "a task stores what was resolved"
    );
    stage.passed();
    Ok(())
}

/// Holds: E3, E5.
#[tokio::test]
async fn what_stands_in_the_way_is_not_described() -> Result<()> {
    let mut stage = Stage::without_hub("squat", &["--log-level=trace"]).await?;
    stage.make_registry().await?;
    let by_job = stage.submit(stage.task("by-job")).await?;
    let by_secret = stage.submit(stage.task("by-secret")).await?;
    let meta = |task: &RenderTask| {
        json!({"name": job_name_of(task), "annotations": {"x": FOREIGN, "renderhub.dev/spec-hash": FOREIGN},
            "labels": {"x": "cAnary-label"}})
    };
    let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "x", "image": "x", "args": [FOREIGN]}]}});
    let job: Job = serde_json::from_value(
        json!({"metadata": meta(&by_job), "spec": {"template": pod, "suspend": true}}),
    )?;
    stage.jobs().create(&PostParams::default(), &job).await?;
    let secret: Secret =
        serde_json::from_value(json!({"metadata": meta(&by_secret), "stringData": {"x": FOREIGN}}))?;
    stage.secrets().create(&PostParams::default(), &secret).await?;
    stage.start_hub().await?;
    for task in [&by_job, &by_secret] {
        stage
            .condition(task, JobScheduled, "False", "NameConflict")
            .await?;
    }
    // And what the hub may not do, it says without naming what it tried to do it with.
    stage.grant(|resource| resource != "rendertasks/status").await?;
    let mut refused = stage.task("refused");
    refused["spec"]["config"]["release"]["values"] = json!({"token": VALUE});
    let refused = stage.submit(refused).await?;
    wait_for("the hub to be refused", LIMIT, async || {
        let log = stage.hub().log();
        Ok((log.contains("a pass failed") && log.contains("Forbidden")).then_some(()))
    })
    .await?;
    stage.grant(|_| true).await?;
    stage
        .condition(&refused, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.passed();
    Ok(())
}
