//! Objects on the wire, also those that a schema should not admit, and those of a cluster that need not be well-behaved.

mod kept_labels;
pub(crate) mod lean;
mod lean_objects;

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::labels::{GROUP, VERSION};
use crate::api::names::TaskKind;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::task::finalizer_summary::{FinalizerSummary, TargetFinalizers};
use crate::plan::task::model::{DecodedSpec, Task};
use crate::plan::task::target_seal::TargetSeal;
use crate::plan::task::validate::MAX_VALUES;

use kept_labels::{HasPipelineLabel, KeptLabels};

pub use lean_objects::FetchedJob;
pub(crate) use lean_objects::{LeanObject, LeanPods, PODS};

/// The kinds of tasks as resources.
#[must_use]
pub fn task_resource(kind: TaskKind) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: kind.as_str().to_owned(),
        plural: kind.plural().to_owned(),
    }
}

/// An object with its spec and status as they are, so that nothing a server holds fails to decode. They are text until they
/// are asked for: a page of objects takes what was sent, and is decoded one by one.
#[derive(Clone, Debug, Deserialize)]
pub struct WatchedObject<M> {
    metadata: M,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

/// An object of which no labels are kept, but for whether it has the pipeline's.
pub type SlimObject = WatchedObject<SlimMetadata>;
/// An object with its labels.
pub type LabelledObject = WatchedObject<LabelledMetadata>;

impl<M: AsRef<ObjectMeta>> WatchedObject<M> {
    /// Whether it is the object of this UID with the spec of this generation.
    #[must_use]
    pub fn has_spec(&self, uid: &str, generation: i64) -> bool {
        let meta = self.metadata.as_ref();
        meta.uid.as_deref() == Some(uid) && meta.generation == Some(generation)
    }

    /// The object without its spec.
    #[must_use]
    pub fn without_spec(self) -> Self {
        Self { spec: None, ..self }
    }
}

impl SlimObject {
    /// Whether it has the label of a task that the pipeline made.
    #[must_use]
    pub const fn has_pipeline_label(&self) -> bool {
        self.metadata.has_pipeline_label
    }

    /// Its metadata and its spec.
    #[must_use]
    pub fn into_spec(self) -> (ObjectMeta, Value) {
        (self.metadata.kept, decoded(self.spec).unwrap_or_default())
    }

    /// The task in the object; `None` without a name or a UID. Where `known` is the spec that it has, that is not decoded again.
    #[must_use]
    pub fn into_task(self, kind: TaskKind, known: Option<Arc<DecodedSpec>>) -> Option<Task> {
        let spec = known.unwrap_or_else(|| Arc::new(DecodedSpec::of(decoded(self.spec))));
        let status = decoded(self.status).unwrap_or_default();
        let task = Task::with_spec(kind, &self.metadata.kept, spec, status)?;
        Some(Task {
            finalizers: self.metadata.finalizers,
            target_seal: self.metadata.target_seal,
            ..task
        })
    }
}

impl LabelledObject {
    /// Whether it has more labels than an object that is selected by them may have.
    #[must_use]
    pub const fn has_too_many_labels(&self) -> bool {
        self.metadata.labels.are_too_many
    }

    /// Whether it shows nothing new of an object: it is an earlier version, or the one that is known, be it that a watch showed it or that
    /// the hub wrote its status. Nothing of it is decoded then.
    #[must_use]
    pub fn is_known<S, T>(&self, known: &PipelineObject<S, T>) -> bool {
        let meta = &self.metadata.kept;
        let version = version_of(meta).filter(|_| meta.uid.as_deref() == Some(&known.uid));
        version.is_some_and(|version| {
            version < known.version || (version == known.version && self.has_metadata_of(known))
        })
    }

    /// Whether what a tenant may change is as it is known: it may have changed before the hub wrote the status, and no watch shown that yet.
    fn has_metadata_of<S, T>(&self, known: &PipelineObject<S, T>) -> bool {
        let LabelledMetadata {
            kept: meta,
            labels,
            finalizers,
        } = &self.metadata;
        known.is_shown()
            // One that could not be decoded, or was not kept, may be by now.
            && known.spec.is_some()
            && meta.generation == Some(known.generation)
            && meta.deletion_timestamp.as_ref().map(|time| time.0) == known.deleted_at
            && *finalizers == known.finalizers
            && !labels.are_too_many
            && labels.labels == known.labels
    }

    /// The object without its labels.
    #[must_use]
    pub fn without_labels(mut self) -> Self {
        self.metadata.labels = KeptLabels::default();
        self
    }

    /// The object with its spec and status decoded, and its version; `None` without a name, a namespace or a UID. Of too many
    /// labels it has none.
    #[must_use]
    pub fn into_object<S, T>(self) -> Option<(ObjectKey, PipelineObject<S, T>)>
    where
        S: DeserializeOwned,
        T: DeserializeOwned + Default,
    {
        let LabelledMetadata {
            kept: meta,
            labels,
            finalizers,
        } = self.metadata;
        let object = PipelineObject {
            version: version_of(&meta).unwrap_or_default(),
            uid: meta.uid?,
            generation: meta.generation.unwrap_or(1),
            created: meta
                .creation_timestamp
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
            deleted_at: meta.deletion_timestamp.map(|time| time.0),
            finalizers,
            labels: labels.labels,
            spec: typed(self.spec),
            status: typed(self.status).unwrap_or_default(),
        };
        Some((ObjectKey::new(&meta.namespace?, &meta.name?), object))
    }
}

impl<M: AsRef<ObjectMeta> + AsMut<ObjectMeta>> Resource for WatchedObject<M> {
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
        self.metadata.as_ref()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.metadata.as_mut()
    }
}

/// The version of an object, by which those of one object are ordered; `None` where it is no number.
#[must_use]
pub fn version_of(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_deref()?.parse().ok()
}

/// Decodes a value, null where it is too deep or missing; `None` where it has too many parts: decoded in place, it would fail
/// the whole list or watch it came with, or take the memory of all others.
fn decoded(raw: Option<Box<RawValue>>) -> Option<Value> {
    let Some(raw) = raw else { return Some(Value::Null) };
    has_few_values(raw.get()).then(|| serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Decodes what is not null and has not too many parts, into a type that has its own bounds.
fn typed<T: DeserializeOwned>(raw: Option<Box<RawValue>>) -> Option<T> {
    let raw = raw.filter(|raw| raw.get() != "null" && has_few_values(raw.get()))?;
    serde_json::from_str(raw.get()).ok()
}

/// What an object with this key holds, `serde_json` decodes out of a text; no API server writes the key with escapes.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Whether a JSON text has so few values that it is decoded; one with values inside of a text has not.
fn has_few_values(text: &str) -> bool {
    let has_raw_value = || text.split(RAW_VALUE).skip(1).any(|rest| rest.starts_with('"'));
    // A value takes a byte at least, so those of a short text need not be counted.
    (text.len() <= MAX_VALUES || values(text) <= MAX_VALUES) && !has_raw_value()
}

/// How many values a JSON text has, give or take the empty lists and objects, which count as one more.
fn values(text: &str) -> usize {
    let (mut count, mut rest) = (1, text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = if *byte == b'"' { after_string(after) } else { after };
        count += usize::from(matches!(byte, b'{' | b'[' | b','));
    }
    count
}

/// What follows a JSON string, from after its first quote; nothing where it does not end.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return &rest[at + 1..];
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    &[]
}

/// Metadata without the fields that the hub never uses: managed fields alone are larger than the rest of a finished task, and
/// labels, annotations, owners and finalizers may be as large as an object can be.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "SlimMetadataFields")]
pub struct SlimMetadata {
    kept: ObjectMeta,
    has_pipeline_label: bool,
    finalizers: FinalizerSummary,
    target_seal: TargetSeal,
}

impl AsRef<ObjectMeta> for SlimMetadata {
    fn as_ref(&self) -> &ObjectMeta {
        &self.kept
    }
}

impl AsMut<ObjectMeta> for SlimMetadata {
    fn as_mut(&mut self) -> &mut ObjectMeta {
        &mut self.kept
    }
}

/// Metadata of an object that is selected by its labels, without annotations, owners and managed fields, and with a count of its
/// finalizers.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "LabelledMetadataFields")]
pub struct LabelledMetadata {
    kept: ObjectMeta,
    labels: KeptLabels,
    finalizers: FinalizerSummary,
}

type LabelledMetadataFields = MetadataFields<KeptLabels, TargetFinalizers, IgnoredAny>;

impl From<LabelledMetadataFields> for LabelledMetadata {
    fn from(mut shown: LabelledMetadataFields) -> Self {
        Self {
            labels: std::mem::take(&mut shown.labels),
            finalizers: shown.finalizers.0,
            kept: shown.kept(),
        }
    }
}

impl AsRef<ObjectMeta> for LabelledMetadata {
    fn as_ref(&self) -> &ObjectMeta {
        &self.kept
    }
}

impl AsMut<ObjectMeta> for LabelledMetadata {
    fn as_mut(&mut self) -> &mut ObjectMeta {
        &mut self.kept
    }
}

/// What is read of metadata: managed fields, which are as long as the rest, are passed over, and so is what has a type that keeps nothing.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataFields<L: Default, F: Default, A: Default> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    labels: L,
    #[serde(default)]
    finalizers: F,
    #[serde(default)]
    annotations: A,
}

impl<L: Default, F: Default, A: Default> MetadataFields<L, F, A> {
    fn kept(self) -> ObjectMeta {
        ObjectMeta {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            resource_version: self.resource_version,
            generation: self.generation,
            creation_timestamp: self.creation_timestamp,
            deletion_timestamp: self.deletion_timestamp,
            ..ObjectMeta::default()
        }
    }
}

type SlimMetadataFields = MetadataFields<HasPipelineLabel, FinalizerSummary, TargetSeal>;

impl From<SlimMetadataFields> for SlimMetadata {
    fn from(mut shown: SlimMetadataFields) -> Self {
        Self {
            has_pipeline_label: shown.labels.0,
            finalizers: shown.finalizers,
            target_seal: std::mem::take(&mut shown.annotations),
            kept: shown.kept(),
        }
    }
}

#[cfg(test)]
mod tests;
