//! All objects of the pipeline.

use std::collections::BTreeSet;

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
        let targets = self.targets.keys().chain(self.hydrated_targets.keys());
        let tasks = self.tasks.keys();
        let releases = self.releases.keys().chain(self.profiles.keys());
        let components = self.components.keys().chain(self.component_versions.keys());
        let bindings = self.release_bindings.keys();
        let bindings = bindings.chain(self.registry_bindings.keys());
        let all = targets.chain(tasks).chain(releases).chain(components);
        let mut namespaces = BTreeSet::new();
        for key in all.chain(bindings) {
            if !namespaces.contains(&key.namespace) {
                namespaces.insert(key.namespace.clone());
            }
        }
        namespaces
    }
}
