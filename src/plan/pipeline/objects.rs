//! All objects of the pipeline.

use std::collections::BTreeMap;

use crate::api::RegistrySpec;
use crate::api::pipeline::{
    ComponentVersionSpec, HydratedTargetSpec, HydratedTargetStatus, PipelineStatus, ProfileSpec,
    ProfileStatus, RegistryBindingSpec, ReleaseBindingSpec, ReleaseSpec, ReleaseStatus, TargetSpec,
    TargetStatus,
};
use crate::plan::platform::reference_grants::ReferenceGrantIndex;

use super::object::{ObjectKey, ObjectMap};
use super::task_state::PipelineTask;

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
