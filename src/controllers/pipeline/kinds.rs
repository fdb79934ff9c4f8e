//! The kinds of the pipeline: where the objects of each are kept, and whom they concern.

use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::de::DeserializeOwned;

use crate::api::Registry;
use crate::api::pipeline::{
    Component, ComponentVersion, HydratedTarget, HydratedTargetStatus, PipelineStatus, Profile,
    ProfileStatus, RegistryBinding, Release, ReleaseBinding, ReleaseStatus, Target, TargetStatus,
};
use crate::plan::pipeline::concerned::{ConcernSearch, Concerned, StatusKind};
use crate::plan::pipeline::names::PipelineSpec;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::object_map::ObjectMap;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::sealed_status::opened;
use crate::plan::task::status_seal::SealKey;

/// A kind of the pipeline.
pub(super) trait PipelineKind: Resource<DynamicType = ()> + 'static {
    /// Its spec.
    type Spec: DeserializeOwned + PipelineSpec<Self::Status>;
    /// Its status.
    type Status: DeserializeOwned + Default + PartialEq;
    /// The plural, by which its watch is counted.
    const PLURAL: &'static str;

    /// A status that was read, of the object with this UID and creation time: where decisions rest on it, it must have the seal.
    fn opened(key: &SealKey, uid: &str, created: Timestamp, status: Self::Status) -> Self::Status;

    /// Its objects.
    fn map(objects: &PipelineObjects) -> &ObjectMap<Self::Spec, Self::Status>;

    /// The same to be changed.
    fn map_mut(objects: &mut PipelineObjects) -> &mut ObjectMap<Self::Spec, Self::Status>;

    /// Whom an object concerns.
    fn search(key: &ObjectKey, object: &KeptObject<Self>, search: &mut ConcernSearch<'_>);

    /// Whom its status alone concerns.
    fn search_status(key: &ObjectKey, object: &KeptObject<Self>, found: &mut Concerned);
}

/// An object of a kind as it is kept.
pub(super) type KeptObject<K> = PipelineObject<<K as PipelineKind>::Spec, <K as PipelineKind>::Status>;

macro_rules! kinds {
    ($(
        $kind:ident, $field:ident, $plural:literal, $status:ty, $opened:expr,
        |$search:ident, $key:ident, $object:ident| $searched:expr,
        |$found:ident, $of:ident, $its:ident| $said:expr;
    )+) => {
        $(impl PipelineKind for $kind {
            type Spec = <$kind as kube::core::object::HasSpec>::Spec;
            type Status = $status;
            const PLURAL: &'static str = $plural;

            fn opened(key: &SealKey, uid: &str, created: Timestamp, status: $status) -> $status {
                let opened: fn(&SealKey, &str, Timestamp, $status) -> $status = $opened;
                opened(key, uid, created, status)
            }

            fn map(objects: &PipelineObjects) -> &ObjectMap<Self::Spec, Self::Status> {
                &objects.$field
            }

            fn map_mut(objects: &mut PipelineObjects) -> &mut ObjectMap<Self::Spec, Self::Status> {
                &mut objects.$field
            }

            fn search($key: &ObjectKey, $object: &KeptObject<Self>, $search: &mut ConcernSearch<'_>) {
                $searched
            }

            fn search_status($of: &ObjectKey, $its: &KeptObject<Self>, $found: &mut Concerned) {
                $said
            }
        })+

    };
}

/// A status on which no decision rests.
fn unsealed<T>(_key: &SealKey, _uid: &str, _created: Timestamp, status: T) -> T {
    status
}

kinds! {
    Target, targets, "targets", TargetStatus, opened,
        |search, key, object| search.target(key, object),
        |found, key, _object| found.own(key.clone());
    Release, releases, "releases", ReleaseStatus, unsealed,
        |search, key, _object| search.release(key),
        |found, key, _object| found.status(StatusKind::Release, key);
    Component, components, "components", PipelineStatus, unsealed,
        |search, key, _object| search.component(key),
        |found, key, _object| found.status(StatusKind::Component, key);
    ComponentVersion, component_versions, "componentversions", PipelineStatus, unsealed,
        |search, key, _object| search.component_version(key),
        |found, key, _object| found.status(StatusKind::ComponentVersion, key);
    Profile, profiles, "profiles", ProfileStatus, unsealed,
        |search, key, object| search.profile(key, object),
        |found, key, _object| found.status(StatusKind::Profile, key);
    ReleaseBinding, release_bindings, "releasebindings", PipelineStatus, unsealed,
        |search, key, object| search.release_binding(key, object),
        |found, key, _object| found.status(StatusKind::ReleaseBinding, key);
    RegistryBinding, registry_bindings, "registrybindings", PipelineStatus, unsealed,
        |search, key, object| search.registry_binding(key, object),
        |found, key, _object| found.status(StatusKind::RegistryBinding, key);
    HydratedTarget, hydrated_targets, "hydratedtargets", HydratedTargetStatus, opened,
        |search, key, object| search.version(key, object),
        |found, key, object| found.own_of_version(key, object);
    Registry, registries, "registries", (), unsealed,
        |search, key, _object| search.registry(key),
        |_found, _key, _object| ();
}
