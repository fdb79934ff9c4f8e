//! What the API server takes and what it refuses: bounds, rules between fields, the finalizer, the status.

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Patch, PatchParams, PostParams};
use renderhub_harness::ControlPlane;
use serde_json::{Value, json};
use support::api::{KINDS, api, install_crds, install_policies, make, merge, object, release, remove};

/// What leaves the spec as it was: the API server drops it.
fn idle_changes() -> [Value; 3] {
    [
        json!({ "unknown": { "a": 1 } }),
        json!({ "registryRef": { "apiVersion": "v1" } }),
        json!({ "failedJobTTL": null, "owner": { "namespace": null } }),
    ]
}

#[tokio::test]
async fn what_the_api_server_drops_is_no_change() -> Result<()> {
    let plane = shared().await?;
    let client = plane.admin().client().await?;
    for kind in KINDS {
        let tasks = api(&client, kind);
        let mut now = make(&tasks, &release(kind, "idle")).await?;
        for patch in idle_changes() {
            let merged = Patch::Merge(json!({ "spec": patch }));
            tasks.patch("idle", &PatchParams::default(), &merged).await?;
            for (name, value) in patch.as_object().context("an object")? {
                let field = &mut now.data["spec"][name];
                if value.is_object() && field.is_object() {
                    merge(field, value);
                } else {
                    *field = value.clone();
                }
            }
            now.metadata.generation = Some(9);
            let after = tasks.replace("idle", &PostParams::default(), &now).await?;
            assert_eq!(after.metadata.generation, Some(1), "{patch}");
            now = after;
        }
        assert_eq!(
            now.data["spec"]["registryRef"],
            json!({ "kind": "ClusterRegistry", "name": "main" })
        );
        assert!(now.data["spec"].get("unknown").is_none());
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

/// Holds: T1.
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
