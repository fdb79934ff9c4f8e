//! The objects of the pipeline as the hub watches them.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::jiff::Timestamp;

use crate::api::RegistrySpec;
use crate::api::pipeline::{
    ComponentVersionSpec, HydratedTargetSpec, HydratedTargetStatus, PipelineStatus, ProfileSpec,
    ProfileStatus, RegistryBindingSpec, ReleaseBindingSpec, ReleaseSpec, ReleaseStatus, TargetSpec,
    TargetStatus,
};
use crate::plan::platform::reference_grants::ReferenceGrantIndex;

use super::task::PipelineTask;

/// Names an object of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object as watched.
#[derive(Clone, Debug)]
pub struct PipelineObject<S, T = ()> {
    /// Its UID.
    pub uid: String,
    /// Version of the object: an event with an older one says nothing new.
    pub version: u64,
    /// Generation of the spec.
    pub generation: i64,
    /// When it was made.
    pub created: Timestamp,
    /// Whether its deletion was requested.
    pub deleting: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `None` where the Rust type cannot decode it. Such an object is there all the same: what it put on a cluster stays.
    pub spec: Option<S>,
    /// What the hub says of it.
    pub status: T,
}

/// The objects of a kind.
pub type ObjectMap<S, T = ()> = BTreeMap<ObjectKey, PipelineObject<S, T>>;

/// Every object that decides what a Target gets.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is the objects of the kind it is named after")]
pub struct PipelineObjects {
    pub targets: ObjectMap<TargetSpec, TargetStatus>,
    pub releases: ObjectMap<ReleaseSpec, ReleaseStatus>,
    pub component_versions: ObjectMap<ComponentVersionSpec>,
    pub profiles: ObjectMap<ProfileSpec, ProfileStatus>,
    pub release_bindings: ObjectMap<ReleaseBindingSpec, PipelineStatus>,
    pub registry_bindings: ObjectMap<RegistryBindingSpec, PipelineStatus>,
    pub registries: ObjectMap<RegistrySpec>,
    pub hydrated_targets: ObjectMap<HydratedTargetSpec, HydratedTargetStatus>,
    pub tasks: BTreeMap<ObjectKey, PipelineTask>,
    pub grants: ReferenceGrantIndex,
}

/// The entries of a map that are in a namespace.
pub fn within<'m, V>(
    map: &'m BTreeMap<ObjectKey, V>,
    namespace: &'m str,
) -> impl Iterator<Item = (&'m ObjectKey, &'m V)> {
    let first = ObjectKey::new(namespace, "");
    map.range(first..)
        .take_while(move |(key, _)| key.namespace == namespace)
}
