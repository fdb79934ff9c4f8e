//! What only a hub may do to a task, with the policies in force: write its status and remove the finalizer. No other client can,
//! whatever RBAC allows, and no administrator is hindered in anything else.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use renderhub::api::labels::{FINALIZER, TARGET_FINALIZER};
use renderhub::api::pipeline::{HydratedTarget, Target};
use renderhub::api::{ClusterRegistry, RenderTask, custom_resource_definitions};
use renderhub_harness::{ControlPlane, apply, wait_for};
use serde_json::{Value, json};
use support::api::GRANTED_KINDS;
use support::careless::{put_finalizers, put_status};
use support::{LIMIT, Stage, job_name_of, plane};
use tokio::sync::OnceCell;

/// The control plane with the policies, all in force.
async fn guarded() -> Result<&'static ControlPlane> {
    static GUARDED: OnceCell<&'static ControlPlane> = OnceCell::const_new();
    let plane = GUARDED.get_or_try_init(|| async {
        let plane = plane::own_plane(&["crds", "policies"]).await?;
        plane::keep_rights_in_dying_namespaces(plane).await?;
        let stage = Stage::on(plane, "probe", &[]).await?;
        // Policies learn of a new kind some seconds later than other clients do.
        let task = wait_for("a task to be taken", LIMIT, async || {
            Ok(Some(stage.submit(stage.task("probe")).await?))
        })
        .await?;
        let tenant = stage.careless_tenant().await?;
        wait_for("the policies to be in force", LIMIT, async || {
            let status = put_status(&tenant, "probe", &json!({})).await;
            let finalizer = put_finalizers(&tenant, "probe", &json!([])).await;
            if finalizer.is_ok() {
                put_finalizers(&tenant, "probe", &json!([FINALIZER])).await?;
            }
            Ok((is_refused(&status) && is_refused(&finalizer)).then_some(()))
        })
        .await?;
        put_finalizers(&stage.tasks(), &task.name_any(), &json!([])).await?;
        stage.passed();
        anyhow::Ok(plane)
    });
    Ok(*plane.await?)
}

/// Whether a policy of the chart refused it.
fn is_refused(answer: &kube::Result<()>) -> bool {
    let Err(kube::Error::Api(status)) = answer else {
        return false;
    };
    status.code == 403 && status.message.contains("renderhub-hub-only-")
}

trait Guarded: Sized {
    async fn guarded(prefix: &str) -> Result<Self>;
    async fn succeeded_and_cleared(&self, name: &str) -> Result<RenderTask>;
}

impl Guarded for Stage {
    async fn guarded(prefix: &str) -> Result<Self> {
        let mut stage = Self::on(guarded().await?, prefix, &[]).await?;
        stage.make_registry().await?;
        stage.start_hub().await?;
        Ok(stage)
    }

    async fn succeeded_and_cleared(&self, name: &str) -> Result<RenderTask> {
        let task = self.succeeded(name).await?;
        self.cleared(&task).await?;
        Ok(task)
    }
}

/// Every way to write a status, as requests on a task that has one.
async fn status_writes(tasks: &Api<RenderTask>, name: &str) -> Result<Vec<(&'static str, kube::Result<()>)>> {
    let (plain, post) = (PatchParams::default(), PostParams::default());
    let mut whole = tasks.get(name).await?;
    let mut status = whole.status.clone().unwrap_or_default();
    status.attempts = Some(7);
    whole.status = Some(status);
    let merge = Patch::Merge(json!({"status": {"attempts": 7}}));
    let apply = Patch::Apply(json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderTask", "metadata": {"name": name},
        "status": {"attempts": 7},
    }));
    let by_force = PatchParams::apply("tenant").force();
    Ok(vec![
        ("merge", tasks.patch_status(name, &plain, &merge).await.map(drop)),
        (
            "apply",
            tasks.patch_status(name, &by_force, &apply).await.map(drop),
        ),
        ("put", tasks.replace_status(name, &post, &whole).await.map(drop)),
        ("json", put_status(tasks, name, &json!({"attempts": 7})).await),
        ("wipe", put_status(tasks, name, &json!({})).await),
    ])
}

/// Every way to take the hub's finalizer off.
async fn finalizer_removals(
    tasks: &Api<RenderTask>,
    name: &str,
) -> Result<Vec<(&'static str, kube::Result<()>)>> {
    let (plain, post) = (PatchParams::default(), PostParams::default());
    let mut whole = tasks.get(name).await?;
    whole.metadata.finalizers = None;
    let json = serde_json::from_value(json!([{"op": "remove", "path": "/metadata/finalizers"}]))?;
    let json = Patch::<Value>::Json(json);
    let mut swapped = whole.clone();
    swapped.metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
    Ok(vec![
        ("merge", put_finalizers(tasks, name, &Value::Null).await),
        ("empty", put_finalizers(tasks, name, &json!([])).await),
        ("json", tasks.patch(name, &plain, &json).await.map(drop)),
        ("put", tasks.replace(name, &post, &whole).await.map(drop)),
        ("swap", tasks.replace(name, &post, &swapped).await.map(drop)),
    ])
}

/// Holds: T1, T2.
#[tokio::test]
async fn a_tenant_with_every_right_writes_no_status_and_takes_no_finalizer_off() -> Result<()> {
    let stage = Stage::guarded("refused").await?;
    let tenant = stage.careless_tenant().await?;
    let (running, done) = (
        stage.scheduled("running").await?,
        stage.succeeded_and_cleared("done").await?,
    );
    let unseen = stage
        .submit_with("unseen", json!({"registryRef": {"name": "no-such-registry"}}))
        .await?;
    for task in [&running, &done, &unseen] {
        let name = task.name_any();
        let before = tenant.get(&name).await?;
        for (way, answer) in status_writes(&tenant, &name).await? {
            assert!(is_refused(&answer), "{name} by {way}: {answer:?}");
        }
        for (way, answer) in finalizer_removals(&tenant, &name).await? {
            assert!(is_refused(&answer), "{name} by {way}: {answer:?}");
        }
        let after = tenant.get(&name).await?;
        assert_eq!(after.finalizers(), before.finalizers());
        assert!(after.finalizers().contains(&FINALIZER.to_owned()));
        assert_eq!(
            after.status.and_then(|s| s.attempts),
            before.status.and_then(|s| s.attempts)
        );
        // What is the tenant's own stays so: other finalizers, labels, and the end of the task.
        put_finalizers(&tenant, &name, &json!([FINALIZER, "example.com/mine"])).await?;
        put_finalizers(&tenant, &name, &json!([FINALIZER])).await?;
        let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        tenant.patch(&name, &PatchParams::default(), &label).await?;
        tenant.delete(&name, &DeleteParams::default()).await?;
        wait_for("the task to be gone", LIMIT, async || {
            Ok(stage.tasks().get_opt(&name).await?.is_none().then_some(()))
        })
        .await?;
        stage.cleared(task).await?;
    }
    assert_eq!(stage.counted("renderhub_forged_statuses_total", &[]).await?, 0);
    stage.passed();
    Ok(())
}

/// Holds: T1, T2.
#[tokio::test]
async fn who_may_do_everything_is_not_hindered_and_forges_nothing() -> Result<()> {
    let stage = Stage::guarded("admin").await?;
    let everything =
        serde_json::from_value(json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]))?;
    let boss = stage.plane.user_with_rules("boss", everything).await?;
    let tasks: Api<RenderTask> = Api::namespaced(boss.client().await?, &stage.scope.tenant);
    let done = stage.succeeded_and_cleared("done").await?;
    let result = tasks.get("done").await?.status;
    put_status(&tasks, "done", &json!({"attempts": 7})).await?;
    wait_for("the result to be put right", LIMIT, async || {
        Ok((tasks.get("done").await?.status == result).then_some(()))
    })
    .await?;
    assert_eq!(stage.successes("create jobs", &job_name_of(&done)).await?, 1);
    // An administrator must be able to finish what no hub finishes any more.
    put_finalizers(&tasks, "done", &json!([])).await?;
    tasks.delete("done", &DeleteParams::default()).await?;
    assert!(tasks.get_opt("done").await?.is_none());
    let registries: Api<ClusterRegistry> = Api::all(boss.client().await?);
    let wiped = Patch::Merge(json!({"status": null}));
    registries
        .patch_status(&stage.scope.tenant, &PatchParams::default(), &wiped)
        .await?;
    stage.passed();
    Ok(())
}

/// The hub of this stage has no pipeline, so it does not take the finalizer off either: an administrator does.
///
/// Holds: T1.
#[tokio::test]
async fn a_tenant_takes_no_finalizer_off_a_target_and_an_administrator_does() -> Result<()> {
    let stage = Stage::guarded("targets").await?;
    let tenant: Api<Target> =
        Api::namespaced(stage.careless_tenant().await?.into_client(), &stage.scope.tenant);
    let target = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "Target",
        "metadata": {"name": "edge", "namespace": stage.scope.tenant, "finalizers": [TARGET_FINALIZER]},
        "spec": {"renderRegistryRef": {"name": "own"}},
    });
    apply::object(&stage.admin, target).await?;
    wait_for("the policy to know Targets", LIMIT, async || {
        let answer = put_finalizers(&tenant, "edge", &json!([])).await;
        if answer.is_ok() {
            put_finalizers(&tenant, "edge", &json!([TARGET_FINALIZER])).await?;
        }
        Ok(is_refused(&answer).then_some(()))
    })
    .await?;
    for finalizers in [json!(null), json!(["example.com/other"])] {
        let answer = put_finalizers(&tenant, "edge", &finalizers).await;
        assert!(is_refused(&answer), "{finalizers}: {answer:?}");
    }
    put_finalizers(&tenant, "edge", &json!([TARGET_FINALIZER, "example.com/mine"])).await?;
    put_finalizers(&tenant, "edge", &json!([TARGET_FINALIZER])).await?;
    tenant.delete("edge", &DeleteParams::default()).await?;
    assert!(is_refused(&put_finalizers(&tenant, "edge", &json!(null)).await));
    let targets: Api<Target> = Api::namespaced(stage.admin.clone(), &stage.scope.tenant);
    put_finalizers(&targets, "edge", &json!(null)).await?;
    assert!(targets.get_opt("edge").await?.is_none());
    stage.passed();
    Ok(())
}

/// What the platform grants to namespaces is recorded in the status of each of its kinds.
///
/// Holds: B12.
#[tokio::test]
async fn only_a_hub_writes_to_whom_the_platforms_objects_are_granted() -> Result<()> {
    let stage = Stage::guarded("granted").await?;
    let name = stage.scope.tenant.clone();
    let class = json!({"image": "renderer.test/r:1", "allowedNamespaces": [name]});
    stage.put_class(&name, class).await?;
    let cluster = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderCluster", "metadata": {"name": name},
        "spec": {
            "kubeConfig": {"secretRef": {"name": name}}, "renderNamespace": "renders", "allowedNamespaces": [name],
        },
    });
    apply::object(&stage.admin, cluster).await?;
    let statuses: Vec<_> = GRANTED_KINDS
        .iter()
        .map(|kind| format!("{kind}/status"))
        .collect();
    let rules = json!([{
        "apiGroups": ["renderhub.dev"], "verbs": ["get", "patch", "update"], "resources": statuses,
    }]);
    let careless = stage
        .plane
        .user_with_rules("granter", serde_json::from_value(rules)?)
        .await?;
    let client = careless.client().await?;
    for plural in &*GRANTED_KINDS {
        let forged = json!({"status": {"namespaces": {&name: "0a0b0c0d-0000-4000-8000-000000000001"}}});
        let write = || {
            let path = format!("/apis/renderhub.dev/v1alpha1/{plural}/{name}/status");
            let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
            request.body(forged.to_string().into_bytes())
        };
        // Policies learn of a new kind some seconds later than other clients do.
        wait_for(&format!("{plural} to be guarded"), LIMIT, async || {
            let answer = client.request::<Value>(write()?).await.map(drop);
            Ok(is_refused(&answer).then_some(()))
        })
        .await?;
    }
    // The hub itself does, or no task of this tenant would run.
    stage.succeeded_and_cleared("shop").await?;
    stage.passed();
    Ok(())
}

/// Holds: T2.
#[tokio::test]
async fn a_namespace_goes_with_all_its_tasks() -> Result<()> {
    let stage = Stage::guarded("namespace").await?;
    let running = stage.scheduled("running").await?;
    stage.succeeded_and_cleared("done").await?;
    stage.until_policies_see_tasks().await?;
    let namespaces: Api<Namespace> = Api::all(stage.admin.clone());
    let name = &stage.scope.tenant;
    namespaces.delete(name, &DeleteParams::default()).await?;
    wait_for("the namespace to be gone", LIMIT, async || {
        Ok(namespaces.get_opt(name).await?.is_none().then_some(()))
    })
    .await?;
    stage.cleared(&running).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn hubs_with_service_accounts_of_their_own_share_one_policy() -> Result<()> {
    let mut stages = Vec::new();
    for prefix in ["one", "other"] {
        // The rights of the stage's own user are not in the hub's way.
        let mut stage = Stage::on(guarded().await?, prefix, &["--skip-preflight=role-bindings"]).await?;
        stage.make_registry().await?;
        let account = stage.plane.service_account(&stage.scope.rendering, "hub").await?;
        stage.plane.set_rights(&account, &stage.rights).await?;
        let hub = stage.spawn_hub(&account.kubeconfig()?)?;
        hub.wait_ready().await?;
        stage.hub = Some(hub);
        stages.push(stage);
    }
    for stage in &stages {
        let task = stage.succeeded_and_cleared("shop").await?;
        assert_eq!(
            stage
                .counted("renderhub_reconcile_errors_total", &["Forbidden"])
                .await?,
            0
        );
        stage.delete(&task).await?;
    }
    let last = stages.pop().context("a stage")?;
    last.passed();
    stages.into_iter().for_each(Stage::passed);
    Ok(())
}

/// A version of a Target that no hub made.
fn forged_version() -> Value {
    json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "HydratedTarget", "metadata": {"name": "edge-v1"},
        "spec": {
            "targetName": "edge", "targetUid": "x", "version": 1, "changes": "",
            "registry": {"kind": "Registry", "name": "main", "hostname": "r.test", "repository": "evil/bootstrap-edge"},
            "releases": {},
        },
    })
}

/// The kinds that have a status, each with its plural.
fn kinds_with_status() -> BTreeMap<String, String> {
    let kinds = custom_resource_definitions().into_iter().map(|crd| crd.spec);
    let with_status = kinds.filter(|kind| {
        let subresources = kind.versions[0].subresources.as_ref();
        subresources.is_some_and(|all| all.status.is_some())
    });
    with_status
        .map(|kind| (kind.names.kind, kind.names.plural))
        .collect()
}

/// What a Target gets is in its status and in those of its versions: each kind of the pipeline that has a status is guarded.
///
/// Holds: T1, F9.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "it tells one story from its beginning to its end"
)]
async fn a_tenant_with_every_right_writes_no_status_of_the_pipeline() -> Result<()> {
    let stage = Stage::guarded("statuses").await?;
    let tenant = stage.careless_tenant().await?.into_client();
    let with_status = kinds_with_status();
    let objects = support::api::full::pipeline()
        .into_iter()
        .chain([forged_version()]);
    let mut guarded = 0;
    for mut object in objects {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let Some(plural) = with_status.get(&kind) else {
            continue;
        };
        object["metadata"]["namespace"] = json!(stage.scope.tenant);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        apply::object(&stage.admin, object).await?;
        let (namespace, forged) = (&stage.scope.tenant, json!({"status": {"observedGeneration": 7}}));
        let path = format!("/apis/renderhub.dev/v1alpha1/namespaces/{namespace}/{plural}/{name}/status");
        let write = || {
            let request = http::Request::patch(&path).header("content-type", "application/merge-patch+json");
            request.body(forged.to_string().into_bytes())
        };
        // Policies learn of a new kind some seconds later than other clients do.
        wait_for(&format!("{plural} to be guarded"), LIMIT, async || {
            let answer = tenant.request::<Value>(write()?).await.map(drop);
            Ok(is_refused(&answer).then_some(()))
        })
        .await?;
        guarded += 1;
    }
    let of_pipeline = with_status.keys().filter(|kind| {
        let others = [
            "RenderTask",
            "ClusterRenderTask",
            "ClusterRegistry",
            "RendererClass",
            "RenderCluster",
        ];
        !others.contains(&kind.as_str())
    });
    assert_eq!(guarded, of_pipeline.count(), "each kind is tried");
    stage.passed();
    Ok(())
}

/// Holds: F9.
#[tokio::test]
async fn a_tenant_with_every_right_makes_no_version_of_a_target() -> Result<()> {
    let stage = Stage::guarded("forged").await?;
    let tenant = stage.careless_tenant().await?.into_client();
    let versions: Api<HydratedTarget> = Api::namespaced(tenant, &stage.scope.tenant);
    let forged: HydratedTarget = serde_json::from_value(forged_version())?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    // Policies learn of a new kind some seconds later than other clients do.
    wait_for("versions to be guarded", LIMIT, async || {
        let answer = versions.create(&dry_run, &forged).await.map(drop);
        Ok(is_refused(&answer).then_some(()))
    })
    .await?;
    let made = versions.create(&PostParams::default(), &forged).await.map(drop);
    assert!(is_refused(&made), "{made:?}");
    stage.passed();
    Ok(())
}
