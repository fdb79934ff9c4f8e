//! A task's spec stays as it was made, whatever is tried, and each layer that keeps it so is tried alone.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use kube::Api;
use kube::api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use renderhub_harness::{ControlPlane, apply};
use serde_json::{Value, json};
use support::api::{KINDS, MAKER, api, install_crds, install_policies, make, merge, release, remove};

/// What is tried: a name, and a merge patch of the spec.
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
    /// Server-side apply by the task's author, which also removes what it leaves out.
    ApplyAsMaker,
    /// Server-side apply by another manager, with force.
    ApplyByForce,
    /// Server-side apply by another manager, without.
    Apply,
    PutStatus,
    MergePatchStatus,
    /// With another seal on the status, which makes the rule compare nothing where the API server takes it.
    PutWithSeal,
    MergePatchWithSeal,
    MergePatchStatusWithSeal,
}

const WAYS: [Way; 11] = [
    Way::Put,
    Way::JsonPatch,
    Way::MergePatch,
    Way::ApplyAsMaker,
    Way::ApplyByForce,
    Way::Apply,
    Way::PutStatus,
    Way::MergePatchStatus,
    Way::PutWithSeal,
    Way::MergePatchWithSeal,
    Way::MergePatchStatusWithSeal,
];

/// Seals of the statuses that are sent.
static SEALS: AtomicU64 = AtomicU64::new(1);

/// Sends a change of the spec. Its result is not the verdict: the caller reads the task.
async fn send(tasks: &Api<DynamicObject>, now: &DynamicObject, patch: &Value, way: Way) -> kube::Result<()> {
    let name = now.metadata.name.as_deref().unwrap_or_default();
    let mut whole = now.clone();
    merge(&mut whole.data["spec"], patch);
    let json = |value: Value| serde_json::from_value(value).map_err(kube::Error::SerdeError);
    let merged = Patch::Merge(json!({ "spec": patch }));
    let status = json!({ "seal": format!("{:064x}", SEALS.fetch_add(1, Ordering::Relaxed)) });
    let sealed = Patch::Merge(json!({ "spec": patch, "status": status }));
    let (post, plain) = (PostParams::default(), PatchParams::default());
    let (by_maker, by_other) = (PatchParams::apply(MAKER), PatchParams::apply("other"));
    let answer = match way {
        Way::Put => tasks.replace(name, &post, &whole).await,
        Way::PutStatus => tasks.replace_status(name, &post, &whole).await,
        Way::JsonPatch => {
            let replace = json!([{ "op": "replace", "path": "/spec", "value": whole.data["spec"] }]);
            let replace = Patch::<Value>::Json(json(replace)?);
            tasks.patch(name, &plain, &replace).await
        }
        Way::MergePatch => tasks.patch(name, &plain, &merged).await,
        Way::MergePatchStatus => tasks.patch_status(name, &plain, &merged).await,
        Way::PutWithSeal => {
            whole.data["status"] = status;
            tasks.replace(name, &post, &whole).await
        }
        Way::MergePatchWithSeal => tasks.patch(name, &plain, &sealed).await,
        Way::MergePatchStatusWithSeal => tasks.patch_status(name, &plain, &sealed).await,
        Way::ApplyAsMaker => tasks.patch(name, &by_maker, &Patch::Apply(bare(whole))).await,
        Way::ApplyByForce => {
            tasks
                .patch(name, &by_other.force(), &Patch::Apply(bare(whole)))
                .await
        }
        Way::Apply => tasks.patch(name, &by_other, &Patch::Apply(bare(whole))).await,
    };
    answer.map(drop)
}

/// The object as a client applies it: with no metadata but its name.
fn bare(mut object: DynamicObject) -> DynamicObject {
    let name = object.metadata.name.take();
    object.metadata = ObjectMeta {
        name,
        ..ObjectMeta::default()
    };
    object
}

/// Tries every change in every way on both kinds, and returns the changes that were accepted. Each of those must have moved the
/// generation, on which the hub relies, and nothing else may have.
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
                    let to_status = matches!(
                        way,
                        Way::PutStatus | Way::MergePatchStatus | Way::MergePatchStatusWithSeal
                    );
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

/// Holds: T4.
#[tokio::test]
async fn no_change_gets_through_the_rule_and_the_policy() -> Result<()> {
    let plane = ControlPlane::start().await?;
    install_crds(&plane).await?;
    install_policies(&plane).await?;
    assert_eq!(through(&plane).await?, BTreeSet::new());
    Ok(())
}

/// Without the policy a few changes get through; all of them move the generation, so the hub refuses to serve them.
/// Holds: T4, T7.
#[tokio::test]
async fn what_gets_through_the_rule_alone_moves_the_generation() -> Result<()> {
    let plane = ControlPlane::start().await?;
    install_crds(&plane).await?;
    assert_eq!(through(&plane).await?, BTreeSet::from(UNSEEN_BY_THE_RULE));
    Ok(())
}

/// The policy does not lean on the rule: an API server that judges rules differently changes next to nothing.
/// Holds: T4.
#[tokio::test]
async fn what_gets_through_the_policy_alone_moves_the_generation() -> Result<()> {
    let plane = ControlPlane::start().await?;
    install_crds(&plane).await?;
    install_policies(&plane).await?;
    let client = plane.admin().client().await?;
    for mut crd in renderhub::api::custom_resource_definitions() {
        let kind = crd.spec.versions[0]
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut());
        let rules = kind.context("a schema")?.x_kubernetes_validations.iter_mut();
        for rule in rules.flatten() {
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
