//! The kinds of the pipeline: where the objects of each are kept, and how they are watched.

use futures::stream::BoxStream;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::api::Registry;
use crate::api::pipeline::{
    ComponentVersion, HydratedTarget, HydratedTargetStatus, PipelineStatus, Profile, ProfileStatus,
    RegistryBinding, Release, ReleaseBinding, ReleaseStatus, Target, TargetStatus,
};
use crate::base::metrics::Metrics;
use crate::kubernetes::object::LabelledObject;
use crate::kubernetes::watch::pipeline_objects;
use crate::plan::pipeline::object::{ObjectKey, ObjectMap, PipelineObjects};

use super::store::{PipelineChange, PipelineStore, WatchScope};

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

        /// All kinds.
        pub(super) const KINDS: &[PipelineKindOperations] = &[$(PipelineKindOperations::of::<$kind>()),+];
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

/// What the controller does for one kind.
pub(super) struct PipelineKindOperations {
    pub plural: &'static str,
    pub watch: fn(&Client, Option<&str>, &Metrics) -> BoxStream<'static, Event<LabelledObject>>,
    pub handle_event: fn(&mut PipelineStore, &WatchScope, Event<LabelledObject>) -> PipelineChange,
}

impl PipelineKindOperations {
    const fn of<K: PipelineKind>() -> Self {
        Self {
            plural: K::PLURAL,
            watch: |client, namespace, metrics| pipeline_objects::<K>(client, namespace, metrics, K::PLURAL),
            handle_event: PipelineStore::handle_event::<K>,
        }
    }
}
