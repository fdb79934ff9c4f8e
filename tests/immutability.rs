//! A task's spec stays as it was made, whatever is tried, and each layer that keeps it so is tried alone.

mod api_support;

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use api_support::{api, install_crds, install_policies, merge, object, release};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use renderhub_harness::{ControlPlane, apply};
use serde_json::{Value, json};

const KINDS: [&str; 2] = ["RenderTask", "ClusterRenderTask"];
/// Field manager that the tasks of this test are made with.
const MAKER: &str = "maker";

/// What is tried: a name, and a merge patch of the spec. A field that is `REMOVE` or a rename is in [`changed`].
#[rustfmt::skip]
fn changes() -> Vec<(&'static str, Value)> {
    let release = |patch: Value| json!({ "config": { "release": patch } });
    vec![
        ("a field changes", json!({ "registryRef": { "name": "other" } })),
        ("a defaulted field changes", json!({ "registryRef": { "kind": "Registry" } })),
        ("an optional field is added", json!({ "failedJobTTL": 0 })),
        ("an optional object is added", json!({ "rendererClassName": "other", "serviceAccountName": "me" })),
        ("an optional field is removed", json!({ "owner": null })),
        ("an optional field is added in an object", json!({ "owner": { "namespace": "elsewhere" } })),
        ("one optional object for another", json!({ "registryRef": null, "baseURL": "registry.example" })),
        ("the chart changes as a whole", json!({ "repository": "team-a/bad", "tag": "2.0.0",
            "config": { "release": { "chart": { "name": "bad", "version": "2.0.0" } } } })),
        ("the type changes", json!({ "config": { "type": "other", "release": null } })),
        ("an optional field is added in the configuration", release(json!({ "targetNamespace": "kube-system" }))),
        ("a map gains an entry", release(json!({ "input": { "resources": {
            "more": { "repository": "registry.example/more", "tag": "1" } } } }))),
        ("a map loses an entry", release(json!({ "input": { "resources": { "chart": null } } }))),
        ("a map's entry gets another name", release(json!({ "input": { "resources": {
            "chart": null, "moved": { "repository": "registry.example/web", "tag": "1.2.3" } } } }))),
        ("a map's entry changes", release(json!({ "input": { "resources": { "chart": { "tag": "6.6.6" } } } }))),
        ("a default is spelled out", release(json!({ "input": { "resources": { "chart": { "insecure": false } } } }))),
        ("a free-form value changes", release(json!({ "values": { "replicas": 2 } }))),
        ("a free-form value is added", release(json!({ "values": { "image": "evil" } }))),
        ("a free-form value is removed", release(json!({ "values": { "replicas": null } }))),
        ("a free-form value gets another name", release(json!({ "values": { "replicas": null, "replica": 1 } }))),
        ("a free-form list is reordered", release(json!({ "values": { "hosts": ["b", "a"] } }))),
        ("the free-form values become a text", release(json!({ "values": "none" }))),
        ("the free-form values are removed", release(json!({ "values": null }))),
        ("a large number moves by one", release(json!({ "values": { "large": 9_007_199_254_740_992_i64 } }))),
        ("a large number is given as a fraction", release(json!({ "values": { "large": 9_007_199_254_740_992.0_f64 } }))),
        ("an unknown field is added", json!({ "config": { "more": 1 } })),
        ("an unknown field changes", json!({ "config": { "extra": { "deep": 2 } } })),
        ("an unknown field is removed", json!({ "config": { "extra": null } })),
        ("an unknown field gets another name", json!({ "config": { "extra": null, "extras": { "deep": 1 } } })),
        ("an unknown field of the chart gets another name", release(json!({ "chart": { "icon": null, "icons": "a" } }))),
        ("an unknown field of a resource gets another name", release(json!({ "input": { "resources": {
            "chart": { "mirror": null, "mirrors": "m" } } } }))),
        ("a field of no type is replaced by another", release(json!({ "later": null, "latest": 1 }))),
    ]
}

/// What leaves the spec as it was: the API server drops it.
fn idle_changes() -> Vec<(&'static str, Value)> {
    vec![
        ("an unknown field of the spec", json!({ "unknown": { "a": 1 } })),
        (
            "an unknown field of a reference",
            json!({ "registryRef": { "namespace": "kube-system" } }),
        ),
    ]
}

/// The fields that a CRD's own rule does not compare: one unknown field in the place of another. Kubernetes compares an
/// unknown field only where both sides have it, and otherwise counts fields.
const UNSEEN_BY_THE_RULE: [&str; 4] = [
    "a field of no type is replaced by another",
    "an unknown field gets another name",
    "an unknown field of a resource gets another name",
    "an unknown field of the chart gets another name",
];

/// What the policy does not compare: CEL compares a whole number with a fraction as fractions, which are too coarse.
const UNSEEN_BY_THE_POLICY: [&str; 1] = ["a large number is given as a fraction"];

/// A task with known, free-form and unknown fields.
fn victim(kind: &str) -> Value {
    let mut task = release(kind, "victim");
    let more = json!({
        "extra": { "deep": 1 },
        "release": {
            "chart": { "icon": "a" }, "later": 1, "values": { "large": 9_007_199_254_740_993_i64 },
            "input": { "resources": { "chart": { "mirror": "m" } } },
        },
    });
    merge(&mut task["spec"]["config"], &more);
    task
}

/// How a change is sent.
#[derive(Clone, Copy, Debug)]
enum Way {
    Put,
    JsonPatch,
    MergePatch,
    /// Server-side apply by whoever made the task, which also removes what it leaves out.
    ApplyAsMaker,
    /// Server-side apply by somebody else, with force.
    ApplyByForce,
    /// Server-side apply by somebody else, without.
    Apply,
    PutStatus,
    MergePatchStatus,
}

const WAYS: [Way; 8] = [
    Way::Put,
    Way::JsonPatch,
    Way::MergePatch,
    Way::ApplyAsMaker,
    Way::ApplyByForce,
    Way::Apply,
    Way::PutStatus,
    Way::MergePatchStatus,
];

/// Sends a change of the spec. Whether it is accepted says little: the caller looks at what became of the task.
async fn send(tasks: &Api<DynamicObject>, now: &DynamicObject, patch: &Value, way: Way) -> kube::Result<()> {
    let name = now.metadata.name.as_deref().unwrap_or_default();
    let mut whole = serde_json::to_value(now).map_err(kube::Error::SerdeError)?;
    merge(&mut whole["spec"], patch);
    let mut wanted = whole.clone();
    wanted["metadata"] = json!({ "name": name });
    let merge_patch = Patch::Merge(json!({ "spec": patch }));
    let by = |manager: &str| PatchParams::apply(manager);
    let plain = PatchParams::default();
    match way {
        Way::Put => tasks
            .replace(name, &PostParams::default(), &object(whole))
            .await
            .map(drop),
        Way::JsonPatch => {
            let replace = json!([{ "op": "replace", "path": "/spec", "value": whole["spec"] }]);
            let replace = serde_json::from_value(replace).map_err(kube::Error::SerdeError)?;
            tasks
                .patch(name, &plain, &Patch::Json::<Value>(replace))
                .await
                .map(drop)
        }
        Way::MergePatch => tasks.patch(name, &plain, &merge_patch).await.map(drop),
        Way::ApplyAsMaker => tasks
            .patch(name, &by(MAKER), &Patch::Apply(wanted))
            .await
            .map(drop),
        Way::ApplyByForce => tasks
            .patch(name, &by("other").force(), &Patch::Apply(wanted))
            .await
            .map(drop),
        Way::Apply => tasks
            .patch(name, &by("other"), &Patch::Apply(wanted))
            .await
            .map(drop),
        Way::PutStatus => tasks
            .replace_status(name, &PostParams::default(), &object(whole))
            .await
            .map(drop),
        Way::MergePatchStatus => tasks.patch_status(name, &plain, &merge_patch).await.map(drop),
    }
}

/// Makes the task, by server-side apply so that somebody owns its fields.
async fn make(tasks: &Api<DynamicObject>, task: &Value) -> Result<DynamicObject> {
    let name = task["metadata"]["name"].as_str().context("a name")?;
    let made = tasks
        .patch(name, &PatchParams::apply(MAKER), &Patch::Apply(task))
        .await?;
    assert_eq!(made.metadata.generation, Some(1));
    Ok(made)
}

/// Removes the task at once.
async fn remove(tasks: &Api<DynamicObject>, name: &str) -> Result<()> {
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    tasks.patch(name, &PatchParams::default(), &free).await?;
    tasks.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Tries every change in every way on both kinds, and returns the changes that got through. Each of those must have
/// moved the generation, which is what the hub looks at, and nothing else may have.
async fn through(plane: &ControlPlane) -> Result<BTreeSet<&'static str>> {
    let client = plane.admin().client().await?;
    let mut through = BTreeSet::new();
    for kind in KINDS {
        let tasks = api(&client, kind);
        let mut now = make(&tasks, &victim(kind)).await?;
        for (what, patch) in changes() {
            for way in WAYS {
                let answer = send(&tasks, &now, &patch, way).await;
                let after = tasks.get("victim").await?;
                let held = after.data["spec"] == now.data["spec"];
                let moved = after.metadata.generation != Some(1);
                assert_eq!(held, !moved, "{kind}: {what} by {way:?}: {answer:?}");
                if held {
                    let to_status = matches!(way, Way::PutStatus | Way::MergePatchStatus);
                    assert_eq!(answer.is_ok(), to_status, "{kind}: {what} by {way:?}: {answer:?}");
                    now = after;
                } else {
                    through.insert(what);
                    remove(&tasks, "victim").await?;
                    now = make(&tasks, &victim(kind)).await?;
                }
            }
        }
        remove(&tasks, "victim").await?;
    }
    Ok(through)
}

#[tokio::test]
async fn no_change_gets_through_the_rule_and_the_policy() -> Result<()> {
    let plane = ControlPlane::start().await?;
    install_crds(&plane).await?;
    install_policies(&plane).await?;
    assert_eq!(through(&plane).await?, BTreeSet::new());
    Ok(())
}

/// Without the policy a few changes get through; all of them move the generation, so the hub refuses to serve them.
#[tokio::test]
async fn what_gets_through_the_rule_alone_moves_the_generation() -> Result<()> {
    let plane = ControlPlane::start().await?;
    install_crds(&plane).await?;
    assert_eq!(through(&plane).await?, BTreeSet::from(UNSEEN_BY_THE_RULE));
    Ok(())
}

/// The policy does not lean on the rule: an API server that judges rules differently changes next to nothing.
#[tokio::test]
async fn what_gets_through_the_policy_alone_moves_the_generation() -> Result<()> {
    let plane = ControlPlane::start().await?;
    install_crds(&plane).await?;
    install_policies(&plane).await?;
    let client = plane.admin().client().await?;
    for mut crd in renderhub::api::custom_resource_definitions() {
        let spec = crd.spec.versions[0]
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut());
        let spec = spec
            .and_then(|s| s.properties.as_mut()?.get_mut("spec"))
            .context("a spec")?;
        for rule in spec.x_kubernetes_validations.iter_mut().flatten() {
            if rule.rule.contains("oldSelf") {
                rule.rule = "true".to_owned();
            }
        }
        apply::object(&client, serde_json::to_value(crd)?).await?;
    }
    rule_is_gone(&plane).await?;
    assert_eq!(through(&plane).await?, BTreeSet::from(UNSEEN_BY_THE_POLICY));
    Ok(())
}

/// Waits until the API server judges by the loosened CRDs: the refusal is the policy's, not the rule's.
async fn rule_is_gone(plane: &ControlPlane) -> Result<()> {
    let client = plane.admin().client().await?;
    for kind in KINDS {
        let tasks = api(&client, kind);
        make(&tasks, &victim(kind)).await?;
        let patch = Patch::Merge(json!({ "spec": { "failedJobTTL": 1 } }));
        let limit = std::time::Duration::from_secs(30);
        renderhub_harness::wait_for("the rule to be gone", limit, async || {
            let answer = tasks.patch("victim", &PatchParams::default(), &patch).await;
            let text = answer.err().map(|e| e.to_string()).unwrap_or_default();
            Ok(text.contains("ValidatingAdmissionPolicy").then_some(()))
        })
        .await?;
        remove(&tasks, "victim").await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_the_api_server_drops_is_no_change() -> Result<()> {
    let plane = shared().await?;
    let client = plane.admin().client().await?;
    for kind in KINDS {
        let tasks = api(&client, kind);
        let mut task = victim(kind);
        task["metadata"]["name"] = json!("idle");
        let mut now = make(&tasks, &task).await?;
        for (what, patch) in idle_changes() {
            for way in [Way::Put, Way::JsonPatch, Way::MergePatch] {
                send(&tasks, &now, &patch, way)
                    .await
                    .with_context(|| format!("{what} by {way:?}"))?;
                let after = tasks.get("idle").await?;
                assert_eq!(after.data["spec"], now.data["spec"], "{what} by {way:?}");
                assert_eq!(after.metadata.generation, Some(1), "{what} by {way:?}");
                now = after;
            }
        }
    }
    Ok(())
}

/// The control plane with rules and policies that the tests below share.
async fn shared() -> Result<&'static ControlPlane> {
    static INSTALLED: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let plane = ControlPlane::shared().await?;
    INSTALLED
        .get_or_try_init(|| async {
            install_crds(plane).await?;
            install_policies(plane).await
        })
        .await?;
    Ok(plane)
}

#[tokio::test]
async fn a_status_does_not_move_the_generation() -> Result<()> {
    let client = shared().await?.admin().client().await?;
    for kind in KINDS {
        let tasks = api(&client, kind);
        let mut task = release(kind, "reported");
        task["status"] = json!({ "attempts": 7 });
        let made = make(&tasks, &task).await?;
        assert!(
            made.data.get("status").is_none(),
            "a status cannot be brought along: {:?}",
            made.data
        );
        let status =
            Patch::Merge(json!({ "status": { "attempts": 1, "digest": format!("sha256:{:064}", 0) } }));
        tasks
            .patch_status("reported", &PatchParams::default(), &status)
            .await?;
        let mut after = tasks.get("reported").await?;
        assert_eq!(
            (after.metadata.generation, &after.data["status"]["attempts"]),
            (Some(1), &json!(1))
        );
        after.data["status"]["attempts"] = json!(2);
        let after = tasks
            .replace_status("reported", &PostParams::default(), &after)
            .await?;
        assert_eq!(
            (after.metadata.generation, &after.data["status"]["attempts"]),
            (Some(1), &json!(2))
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_task_is_made_with_the_finalizer() -> Result<()> {
    const OURS: &str = "renderhub.dev/cleanup";
    let client = shared().await?.admin().client().await?;
    let cases = [
        (json!(null), vec![OURS]),
        (json!([]), vec![OURS]),
        (
            json!(["example.com/a", "example.com/b"]),
            vec!["example.com/a", "example.com/b", OURS],
        ),
        (json!([OURS]), vec![OURS]),
        (json!([OURS, "example.com/a"]), vec![OURS, "example.com/a"]),
    ];
    for kind in KINDS {
        let tasks = api(&client, kind);
        for (index, (given, expected)) in cases.iter().enumerate() {
            let mut task = release(kind, &format!("finalized-{index}"));
            task["metadata"]["finalizers"] = given.clone();
            let made = tasks.create(&PostParams::default(), &object(task)).await?;
            assert_eq!(
                made.metadata.finalizers.unwrap_or_default(),
                *expected,
                "{kind} with {given}"
            );
        }
        let applied = make(&tasks, &release(kind, "finalized-by-apply")).await?;
        assert_eq!(applied.metadata.finalizers.unwrap_or_default(), [OURS], "{kind}");
        // The policy is for creation alone: the hub takes the finalizer away when its work is done.
        remove(&tasks, "finalized-by-apply").await?;
        assert!(tasks.get_opt("finalized-by-apply").await?.is_none());
    }
    Ok(())
}

/// Comparing two large specs must fit the cost that the API server grants, or such a task could never be finished.
#[tokio::test]
async fn a_task_of_full_size_can_be_labelled_reported_and_removed() -> Result<()> {
    let client = shared().await?.admin().client().await?;
    for kind in KINDS {
        let tasks = api(&client, kind);
        let mut task = release(kind, "large");
        let entries = (0..10_000).map(|n| {
            (
                format!("key-{n}"),
                json!({ "text": "x".repeat(60), "list": [1, 2, n] }),
            )
        });
        task["spec"]["config"]["release"]["values"] = Value::Object(entries.collect());
        assert!(task.to_string().len() > 1_000_000);
        tasks.create(&PostParams::default(), &object(task)).await?;
        let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
        tasks.patch("large", &PatchParams::default(), &label).await?;
        let status = Patch::Merge(json!({ "status": { "attempts": 1 } }));
        tasks
            .patch_status("large", &PatchParams::default(), &status)
            .await?;
        let change =
            Patch::Merge(json!({ "spec": { "config": { "release": { "values": { "key-9999": 1 } } } } }));
        assert!(
            tasks
                .patch("large", &PatchParams::default(), &change)
                .await
                .is_err()
        );
        assert_eq!(tasks.get("large").await?.metadata.generation, Some(1));
        remove(&tasks, "large").await?;
    }
    Ok(())
}

#[tokio::test]
async fn who_may_write_tasks_may_not_write_their_status() -> Result<()> {
    let plane = shared().await?;
    let rule = PolicyRule {
        api_groups: Some(vec!["renderhub.dev".to_owned()]),
        resources: Some(vec!["rendertasks".to_owned()]),
        verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]
            .map(String::from)
            .to_vec(),
        ..PolicyRule::default()
    };
    let tenant = plane
        .user_with_rules("writer", vec![rule])
        .await?
        .client()
        .await?;
    let tasks = api(&tenant, "RenderTask");
    tasks
        .create(&PostParams::default(), &object(release("RenderTask", "mine")))
        .await?;
    let forged = json!({ "status": { "attempts": 1, "digest": format!("sha256:{:064}", 1) } });
    let as_status = tasks
        .patch_status("mine", &PatchParams::default(), &Patch::Merge(&forged))
        .await;
    assert!(matches!(as_status, Err(kube::Error::Api(status)) if status.code == 403));
    tasks
        .patch("mine", &PatchParams::default(), &Patch::Merge(&forged))
        .await?;
    let mut whole = tasks.get("mine").await?;
    whole.data["status"] = forged["status"].clone();
    let after = tasks.replace("mine", &PostParams::default(), &whole).await?;
    assert!(after.data.get("status").is_none(), "{:?}", after.data["status"]);
    let platform = api(&tenant, "ClusterRenderTask");
    let refused = platform
        .create(
            &PostParams::default(),
            &object(release("ClusterRenderTask", "not-mine")),
        )
        .await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    Ok(())
}
