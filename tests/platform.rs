//! What belongs to the platform: its own tasks, and the verdict on its registries and classes. Each test has a control plane of its
//! own, because its hub is the only one that may judge.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "platform/pull_secrets.rs"]
mod pull_secrets;
#[path = "platform/refused.rs"]
mod refused;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use renderhub::api::conditions::ConditionType::{JobScheduled, JobSucceeded};
use renderhub::api::labels::{GROUP, REGISTRY_HOST};
use renderhub::api::names::{TaskUid, job_name};
use renderhub::api::{ClusterRegistry, ClusterRenderTask, RenderTask, RendererClass, termination};
use renderhub_harness::audit::Mark;
use renderhub_harness::finish::{self, Exit, Outcome};
use renderhub_harness::wait_for;
use serde_json::{Value, json};
use support::record::{condition_of, raw, until_condition};
use support::{DIGEST, EVERYWHERE, LIMIT, Stage, plane};

fn cluster_tasks(stage: &Stage) -> Api<DynamicObject> {
    Api::all_with(stage.admin.clone(), &raw::<ClusterRenderTask>())
}

/// Submits a task of the platform that pushes to this repository; the name of its Job.
async fn submit(stage: &Stage, name: &str, repository: &str) -> Result<String> {
    let mut task = stage.task(name);
    task["kind"] = json!("ClusterRenderTask");
    task["metadata"] = json!({"name": name});
    task["spec"]["repository"] = json!(repository);
    let task: DynamicObject = serde_json::from_value(task)?;
    let made = cluster_tasks(stage).create(&PostParams::default(), &task).await?;
    Ok(job_name(name, &TaskUid::new(&made.uid().unwrap_or_default())))
}

/// Completes the Job of a task of the platform.
async fn complete(stage: &Stage, job: &str) -> Result<()> {
    let job = wait_for("the Job", LIMIT, async || Ok(stage.jobs().get_opt(job).await?)).await?;
    let said = json!({"phase": "Push", "reason": "Pushed", "digest": DIGEST}).to_string();
    finish::end_job(&stage.admin, &job, &Outcome::Complete(said)).await
}

/// Waits until neither Job nor config Secret of this name exists.
async fn cleared(stage: &Stage, name: &str) -> Result<()> {
    wait_for("the task's objects to be gone", LIMIT, async || {
        let job = stage.jobs().get_opt(name).await?;
        let secret = stage.secrets().get_opt(name).await?;
        Ok((job.is_none() && secret.is_none()).then_some(()))
    })
    .await
}

async fn gone(api: &Api<DynamicObject>, name: &str) -> Result<()> {
    api.delete(name, &DeleteParams::default()).await?;
    wait_for(&format!("{name} to be gone"), LIMIT, async || {
        Ok(api.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_hub_without_a_list_serves_the_platforms_tasks_and_every_namespace() -> Result<()> {
    let plane = plane::own_plane(&["crds"]).await?;
    let listed = {
        let mut stage = Stage::on(plane, "listed", &[]).await?;
        stage.make_registry().await?;
        stage.start_hub().await?;
        stage
    };
    let tasks = cluster_tasks(&listed);
    submit(&listed, "nobodys", "platform/shop").await?;
    listed.barrier().await?;
    // A hub with a list of namespaces ignores them, and gets no events of them.
    assert_eq!(condition_of(&tasks.get("nobodys").await?, "Ready"), None);
    let asked = listed.requests().await?;
    assert!(asked.iter().all(|e| e.resource != "clusterrendertasks"));
    gone(&tasks, "nobodys").await?;
    listed.passed();

    let mut stage = Stage::on(plane, "all", &[EVERYWHERE]).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    stage.barrier().await?;
    each_kind_is_watched_once(&stage).await?;
    let job = submit(&stage, "chart", "platform/shop").await?;
    complete(&stage, &job).await?;
    until_condition(&tasks, "chart", "JobSucceeded", ("True", "JobSucceeded")).await?;
    until_condition(&tasks, "chart", "Ready", ("True", "JobSucceeded")).await?;
    let status = tasks.get("chart").await?.data["status"].clone();
    assert_eq!(status["digest"], DIGEST);
    assert_eq!(status["chartURL"], "oci://registry.test:5000/platform/shop:1.0.0");
    cleared(&stage, &job).await?;
    has_the_event(&stage, "chart").await?;
    gone(&tasks, "chart").await?;

    let job = submit(&stage, "deleted", "platform/shop").await?;
    until_condition(&tasks, "deleted", "JobScheduled", ("True", "JobScheduled")).await?;
    gone(&tasks, "deleted").await?;
    cleared(&stage, &job).await?;
    stage.passed();
    Ok(())
}

/// Whatever controllers read a kind, the API server sends each object once; but for clusters, of which the cluster controller must
/// hear while the catalog controller waits for its writes.
async fn each_kind_is_watched_once(stage: &Stage) -> Result<()> {
    let (audit, hub) = (stage.plane.audit()?, stage.hub_user.name());
    let mut watches = BTreeMap::<_, i32>::new();
    for event in audit.since_with(Mark::START, hub).await? {
        if event.user != hub || event.group != GROUP || event.verb != "watch" || event.code != 200 {
            continue;
        }
        // One that broke was opened again, and counts once.
        let open = watches.entry((event.resource, event.namespace)).or_default();
        *open += if event.stage == "ResponseStarted" { 1 } else { -1 };
    }
    let clusters = watches.remove(&("renderclusters".to_owned(), String::new()));
    let tasks = watches.get(&("rendertasks".to_owned(), String::new()));
    assert_eq!((clusters, tasks), (Some(2), Some(&1)), "{watches:?}");
    assert!(watches.values().all(|number| *number == 1), "{watches:?}");
    Ok(())
}

/// The end of a task without a namespace is reported in `default`.
async fn has_the_event(stage: &Stage, task: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(stage.admin.clone(), "default");
    wait_for("the event of the task", LIMIT, async || {
        let all = events.list(&ListParams::default()).await?;
        let is_it = |e: &Event| {
            let regarding = e.regarding.clone().unwrap_or_default();
            regarding.kind.as_deref() == Some("ClusterRenderTask")
                && regarding.name.as_deref() == Some(task)
                && e.reason.as_deref() == Some("JobSucceeded")
        };
        Ok(all.iter().any(is_it).then_some(()))
    })
    .await
}

#[tokio::test]
async fn the_platforms_tasks_are_refused_failed_and_swept_like_others() -> Result<()> {
    let plane = plane::own_plane(&["crds"]).await?;
    let mut stage = Stage::on(plane, "platform", &[EVERYWHERE, "--gc-interval=1s"]).await?;
    stage
        .put_registry(json!({"repositoryPrefix": "platform/", "allowedNamespaces": []}))
        .await?;
    stage.start_hub().await?;
    let tasks = cluster_tasks(&stage);
    submit(&stage, "outside", "elsewhere/shop").await?;
    until_condition(
        &tasks,
        "outside",
        "JobScheduled",
        ("False", "RepositoryNotAllowed"),
    )
    .await?;
    // Nothing is served where the Jobs run: the next start would refuse, and so does a hub that runs.
    let mut misplaced = stage.task("misplaced");
    misplaced["metadata"]["namespace"] = json!(stage.scope.rendering);
    let misplaced: DynamicObject = serde_json::from_value(misplaced)?;
    let there: Api<DynamicObject> =
        Api::namespaced_with(stage.admin.clone(), &stage.scope.rendering, &raw::<RenderTask>());
    there.create(&PostParams::default(), &misplaced).await?;
    let why = until_condition(&there, "misplaced", "Ready", ("False", "InvalidSpec")).await?;
    assert!(why.contains("make it in a tenant's namespace"), "{why}");
    gone(&there, "misplaced").await?;
    // No namespace is allowed, which binds tenants and not the platform.
    let tenants = stage
        .submit_with("tenants", json!({"repository": "platform/shop"}))
        .await?;
    stage
        .condition(&tenants, JobScheduled, "False", "RegistryNotAllowed")
        .await?;
    let name = submit(&stage, "fails", "platform/shop").await?;
    let job = wait_for("the Job", LIMIT, async || Ok(stage.jobs().get_opt(&name).await?)).await?;
    let exit = Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    finish::end_job(
        &stage.admin,
        &job,
        &Outcome::Failed("PodFailurePolicy".to_owned(), exit),
    )
    .await?;
    let why = until_condition(&tasks, "fails", "JobFailed", ("True", "JobFailed")).await?;
    assert!(
        why.starts_with(termination::TerminationReason::BadConfig.sentence()),
        "{why}"
    );
    assert!(why.ends_with("; correct spec.config in a new task"), "{why}");
    let no_finalizers = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    tasks
        .patch("fails", &PatchParams::default(), &no_finalizers)
        .await?;
    tasks.delete("fails", &DeleteParams::default()).await?;
    cleared(&stage, &name).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_class_says_how_well_it_keeps_the_credential() -> Result<()> {
    let mut stage = Stage::on(plane::own_plane(&["crds"]).await?, "class", &[]).await?;
    let classes: Api<DynamicObject> = Api::all_with(stage.admin.clone(), &raw::<RendererClass>());
    let put = async |name: &str, mode: &str| {
        let class = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RendererClass", "metadata": {"name": name},
            "spec": {"image": "a.test/b:1", "mode": mode},
        });
        let apply = PatchParams::apply("test").force();
        classes.patch(name, &apply, &Patch::Apply(&class)).await
    };
    put("ours", "Split").await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    put("foreign", "Single").await?;
    let (shared, separate) = (("False", "SharedContainer"), ("True", "SeparateContainers"));
    until_condition(&classes, "ours", "Isolated", separate).await?;
    let warning = until_condition(&classes, "foreign", "Isolated", shared).await?;
    assert!(
        warning.contains("push credential") && warning.contains("mode Split"),
        "{warning}"
    );
    for name in ["ours", "foreign"] {
        until_condition(&classes, name, "Ready", ("True", "Ready")).await?;
    }
    // Without a namespace in its list it serves no tenant, and says so.
    let ready = until_condition(&classes, "foreign", "Ready", ("True", "Ready")).await?;
    assert!(ready.contains("allowedNamespaces"), "{ready}");
    put("foreign", "Split").await?;
    until_condition(&classes, "foreign", "Isolated", separate).await?;
    // No event is repeated.
    let begin = stage.plane.audit()?.mark().await?;
    stage.restart_hub().await?;
    stage.barrier().await?;
    let counts = stage.plane.audit()?.counts(begin, stage.hub_user.name()).await?;
    assert_eq!(counts.get("patch rendererclasses/status"), None);
    stage.passed();
    Ok(())
}

const DOCKER: &str = "kubernetes.io/dockerconfigjson";

async fn put_secret(stage: &Stage, type_: &str, data: Value) -> Result<()> {
    let gone = stage.secrets().delete("push", &DeleteParams::default()).await;
    assert!(gone.is_ok() || matches!(gone, Err(kube::Error::Api(status)) if status.is_not_found()));
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "push"}, "type": type_, "stringData": data,
    }))?;
    stage.secrets().create(&PostParams::default(), &secret).await?;
    Ok(())
}

fn docker_config(entry: &str) -> Value {
    json!({".dockerconfigjson": format!("{{\"auths\": {entry}}}")})
}

#[tokio::test]
async fn a_registry_says_whether_its_credential_can_be_used() -> Result<()> {
    let mut stage = Stage::on(plane::own_plane(&["crds"]).await?, "creg", &[]).await?;
    let name = stage.scope.tenant.clone();
    let registries: Api<DynamicObject> = Api::all_with(stage.admin.clone(), &raw::<ClusterRegistry>());
    stage
        .put_registry(json!({"pushSecretRef": {"name": "push"}}))
        .await?;
    stage.start_hub().await?;
    let ready = async |wanted| until_condition(&registries, &name, "Ready", wanted).await;
    ready(("False", "PushSecretNotFound")).await?;
    let basic = "kubernetes.io/basic-auth";
    let good = json!({"username": "pusher", "password": support::CANARY});
    let host = "registry.test:5000";
    let entry = |host: &str| format!(r#"{{"{host}": {{"username": "u", "password": "p"}}}}"#);
    let invalid = ("False", "PushSecretInvalid");
    let usable = ("True", "Ready");
    let table = [
        (basic, good.clone(), usable),
        ("Opaque", good.clone(), invalid),
        (DOCKER, docker_config(&entry(host)), usable),
        (DOCKER, docker_config(&entry("elsewhere.test")), invalid),
        (
            DOCKER,
            docker_config(&entry("registry.test:5000.evil.test")),
            invalid,
        ),
        (basic, good, usable),
        (DOCKER, docker_config("[]"), invalid),
    ];
    for (type_, data, verdict) in table {
        put_secret(&stage, type_, data).await?;
        ready(verdict).await?;
    }
    stage.secrets().delete("push", &DeleteParams::default()).await?;
    ready(("False", "PushSecretNotFound")).await?;
    stage.make_push_secret("push").await?;
    let unbound = ready(usable).await?;
    assert!(
        unbound.contains("give it the annotation renderhub.dev/registry-host"),
        "{unbound}"
    );
    let bind = async |host: &str| {
        let change = Patch::Merge(json!({"metadata": {"annotations": {REGISTRY_HOST: host}}}));
        stage
            .secrets()
            .patch("push", &PatchParams::default(), &change)
            .await
    };
    bind("old.test:5000").await?;
    let unusable = ready(invalid).await?;
    assert!(unusable.contains("must name the hostname"), "{unusable}");
    bind(host).await?;
    assert_eq!(ready(usable).await?, "tasks push with the Secret");
    stage.restart_hub().await?;
    // A verdict that has not changed is not written again.
    let begin = stage.plane.audit()?.mark().await?;
    stage.barrier().await?;
    let counts = stage.plane.audit()?.counts(begin, stage.hub_user.name()).await?;
    assert_eq!(counts.get("patch clusterregistries/status"), None);
    stage.put_registry(json!({"hostname": "moved.test"})).await?;
    wait_for("the verdict on the new spec", LIMIT, async || {
        let now = registries.get(&name).await?;
        let seen = now.data["status"]["observedGeneration"].as_i64();
        Ok((seen.is_some() && seen == now.metadata.generation).then_some(()))
    })
    .await?;
    assert!(!stage.everything_said().await?.contains(support::CANARY));
    // Anonymous pushes are a choice, and the condition says so.
    let message = ready(usable).await?;
    assert_eq!(message, "tasks push anonymously");
    let task = stage.submit(stage.task("shop")).await?;
    stage.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.passed();
    Ok(())
}
