//! What the tests of the API on a real control plane share: installing it, and objects to begin with.

pub mod full;

use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use renderhub_harness::{ControlPlane, wait_for};
use serde_json::{Value, json};

use super::plane::{MUTATING_EVERYWHERE, crds, files};

/// The kinds of tasks.
pub const KINDS: [&str; 2] = ["RenderTask", "ClusterRenderTask"];
/// The definitions of renderhub's kinds; to make them takes milliseconds, and some tests look one up for each of a thousand requests.
static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> =
    LazyLock::new(renderhub::api::custom_resource_definitions);
/// Plurals of the kinds by which the platform operator configures a hub: those of the cluster, but for the platform's own tasks.
pub static PLATFORM_KINDS: LazyLock<Vec<String>> = LazyLock::new(|| plurals_of_platform(|_| true));
/// Plurals of those of them whose status records the namespaces that they are granted to.
pub static GRANTED_KINDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    plurals_of_platform(|crd| {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap_or_default();
        let path = "/openAPIV3Schema/properties/status/properties/namespaces";
        schema.pointer(path).is_some()
    })
});

fn plurals_of_platform(is_wanted: impl Fn(&CustomResourceDefinition) -> bool) -> Vec<String> {
    let is_platforms = |crd: &&CustomResourceDefinition| {
        crd.spec.scope == "Cluster" && !KINDS.contains(&crd.spec.names.kind.as_str())
    };
    let ours = DEFINITIONS.iter().filter(is_platforms);
    let wanted = ours.filter(|crd| is_wanted(crd));
    wanted.map(|crd| crd.spec.names.plural.clone()).collect()
}

/// Field manager that [`make`] works under.
pub const MAKER: &str = "maker";
/// The namespace of the tasks that are not cluster-scoped.
pub const NAMESPACE: &str = "default";
/// How long a policy may take to be in force.
const LIMIT: Duration = Duration::from_secs(30);

/// Applies every CRD, and waits until it is served.
pub async fn install_crds(plane: &ControlPlane) -> Result<()> {
    for file in crds()? {
        plane.apply_file(&file).await?;
    }
    Ok(())
}

/// Applies the policies, and waits until they are in force.
pub async fn install_policies(plane: &ControlPlane) -> Result<()> {
    for file in files("policies")? {
        plane.apply_file(&file).await?;
    }
    plane.apply_yaml(MUTATING_EVERYWHERE).await?;
    let tasks = api(&plane.admin().client().await?, "ClusterRenderTask");
    let made = json!({ "x-probe": { "a": 1 } });
    let mut probe = release("ClusterRenderTask", "policy-probe");
    merge(&mut probe["spec"]["config"], &made);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait_for("the mutating policy to be in force", LIMIT, async || {
        let task = tasks.create(&dry_run, &object(probe.clone())).await?;
        Ok(task.metadata.finalizers)
    })
    .await?;
    tasks.create(&PostParams::default(), &object(probe)).await?;
    // A CRD's own rule does not see one unknown field in the place of another.
    let renamed = json!([{ "op": "move", "from": "/spec/config/x-probe", "path": "/spec/config/y-probe" }]);
    let renamed: Patch<Value> = Patch::Json(serde_json::from_value(renamed)?);
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    wait_for("the validating policy to be in force", LIMIT, async || {
        let refused = tasks.patch("policy-probe", &params, &renamed).await.is_err();
        Ok(refused.then_some(()))
    })
    .await?;
    Ok(())
}

/// The objects of a renderhub kind; tasks of a tenant in [`NAMESPACE`].
pub fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let definition = DEFINITIONS.iter().find(|crd| crd.spec.names.kind == kind);
    let definition = &definition.expect("a kind of renderhub's").spec;
    let resource = ApiResource {
        group: definition.group.clone(),
        version: definition.versions[0].name.clone(),
        api_version: "renderhub.dev/v1alpha1".to_owned(),
        kind: kind.to_owned(),
        plural: definition.names.plural.clone(),
    };
    if definition.scope == "Cluster" {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    }
}

/// The value as an object.
pub fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object with metadata")
}

/// An object of a kind with a spec.
pub fn with_spec(kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "renderhub.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

/// A task that renders a release; it has a field of each sort.
pub fn release(kind: &str, name: &str) -> Value {
    let resource = json!({ "repository": "registry.example/web", "tag": "1.2.3" });
    let config = json!({
        "type": "release",
        "release": {
            "chart": { "name": "web", "version": "1.0.0" },
            "input": {
                "component": { "name": "example.com/web" },
                "resources": { "chart": resource },
                "entrypoint": { "resourceName": "chart", "type": "helm" },
            },
            "values": { "replicas": 1, "hosts": ["a", "b"] },
        },
    });
    let spec = json!({
        "config": config, "repository": "team-a/web", "tag": "1.0.0",
        "registryRef": { "name": "main" }, "owner": { "kind": "Release", "name": "web" },
    });
    with_spec(kind, name, &spec)
}

/// Merges as RFC 7386 has it: objects field by field, a null removes, everything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().expect("an object").remove(name);
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// Creates the task by server-side apply, so that a manager owns its fields.
pub async fn make(tasks: &Api<DynamicObject>, task: &Value) -> Result<DynamicObject> {
    let name = task["metadata"]["name"].as_str().context("a name")?;
    let made = tasks
        .patch(name, &PatchParams::apply(MAKER), &Patch::Apply(task))
        .await?;
    assert_eq!(made.metadata.generation, Some(1));
    Ok(made)
}

/// Removes the task at once.
pub async fn remove(tasks: &Api<DynamicObject>, name: &str) -> Result<()> {
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    tasks.patch(name, &PatchParams::default(), &free).await?;
    tasks.delete(name, &DeleteParams::default()).await?;
    Ok(())
}
