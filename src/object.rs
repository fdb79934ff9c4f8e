//! Objects of our kinds as they cross the wire, whatever the schema lets through.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::labels::{GROUP, VERSION};
use crate::names::TaskKind;
use crate::plan::task::Task;

/// The kinds of tasks as resources.
#[must_use]
pub fn task_resource(kind: TaskKind) -> ApiResource {
    let plural = match kind {
        TaskKind::RenderTask => "rendertasks",
        TaskKind::ClusterRenderTask => "clusterrendertasks",
    };
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.as_str().to_owned(),
        plural: plural.to_owned(),
    }
}

/// An object with its spec and status as they are, so that nothing a server holds fails to decode.
#[derive(Clone, Debug, Deserialize)]
pub struct SlimObject {
    #[serde(deserialize_with = "slim")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "shallow")]
    spec: Value,
    #[serde(default, deserialize_with = "shallow")]
    status: Value,
}

impl SlimObject {
    /// Its metadata and its spec.
    #[must_use]
    pub fn into_spec(self) -> (ObjectMeta, Value) {
        (self.metadata, self.spec)
    }

    /// The task in the object; `None` without a name or a UID.
    #[must_use]
    pub fn into_task(self, kind: TaskKind) -> Option<Task> {
        Task::new(kind, &self.metadata, self.spec, self.status)
    }
}

impl Resource for SlimObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Most values in a spec or status. Decoded, a value of a few bytes takes up to 700, so bytes alone do not bound memory.
const MAX_VALUES: usize = 100_000;

/// A value, or null where it is too deep or has too many parts to be read: read in place, it would fail the whole list or
/// watch it came with, or take the memory of all others.
fn shallow<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    // Brackets and commas inside strings count too, which errs on the safe side.
    let values = raw
        .get()
        .bytes()
        .filter(|byte| matches!(byte, b'{' | b'[' | b','))
        .count();
    if values > MAX_VALUES {
        return Ok(Value::Null);
    }
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Metadata without what the hub never looks at: managed fields alone are larger than the rest of a finished task.
fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        finalizers: Option<Vec<String>>,
    }
    let slim = Slim::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        finalizers: slim.finalizers,
        ..ObjectMeta::default()
    })
}
