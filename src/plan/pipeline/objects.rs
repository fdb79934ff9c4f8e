//! All objects of the pipeline.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::RegistrySpec;
use crate::api::pipeline::{
    ComponentSpec, ComponentVersionSpec, HydratedTargetSpec, HydratedTargetStatus, PipelineStatus,
    ProfileSpec, ProfileStatus, RegistryBindingSpec, ReleaseBindingSpec, ReleaseSpec, ReleaseStatus,
    TargetSpec, TargetStatus,
};
use crate::plan::platform::reference_grants::ReferenceGrantIndex;

use super::object::PipelineObject;
use super::object_map::{IndexedMap, ObjectMap};
use super::task_state::PipelineTask;

/// A version of a component as watched.
pub type ComponentVersionObject = PipelineObject<ComponentVersionSpec, PipelineStatus>;

/// Every object that decides what a Target gets.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is the objects of the kind it is named after")]
pub struct PipelineObjects {
    pub targets: ObjectMap<TargetSpec, TargetStatus>,
    pub releases: ObjectMap<ReleaseSpec, ReleaseStatus>,
    pub components: ObjectMap<ComponentSpec, PipelineStatus>,
    pub component_versions: ObjectMap<ComponentVersionSpec, PipelineStatus>,
    pub profiles: ObjectMap<ProfileSpec, ProfileStatus>,
    pub release_bindings: ObjectMap<ReleaseBindingSpec, PipelineStatus>,
    pub registry_bindings: ObjectMap<RegistryBindingSpec, PipelineStatus>,
    pub registries: ObjectMap<RegistrySpec>,
    pub hydrated_targets: ObjectMap<HydratedTargetSpec, HydratedTargetStatus>,
    pub tasks: IndexedMap<PipelineTask>,
    pub grants: ReferenceGrantIndex,
}

impl PipelineObjects {
    /// The namespaces with objects that the hub writes to.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<String> {
        let tenants = self.tenants_bytes().into_iter().flat_map(BTreeMap::keys);
        let versions = self.hydrated_targets.keys().map(|key| &key.namespace);
        let tasks = self.tasks.keys().map(|key| &key.namespace);
        let all: BTreeSet<&String> = tenants.chain(versions).chain(tasks).collect();
        all.into_iter().cloned().collect()
    }

    /// Bytes in each namespace of the kinds that tenants make and whose statuses the hub writes.
    pub(super) fn tenants_bytes(&self) -> [&BTreeMap<String, usize>; 7] {
        [
            self.targets.bytes(),
            self.releases.bytes(),
            self.components.bytes(),
            self.component_versions.bytes(),
            self.profiles.bytes(),
            self.release_bindings.bytes(),
            self.registry_bindings.bytes(),
        ]
    }
}
