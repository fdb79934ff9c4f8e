//! Tests of the planner: what they share; each decision has a file of its own.

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use crate::api::conditions::{ConditionType, Reason};
use crate::api::labels::FINALIZER;
use crate::api::names::{HubId, TaskKind};
use crate::api::{ClusterRegistrySpec, RenderClusterSpec, RendererClassSpec};

use super::job::JobPlacement;
use crate::plan::platform::catalog::{
    Catalog, CatalogClass, CatalogCluster, CatalogRegistry, CredentialState,
};
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::task::model::Task;

mod catalog;
mod decide;
mod job;
mod life;
mod offered;
mod outcome;
mod seal;
mod status;
mod validate;

/// When tasks of these tests are made.
const CREATED: i64 = 1_700_000_000;

pub(in crate::plan) fn at(seconds_after_creation: i64) -> Timestamp {
    Timestamp::from_second(CREATED + seconds_after_creation).unwrap()
}

/// A spec that can be served.
fn spec() -> Value {
    json!({
        "config": {"type": "release", "release": {
            "chart": {"name": "shop", "version": "1.0.0"},
            "input": {
                "component": {"name": "shop"},
                "resources": {"chart": {"repository": "registry.test/shop", "tag": "1.0.0"}},
                "entrypoint": {"resourceName": "chart", "type": "helm"},
            },
            "values": {"replicas": 3},
        }},
        "repository": "team-a/shop",
        "tag": "1.0.0",
        "registryRef": {"name": "main"},
    })
}

/// The spec with some of its fields replaced; `null` removes one.
pub(in crate::plan) fn spec_with(changes: Value) -> Value {
    let mut spec = spec();
    overlay(&mut spec, changes);
    spec
}

fn overlay(base: &mut Value, changes: Value) {
    let Value::Object(changes) = changes else { return };
    for (key, change) in changes {
        match change {
            Value::Null => _ = base.as_object_mut().unwrap().remove(&key),
            change => base[key] = change,
        }
    }
}

/// A task of `team-a` that the hub's finalizer is on.
pub(in crate::plan) fn task_of(spec: Value) -> Task {
    task_in("team-a", TaskKind::RenderTask, spec)
}

fn task_in(namespace: &str, kind: TaskKind, spec: Value) -> Task {
    let meta: ObjectMeta = serde_json::from_value(json!({
        "name": "shop",
        "namespace": namespace,
        "uid": "11111111-2222-4333-8444-555555555555",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": at(0).to_string(),
        "finalizers": [FINALIZER],
    }))
    .unwrap();
    Task::new(kind, &meta, spec, Value::Null).unwrap()
}

fn task() -> Task {
    task_of(spec())
}

fn place() -> JobPlacement {
    JobPlacement {
        hub_id: HubId::new("main", "0f5a4e0c-0001-4000-8000-000000000001").unwrap(),
        cluster: None,
        namespace: "rendering".to_owned(),
        service_account: "renderhub-renderer".to_owned(),
    }
}

fn registry(changes: Value, credential: CredentialState) -> CatalogRegistry {
    let mut spec = json!({"hostname": "registry.test:5000", "allowedNamespaces": ["team-a"]});
    overlay(&mut spec, changes);
    let spec: ClusterRegistrySpec = serde_json::from_value(spec).unwrap();
    CatalogRegistry {
        recorded: recorded(&spec.allowed_namespaces),
        spec,
        credential,
    }
}

/// Records each namespace as it is in [`platform`].
fn recorded(allowed: &[String]) -> NamespaceUids {
    allowed.iter().map(|name| (name.clone(), uid(name))).collect()
}

fn uid(namespace: &str) -> String {
    format!("uid-of-{namespace}")
}

fn class(changes: Value, is_default: bool) -> CatalogClass {
    let mut spec = json!({"image": "renderer.test/renderer:1"});
    overlay(&mut spec, changes);
    let spec: RendererClassSpec = serde_json::from_value(spec).unwrap();
    CatalogClass {
        recorded: recorded(&spec.allowed_namespaces),
        spec,
        is_default,
        ..CatalogClass::default()
    }
}

/// A cluster for `team-a` that may hold the credential of the registry `main`.
fn cluster(changes: Value) -> CatalogCluster {
    let mut spec = json!({
        "kubeConfig": {"secretRef": {"name": "east"}}, "renderNamespace": "renders",
        "allowedNamespaces": ["team-a"], "registries": ["main"],
    });
    overlay(&mut spec, changes);
    let spec: RenderClusterSpec = serde_json::from_value(spec).unwrap();
    CatalogCluster {
        recorded: recorded(&spec.allowed_namespaces),
        spec,
        uid: "uid-of-east".to_owned(),
        generation: 1,
    }
}

/// A registry `main` with a credential, and no class but the hub's own renderer.
fn platform() -> Catalog {
    let main = registry(json!({}), CredentialState::BasicAuth("push".to_owned()));
    Catalog {
        registries: [("main".to_owned(), main)].into(),
        fallback: class(json!({}), false),
        namespaces: ["team-a", "team-a2", "team-b", "team"]
            .map(|name| (name.to_owned(), uid(name)))
            .into(),
        ..Catalog::default()
    }
}

/// Reason of a condition with its status, such as `("True", Reason::JobFailed)`.
fn condition(task: &Task, type_: ConditionType) -> Option<(&str, Reason)> {
    let found = task
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == type_.as_str())?;
    Some((&found.status, Reason::parse(&found.reason).unwrap()))
}
