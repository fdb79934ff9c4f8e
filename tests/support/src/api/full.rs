//! Valid objects that together have every field.

use serde_json::{Value, json};

use super::{KINDS, merge, release, with_spec};

/// Valid objects that together have every field of their kinds, maps and lists with one element.
pub fn all() -> Vec<Value> {
    let mut all: Vec<Value> = KINDS.iter().flat_map(|kind| tasks(kind)).collect();
    all.push(registry());
    all.push(class());
    all.push(cluster());
    all.push(queue_policy());
    all.push(tenants_registry());
    all.push(solars_registry());
    all.push(grant());
    all.extend(pipeline());
    all
}

/// Tasks of the kind, the one without rules that tie its fields together first.
pub fn tasks(kind: &str) -> [Value; 4] {
    let resource = json!({
        "repository": "registry.example/web", "tag": "1", "insecure": true, "pullSecretName": "pull",
        "helm": { "name": "web", "version": "1", "appVersion": "1", "description": "a", "valuesTemplate": "a" },
    });
    let chart = json!({ "name": "web", "version": "1.0.0", "appVersion": "1", "description": "a" });
    // The least first: it has no rule that ties the repository to a chart.
    let mut other = release(kind, "full");
    merge(
        &mut other["spec"],
        &json!({ "config": { "type": "other", "release": null } }),
    );
    let mut local = release(kind, "full");
    let more = json!({
        "config": { "release": { "chart": chart, "targetNamespace": "a", "input": { "resources": { "chart": resource } } } },
        "clusterName": "a", "rendererClassName": "a", "serviceAccountName": "a", "failedJobTTL": 1,
        "ttlSecondsAfterFinished": 1, "owner": { "kind": "A", "name": "a", "namespace": "a" },
        "registryRef": { "kind": "Registry", "namespace": "a" },
    });
    merge(&mut local["spec"], &more);
    let mut bundle = release(kind, "full");
    let releases = json!({ "releases": { "a": resource }, "userdata": { "a": 1 } });
    let config =
        json!({ "type": "bootstrap", "release": null, "bootstrap": { "chart": chart, "input": releases } });
    merge(&mut bundle["spec"], &json!({ "config": config }));
    let mut own = release(kind, "full");
    let theirs = json!({
        "registryRef": null, "baseURL": "registry.example", "pushSecretRef": { "name": "a" }, "plainHTTP": true,
        "kubeConfig": { "secretRef": { "name": "a", "key": "a", "namespace": "a" } }, "deploymentNamespace": "a",
    });
    merge(&mut own["spec"], &theirs);
    [other, local, bundle, own]
}

/// A registry with every field.
pub fn registry() -> Value {
    let spec = json!({
        "hostname": "registry.example", "plainHTTP": false, "pushSecretRef": { "name": "a" },
        "repositoryPrefix": "{namespace}/", "allowedNamespaces": ["team-a"], "tokenRealm": "https://auth.example/token",
        "caConfigMapRef": { "name": "a", "key": "a" }, "targetPullSecretName": "a", "verify": "Digest", "prune": true,
    });
    with_spec("ClusterRegistry", "full", &spec)
}

/// A renderer class with every field.
pub fn class() -> Value {
    let spec = json!({
        "image": "registry.example/renderer:1", "imagePullPolicy": "Always", "imagePullSecretEntries": "Needed", "command": ["/r"], "args": ["a"],
        "imagePullSecrets": [{ "name": "a" }], "mode": "Single", "nodeSelector": { "a": "b" },
        "resources": { "limits": { "cpu": 1 }, "requests": { "memory": "64Mi" } },
        "tolerations": [{ "key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 1 }],
        "priorityClassName": "a", "runtimeClassName": "a", "caConfigMapName": "a", "backoffLimit": 3,
        "activeDeadlineSeconds": 600, "allowedNamespaces": ["team-a"],
    });
    with_spec("RendererClass", "full", &spec)
}

/// A render cluster with every field.
pub fn cluster() -> Value {
    let spec = json!({
        "kubeConfig": { "secretRef": { "name": "a", "key": "a" } }, "renderNamespace": "a",
        "allowedNamespaces": ["team-a"], "registries": ["a"], "maxActiveJobs": 1, "qps": 1, "burst": 1, "suspend": true,
        "disconnect": true,
    });
    with_spec("RenderCluster", "full", &spec)
}

/// A queue policy with every field.
fn queue_policy() -> Value {
    with_spec(
        "QueuePolicy",
        "full",
        &json!({ "namespaces": ["team-a"], "weight": 1 }),
    )
}

/// A tenant's registry with every field.
fn tenants_registry() -> Value {
    let spec = json!({
        "hostname": "registry.example", "plainHTTP": false, "pushSecretRef": { "name": "a" },
        "repositoryPrefix": "{namespace}/", "tokenRealm": "https://auth.example/token",
        "caConfigMapRef": { "name": "a", "key": "a" }, "targetPullSecretName": "a", "prune": true,
    });
    with_spec("Registry", "full", &spec)
}

/// The same with the fields that it has for what was made for `SolAr`.
fn solars_registry() -> Value {
    let spec = json!({
        "hostname": "registry.example", "solarSecretRef": { "name": "a" }, "flavor": "a", "webhookPath": "a",
        "scanInterval": "a",
    });
    with_spec("Registry", "full", &spec)
}

/// A grant with every field.
pub fn grant() -> Value {
    let spec = json!({
        "from": [{ "group": "renderhub.dev", "kind": "RenderTask", "namespace": "team-a" }],
        "to": [{ "group": "renderhub.dev", "kind": "Registry", "name": "a" }],
    });
    with_spec("ReferenceGrant", "full", &spec)
}

/// The objects of the pipeline that tenants write, with every field.
pub fn pipeline() -> Vec<Value> {
    let target = json!({ "targetRef": { "name": "a", "namespace": "a" } });
    let bound = |to: &str| {
        let mut spec = target.clone();
        spec[to] = json!({ "name": "a" });
        spec
    };
    let of_target = json!({
        "renderRegistryRef": { "kind": "Registry", "name": "a", "namespace": "a" }, "userdata": { "a": 1 },
        "serviceAccountName": "a", "rendererClassName": "a", "renderClusterName": "a", "suspend": true,
        "historyLimit": 1, "rollbackTo": 1, "allowEmpty": true,
    });
    let of_profile = json!({
        "releaseRef": { "name": "a" }, "targetSelector": selector(), "userdata": { "a": 1 }, "maxUnavailable": 1,
    });
    let of_component = json!({ "scheme": "https", "registry": "registry.example", "repository": "a/b" });
    vec![
        with_spec("Target", "full", &of_target),
        release_spec(),
        with_spec("ReleaseBinding", "full", &bound("releaseRef")),
        with_spec("Profile", "full", &of_profile),
        with_spec("RegistryBinding", "full", &bound("registryRef")),
        with_spec("Component", "full", &of_component),
        component_version(),
    ]
}

fn selector() -> Value {
    json!({
        "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "a", "operator": "In", "values": ["b"] }],
    })
}

fn release_spec() -> Value {
    let spec = json!({
        "componentVersionRef": { "name": "a", "namespace": "a" }, "targetNamespace": "a", "uniqueName": "a",
        "antiAffinity": selector(), "values": { "a": 1 }, "failedJobTTL": 1, "priority": 1,
    });
    with_spec("Release", "full", &spec)
}

fn component_version() -> Value {
    let helm = json!({ "name": "web", "version": "1", "appVersion": "1", "description": "a", "valuesTemplate": "a" });
    let chart = json!({ "repository": "registry.example/web", "tag": "1", "insecure": true, "helm": helm });
    let spec = json!({
        "componentRef": { "name": "a" }, "tag": "1", "entrypoint": { "resourceName": "chart", "type": "helm" },
        "resources": { "chart": chart },
    });
    with_spec("ComponentVersion", "full", &spec)
}
