//! A class whose Jobs the API server does not accept: the platform operator finds the cause, and what waited starts by itself.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use renderhub::api::RendererClass;
use renderhub::api::conditions::ConditionType::{JobScheduled, Stalled};
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use support::record::{raw, until_condition};
use support::{LIMIT, Stage, has, plane};

/// Longest that a task may wait after what refused it is gone: the pauses grow while it is there.
const AGAIN: Duration = Duration::from_secs(120);

/// Waits until an event on the class says this.
async fn event_says(stage: &Stage, words: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(stage.admin.clone(), "default");
    wait_for(&format!("an event that says {words}"), LIMIT, async || {
        let all = events.list(&ListParams::default()).await?;
        let is_it = |e: &Event| {
            let regarding = e.regarding.clone().unwrap_or_default();
            let is_class = regarding.kind.as_deref() == Some("RendererClass");
            is_class
                && regarding.name.as_deref() == Some("tried")
                && e.note.as_deref().unwrap_or_default().contains(words)
        };
        Ok(all.iter().any(is_it).then_some(()))
    })
    .await
}

/// What binds to the rendering namespace of this stage alone.
fn only_there(stage: &Stage) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": stage.scope.rendering}})
}

/// Waits until the API server accepts, or does not, a Job in the rendering namespace.
async fn jobs_are_accepted(stage: &Stage, wanted: bool) -> Result<()> {
    let job: Job = serde_json::from_value(
        json!({"metadata": {"name": "probe"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}}),
    )?;
    let dry_run = PostParams {
        dry_run: true,
        field_manager: None,
    };
    wait_for("the API server to decide so", LIMIT, async || {
        let made = stage.jobs().create(&dry_run, &job).await;
        Ok((made.is_ok() == wanted).then_some(()))
    })
    .await
}

async fn starts(stage: &Stage, name: &str) -> Result<()> {
    wait_for("the task to start by itself", AGAIN, async || {
        let status = stage.tasks().get(name).await?.status.unwrap_or_default();
        Ok(has(&status, JobScheduled, "True", "JobScheduled").then_some(()))
    })
    .await
}

/// Holds: B28.
#[tokio::test]
async fn a_class_whose_jobs_are_refused_says_why_and_its_tasks_start_once_they_are_not() -> Result<()> {
    let mut stage = Stage::on(plane::own_plane(&["crds"]).await?, "tried", &[]).await?;
    let classes: Api<DynamicObject> = Api::all_with(stage.admin.clone(), &raw::<RendererClass>());
    stage.make_registry().await?;
    let asks_too_much = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}});
    stage
        .put_class(
            "tried",
            json!({"image": "a.test/b:1", "resources": asks_too_much}),
        )
        .await?;
    stage.start_hub().await?;

    // Found when the class is seen, before any task of it.
    let field = "spec.template.spec.";
    let message = until_condition(&classes, "tried", "Ready", ("False", "JobRefused")).await?;
    assert!(
        message.contains(field) && message.contains("correct the class"),
        "{message}"
    );
    event_says(&stage, field).await?;
    let line = |words: &[&str]| {
        let log = stage.hub().log();
        log.lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(line(&["WARN", "tried", field]), "{}", stage.hub().log());
    let of_class = |name| stage.submit_with(name, json!({"rendererClassName": "tried"}));
    let shop = of_class("shop").await?;
    let status = stage
        .condition(&shop, JobScheduled, "False", "JobRefused")
        .await?;
    assert!(
        !has(&status, Stalled, "True", "JobRefused"),
        "it starts by itself"
    );
    assert_eq!(stage.objects(&shop).await?, (false, false));
    let fits = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
    stage
        .put_class("tried", json!({"image": "a.test/b:1", "resources": fits}))
        .await?;
    until_condition(&classes, "tried", "Ready", ("True", "Ready")).await?;
    starts(&stage, "shop").await?;

    // A policy that denies Jobs later is found by the first task, and nothing shows the hub that it is gone.
    deny(&stage).await?;
    jobs_are_accepted(&stage, false).await?;
    let denied = of_class("denied").await?;
    stage
        .condition(&denied, JobScheduled, "False", "JobRefused")
        .await?;
    let message = until_condition(&classes, "tried", "Ready", ("False", "JobRefused")).await?;
    assert!(
        message.contains("ValidatingAdmissionPolicy no-jobs denies it"),
        "{message}"
    );
    event_says(&stage, "no-jobs").await?;
    assert!(line(&["WARN", &denied.uid().unwrap_or_default(), "no-jobs"]));
    let own = stage.submit(stage.task("own")).await?;
    stage.condition(&own, JobScheduled, "False", "JobRefused").await?;
    remove(&stage, "ValidatingAdmissionPolicyBinding", "no-jobs").await?;
    jobs_are_accepted(&stage, true).await?;
    starts(&stage, "denied").await?;
    starts(&stage, "own").await?;
    until_condition(&classes, "tried", "Ready", ("True", "Ready")).await?;

    // A webhook that must be asked and is not there.
    break_webhook(&stage).await?;
    jobs_are_accepted(&stage, false).await?;
    let unasked = of_class("unasked").await?;
    stage
        .condition(&unasked, JobScheduled, "False", "JobRefused")
        .await?;
    let message = until_condition(&classes, "tried", "Ready", ("False", "JobRefused")).await?;
    assert!(
        message.contains("the admission webhook gone.example.com does not answer"),
        "{message}"
    );
    remove(&stage, "ValidatingWebhookConfiguration", "gone").await?;
    starts(&stage, "unasked").await?;
    let said = stage.everything_said().await?;
    assert!(!said.contains("words of the policy") && !stage.hub().log().contains("words of the policy"));
    stage.passed();
    Ok(())
}

async fn deny(stage: &Stage) -> Result<()> {
    let rules = json!([{"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"]}]);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-jobs"},
        "spec": {"matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "false", "message": "words of the policy"}]},
    });
    apply::object(&stage.admin, policy).await?;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-jobs"},
        "spec": {"policyName": "no-jobs", "validationActions": ["Deny"], "matchResources": {"namespaceSelector": only_there(stage)}},
    });
    apply::object(&stage.admin, binding).await?;
    Ok(())
}

async fn break_webhook(stage: &Stage) -> Result<()> {
    let rules = json!([{"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"]}]);
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "gone"},
        "webhooks": [{
            "name": "gone.example.com", "clientConfig": {"url": "https://127.0.0.1:9/"}, "rules": rules, "failurePolicy": "Fail",
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "namespaceSelector": only_there(stage), "timeoutSeconds": 1,
        }],
    });
    apply::object(&stage.admin, webhook).await?;
    Ok(())
}

async fn remove(stage: &Stage, kind: &str, name: &str) -> Result<()> {
    let gvk = kube::core::GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let resource = kube::api::ApiResource::from_gvk(&gvk);
    let api: Api<DynamicObject> = Api::all_with(stage.admin.clone(), &resource);
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}
