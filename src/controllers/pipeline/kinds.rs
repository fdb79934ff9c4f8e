//! The kinds of the pipeline: where the objects of each are kept, and which Targets they concern.

use kube::Resource;
use serde::de::DeserializeOwned;

use crate::api::Registry;
use crate::api::pipeline::{
    ComponentVersion, HydratedTarget, HydratedTargetStatus, PipelineStatus, Profile, ProfileStatus,
    RegistryBinding, Release, ReleaseBinding, ReleaseStatus, Target, TargetStatus,
};
use crate::plan::pipeline::object::{ObjectKey, ObjectMap};
use crate::plan::pipeline::objects::PipelineObjects;

/// A kind of the pipeline.
pub(super) trait PipelineKind: Resource<DynamicType = ()> + 'static {
    /// Its spec.
    type Spec: DeserializeOwned;
    /// Its status.
    type Status: DeserializeOwned + Default;
    /// The plural, by which its watch is counted.
    const PLURAL: &'static str;

    /// Its objects.
    fn map(objects: &mut PipelineObjects) -> &mut ObjectMap<Self::Spec, Self::Status>;

    /// The one Target that an object concerns; `None` where it may concern several.
    fn target(key: &ObjectKey, spec: Option<&Self::Spec>) -> Option<ObjectKey>;
}

macro_rules! kinds {
    ($($kind:ident, $field:ident, $plural:literal, $status:ty, $target:expr;)+) => {
        $(impl PipelineKind for $kind {
            type Spec = <$kind as kube::core::object::HasSpec>::Spec;
            type Status = $status;
            const PLURAL: &'static str = $plural;

            fn map(objects: &mut PipelineObjects) -> &mut ObjectMap<Self::Spec, Self::Status> {
                &mut objects.$field
            }

            fn target(key: &ObjectKey, spec: Option<&Self::Spec>) -> Option<ObjectKey> {
                let target: fn(&ObjectKey, Option<&Self::Spec>) -> Option<ObjectKey> = $target;
                target(key, spec)
            }
        })+

    };
}

kinds! {
    Target, targets, "targets", TargetStatus, |key, _| Some(key.clone());
    Release, releases, "releases", ReleaseStatus, |_, _| None;
    ComponentVersion, component_versions, "componentversions", (), |_, _| None;
    Profile, profiles, "profiles", ProfileStatus, |_, _| None;
    ReleaseBinding, release_bindings, "releasebindings", PipelineStatus, |_, _| None;
    RegistryBinding, registry_bindings, "registrybindings", PipelineStatus, |_, _| None;
    HydratedTarget, hydrated_targets, "hydratedtargets", HydratedTargetStatus, |key, spec| {
        Some(ObjectKey::new(&key.namespace, &spec?.target_name))
    };
    Registry, registries, "registries", (), |_, _| None;
}
