//! Objects that the hub's types cannot decode, and specs that no schema guards: each gets its owner an answer, and harms no
//! other. The schemas of this binary's control plane admit everything, and no policy is installed.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

use anyhow::Result;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use renderhub::api::conditions::ConditionType::{JobScheduled, JobSucceeded};
use renderhub::api::labels::FINALIZER;
use renderhub::api::{ClusterRegistry, RenderTask, RendererClass};
use renderhub_harness::{ControlPlane, apply, wait_for};
use serde_json::{Value, json};
use support::proxy::{Proxy, Stop};
use support::record::{raw, until_condition};
use support::{LIMIT, Stage, has, job_name_of, plane};
use tokio::sync::OnceCell;

/// The control plane whose schemas take anything as a spec.
async fn loose() -> Result<&'static ControlPlane> {
    static LOOSE: OnceCell<ControlPlane> = OnceCell::const_new();
    LOOSE
        .get_or_try_init(|| async {
            let plane = plane::start_plane().await?;
            let client = plane.admin().client().await?;
            for file in plane::crds()? {
                let text = std::fs::read_to_string(file)?;
                let mut crd: Value = serde_saphyr::from_str(&text)?;
                let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
                schema["required"] = json!([]);
                schema["x-kubernetes-validations"] = json!([]);
                schema["properties"]["spec"] = json!({"x-kubernetes-preserve-unknown-fields": true});
                schema["properties"]["status"] =
                    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
                apply::object(&client, crd).await?;
            }
            anyhow::Ok(plane)
        })
        .await
}

trait Untyped: Sized {
    /// A stage on the loose control plane whose hub is not started yet.
    async fn loose(prefix: &str) -> Result<Self>;
    fn any_tasks(&self) -> Api<DynamicObject>;
    async fn submit_raw(&self, object: Value) -> Result<DynamicObject>;
    /// A good task starts and ends beside the poison.
    async fn goes_on(&self, name: &str) -> Result<()>;
}

impl Untyped for Stage {
    async fn loose(prefix: &str) -> Result<Self> {
        let stage = Self::on(loose().await?, prefix, &[]).await?;
        stage.make_registry().await?;
        Ok(stage)
    }

    fn any_tasks(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), &self.scope.tenant, &raw::<RenderTask>())
    }

    async fn submit_raw(&self, object: Value) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        Ok(self.any_tasks().create(&PostParams::default(), &object).await?)
    }

    async fn goes_on(&self, name: &str) -> Result<()> {
        let task = self.submit(self.task(name)).await?;
        self.succeeds(&task).await
    }
}

/// Specs that are no task's.
fn poisons(stage: &Stage) -> Vec<Value> {
    let good = stage.task("poison")["spec"].clone();
    let with = |field: &str, value: Value| {
        let mut spec = good.clone();
        spec[field] = value;
        spec
    };
    vec![
        json!("a text"),
        json!(["a list"]),
        json!(7),
        json!({}),
        with("repository", json!(7)),
        with("config", json!("a text")),
        with("config", json!({"type": "release", "release": {"chart": 1}})),
        with("failedJobTTL", json!("an hour")),
        with("failedJobTTL", json!(9_000_000_000_000_i64)),
        with("registryRef", json!({"kind": "Nonsense", "name": "x"})),
        with("rendererClassName", json!({"a": {"b": [null]}})),
    ]
}

/// Holds: T6.
#[tokio::test]
async fn a_task_that_cannot_be_decoded_gets_a_condition_and_stops_no_other() -> Result<()> {
    let mut stage = Stage::loose("poison").await?;
    let mut early = stage.task("early");
    early["spec"] = json!({"repository": []});
    stage.submit_raw(early).await?;
    let mut bare = stage.task("bare");
    bare.as_object_mut().expect("an object").remove("spec");
    stage.submit_raw(bare).await?;
    // The first list already holds poison.
    stage.start_hub().await?;
    for name in ["early", "bare"] {
        let api = stage.any_tasks();
        for type_ in ["JobScheduled", "Ready"] {
            until_condition(&api, name, type_, ("False", "InvalidSpec")).await?;
        }
        until_condition(&api, name, "Stalled", ("True", "InvalidSpec")).await?;
    }
    stage.goes_on("before").await?;
    for (number, spec) in poisons(&stage).into_iter().enumerate() {
        let mut object = stage.task(&format!("poison-{number}"));
        object["spec"] = spec;
        let name = stage.submit_raw(object).await?.name_any();
        until_condition(
            &stage.any_tasks(),
            &name,
            "JobScheduled",
            ("False", "InvalidSpec"),
        )
        .await?;
    }
    stage.goes_on("after").await?;
    // Nor is it held: a finalizer that a policy put on it is taken off.
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
    let api = stage.any_tasks();
    api.patch("bare", &PatchParams::default(), &finalizer).await?;
    api.delete("bare", &DeleteParams::default()).await?;
    wait_for("the poison to be gone", LIMIT, async || {
        Ok(api.get_opt("bare").await?.is_none().then_some(()))
    })
    .await?;
    stage.restart_hub().await?;
    stage.goes_on("again").await?;
    let made: Vec<_> = stage.requests().await?;
    let jobs = made.iter().filter(|e| e.action() == "create jobs");
    assert_eq!(jobs.count(), 3, "only the good ones ran");
    stage.passed();
    Ok(())
}

/// Holds: T1, T6.
#[tokio::test]
async fn a_status_that_cannot_be_decoded_is_written_again() -> Result<()> {
    let mut stage = Stage::loose("status").await?;
    let task = stage.submit(stage.task("shop")).await?;
    let nonsense = json!({"status": {"conditions": "all good", "digest": 7, "jobRef": []}});
    let api = stage.any_tasks();
    api.patch_status("shop", &PatchParams::default(), &Patch::Merge(nonsense))
        .await?;
    stage.start_hub().await?;
    stage.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.goes_on("other").await?;
    stage.passed();
    Ok(())
}

/// Holds: T4, T7.
#[tokio::test]
async fn what_no_schema_refuses_the_hub_refuses() -> Result<()> {
    let mut stage = Stage::loose("bypass").await?;
    stage.start_hub().await?;
    let release = stage.task("x")["spec"]["config"]["release"].clone();
    let no_release = json!({"config": {"type": "release"}});
    let table = [
        ("ClusterNotFound", json!({"clusterName": "edge"})),
        (
            "FeatureDisabled",
            json!({"kubeConfig": {"secretRef": {"name": "x"}}}),
        ),
        ("InvalidSpec", json!({"deploymentNamespace": "x"})),
        ("InvalidSpec", json!({"baseURL": "evil.test"})),
        ("InvalidSpec", json!({"pushSecretRef": {"name": "push"}})),
        ("InvalidSpec", json!({"plainHTTP": true})),
        (
            "RBACDenied",
            json!({"registryRef": {"kind": "Registry", "name": "x"}, "serviceAccountName": "x:y"}),
        ),
        ("InvalidSpec", json!({"registryRef": null})),
        ("InvalidSpec", no_release),
        (
            "InvalidSpec",
            json!({"config": {"type": "bootstrap", "release": release}}),
        ),
        ("InvalidSpec", json!({"tag": "2.0.0"})),
        (
            "InvalidSpec",
            json!({"repository": format!("{}/other", stage.scope.tenant)}),
        ),
        (
            "InvalidSpec",
            json!({"repository": format!("{}/../shop", stage.scope.tenant)}),
        ),
        (
            "InvalidSpec",
            json!({"repository": format!("{}//shop", stage.scope.tenant)}),
        ),
        (
            "InvalidSpec",
            json!({"repository": format!("/{}/shop", stage.scope.tenant)}),
        ),
        (
            "InvalidSpec",
            json!({"repository": format!("{}/SHOP", stage.scope.tenant)}),
        ),
    ];
    for (number, (reason, changes)) in table.into_iter().enumerate() {
        let mut object = stage.task(&format!("task-{number}"));
        for (key, value) in changes.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        let name = stage.submit_raw(object).await?.name_any();
        let api = stage.any_tasks();
        until_condition(&api, &name, "JobScheduled", ("False", reason)).await?;
    }
    let made = stage.requests().await?;
    assert!(
        !made
            .iter()
            .any(|e| e.action() == "create jobs" || e.action() == "create secrets")
    );
    stage.passed();
    Ok(())
}

/// Holds: T4, T7.
#[tokio::test]
async fn a_spec_that_is_changed_runs_never_again() -> Result<()> {
    let mut stage = Stage::loose("mutated").await?;
    stage.start_hub().await?;
    let running = stage.submit(stage.task("running")).await?;
    stage
        .condition(&running, JobScheduled, "True", "JobScheduled")
        .await?;
    let done = stage.submit(stage.task("done")).await?;
    stage.complete(&done).await?;
    let result = stage
        .condition(&done, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.cleared(&done).await?;
    let change = Patch::Merge(json!({"spec": {"config": {"release": {"values": {"replicas": 4}}}}}));
    for name in ["running", "done"] {
        let api = stage.any_tasks();
        api.patch(name, &PatchParams::default(), &change).await?;
    }
    let status = stage
        .condition(&running, JobScheduled, "False", "SpecMutated")
        .await?;
    assert!(!status.conditions.iter().any(|c| c.type_ == "JobSucceeded"));
    stage.cleared(&running).await?;
    stage.goes_on("other").await?;
    stage.restart_hub().await?;
    stage.goes_on("another").await?;
    // A result stays what it was, and a task that was stopped is not started again.
    assert_eq!(stage.tasks().get("done").await?.status, Some(result));
    let status = stage.tasks().get("running").await?.status.unwrap_or_default();
    assert!(has(&status, JobScheduled, "False", "SpecMutated"));
    for task in [&running, &done] {
        assert_eq!(stage.successes("create jobs", &job_name_of(task)).await?, 1);
    }
    stage.passed();
    Ok(())
}

/// Holds: T4, T7.
#[tokio::test]
async fn a_spec_that_is_changed_while_its_job_is_made_runs_never_again() -> Result<()> {
    // The hub has decided; then the spec changes, before the finalizer, the Secret, the Job or the status.
    for write in 1..=4 {
        let mut stage = Stage::loose("race").await?;
        let proxy = Proxy::start(stage.hub_user.client().await?).await?;
        proxy.stop_at(write, Stop::Before);
        let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
        hub.wait_ready().await?;
        // The hub tries the Job of a class that it sees, which is no write of the task's.
        let class = &stage.scope.tenant;
        stage.put_class(class, json!({"image": "a.test/b:1"})).await?;
        let classes = Api::all_with(stage.admin.clone(), &raw::<RendererClass>());
        until_condition(&classes, class, "Ready", ("True", "Ready")).await?;
        let task = stage.submit(stage.task("shop")).await?;
        proxy.stopped().await?;
        let change = Patch::Merge(json!({"spec": {"config": {"release": {"values": {"replicas": 4}}}}}));
        stage
            .any_tasks()
            .patch("shop", &PatchParams::default(), &change)
            .await?;
        proxy.release();
        stage
            .condition(&task, JobScheduled, "False", "SpecMutated")
            .await?;
        stage.cleared(&task).await?;
        let jobs = stage.successes("create jobs", &job_name_of(&task)).await?;
        // A hub that hears of the change before it makes the Job makes none, which is early enough at the second write.
        let expected = match write {
            1 => 0..=0,
            2 => 0..=1,
            _ => 1..=1,
        };
        assert!(expected.contains(&jobs), "write {write}: {jobs} Jobs");
        stage.passed();
    }
    Ok(())
}

/// Holds: T6.
#[tokio::test]
async fn a_registry_or_a_class_that_cannot_be_decoded_stops_no_other() -> Result<()> {
    let mut stage = Stage::loose("platform").await?;
    let registries = stage.poison::<ClusterRegistry>("ClusterRegistry").await?;
    let classes = stage.poison::<RendererClass>("RendererClass").await?;
    stage.start_hub().await?;
    let name = format!("poison-{}", stage.scope.tenant);
    until_condition(&registries, &name, "Ready", ("False", "InvalidSpec")).await?;
    let lost = stage
        .submit_with("lost", json!({"registryRef": {"name": name}}))
        .await?;
    stage
        .condition(&lost, JobScheduled, "False", "RegistryNotAllowed")
        .await?;
    let classless = stage
        .submit_with("classless", json!({"rendererClassName": name}))
        .await?;
    stage
        .condition(&classless, JobScheduled, "False", "RendererClassNotFound")
        .await?;
    stage.goes_on("good").await?;
    // Corrected, they serve.
    let registry = json!({"spec": {"hostname": "mended.test", "allowedNamespaces": ["*"]}});
    let class = json!({"spec": {"image": "mended.test/r:1", "mode": null, "tolerations": null}});
    for (api, mended) in [(&registries, registry), (&classes, class)] {
        api.patch(&name, &PatchParams::default(), &Patch::Merge(mended))
            .await?;
    }
    for task in [&lost, &classless] {
        stage
            .condition(task, JobScheduled, "True", "JobScheduled")
            .await?;
    }
    until_condition(&registries, &name, "Ready", ("True", "Ready")).await?;
    // And poisoned again, what runs goes on.
    for api in [&registries, &classes] {
        let poison = Patch::Merge(json!({"spec": {"hostname": 7, "image": 7}}));
        api.patch(&name, &PatchParams::default(), &poison).await?;
    }
    until_condition(&registries, &name, "Ready", ("False", "InvalidSpec")).await?;
    stage.complete(&lost).await?;
    stage
        .condition(&lost, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.passed();
    Ok(())
}

trait Poisons {
    /// Makes an object of a platform kind that its Rust type cannot decode.
    async fn poison<K: Resource<DynamicType = ()>>(&self, kind: &str) -> Result<Api<DynamicObject>>;
}

impl Poisons for Stage {
    async fn poison<K: Resource<DynamicType = ()>>(&self, kind: &str) -> Result<Api<DynamicObject>> {
        let object = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": kind,
            "metadata": {"name": format!("poison-{}", self.scope.tenant)},
            "spec": {"hostname": {"not": "a host"}, "image": ["x"], "mode": 7, "tolerations": "all"},
        });
        let object: DynamicObject = serde_json::from_value(object)?;
        let api: Api<DynamicObject> = Api::all_with(self.admin.clone(), &raw::<K>());
        api.create(&PostParams::default(), &object).await?;
        Ok(api)
    }
}
