//! The kinds of the pipeline: for each, what differs from the others. CONTRIBUTING.md has the recipe for a new one.

use futures::stream::BoxStream;
use kube::Client;
use kube::runtime::watcher::Event;

use crate::api::Registry;
use crate::api::pipeline::{
    Component, ComponentVersion, HydratedTarget, HydratedTargetStatus, PipelineStatus, Profile,
    ProfileStatus, RegistryBinding, Release, ReleaseBinding, ReleaseStatus, Target, TargetStatus,
};
use crate::base::metrics::Metrics;
use crate::kubernetes::object::LabelledObject;
use crate::kubernetes::watch::{PipelineWatch, pipeline_objects};
use crate::plan::pipeline::concerned::{ConcernSearch, Concerned, StatusObject};
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::object_map::ObjectMap;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::profile_status::of_profile;
use crate::plan::pipeline::reports::{self, PipelineReport};
use crate::plan::pipeline::status::{
    StatusInput, StatusKind, of_component, of_component_version, of_registry_binding, of_release,
    of_release_binding,
};

use super::kind::{KeptObject, PipelineKind};
use super::status_write::{PendingStatus, pending_status};
use super::store::{PipelineChange, PipelineStore, WatchScope};

/// What the controller does for one kind.
pub(super) struct PipelineKindOperations {
    pub plural: &'static str,
    pub status_kind: Option<StatusKind>,
    pub watch: fn(&Client, Option<&str>, &Metrics) -> BoxStream<'static, PipelineWatch>,
    pub handle_event: fn(&mut PipelineStore, &WatchScope, Event<LabelledObject>) -> PipelineChange,
    /// The objects of a namespace whose statuses are decided with it.
    pub status_objects: fn(&PipelineObjects, &str) -> Vec<StatusObject>,
    pub pending_status: fn(&ObjectKey, &StatusInput<'_>) -> Option<PendingStatus>,
}

impl PipelineKindOperations {
    const fn of<K: PipelineKind>() -> Self {
        Self {
            plural: K::PLURAL,
            status_kind: K::STATUS_KIND,
            watch: |client, namespace, metrics| pipeline_objects::<K>(client, namespace, metrics, K::PLURAL),
            handle_event: PipelineStore::handle_event::<K>,
            status_objects: |objects, namespace| {
                let Some(kind) = K::STATUS_KIND else {
                    return Vec::new();
                };
                let keys = within(K::map(objects), namespace).map(|(key, _)| key.clone());
                keys.map(|key| StatusObject { kind, key }).collect()
            },
            pending_status: pending_status::<K>,
        }
    }
}

/// Each kind with the field of its objects, its plural, its status, whether others select it by `labels`, whom an object concerns, and
/// what becomes of a status: whose `own` it is, or which function decides about it (`status`) and which tells of a change (`report`).
macro_rules! kinds {
    ($(
        $kind:ident, $field:ident, $plural:literal, $status:ty, $(labels $labels:literal,)?
        |$search:ident, $key:ident, $object:ident| $searched:expr
        $(, own |$found:ident, $of:ident, $its:ident| $said:expr)?
        $(, status $decided:path $(, report $report:path)?)?;
    )+) => {
        $(impl PipelineKind for $kind {
            type Spec = <$kind as kube::core::object::HasSpec>::Spec;
            type Status = $status;
            const KIND: &'static str = stringify!($kind);
            const PLURAL: &'static str = $plural;
            const STATUS_RESOURCE: &'static str = concat!($plural, "/status");
            $(const IS_SELECTED: bool = $labels;)?

            fn map(objects: &PipelineObjects) -> &ObjectMap<Self::Spec, Self::Status> {
                &objects.$field
            }

            fn map_mut(objects: &mut PipelineObjects) -> &mut ObjectMap<Self::Spec, Self::Status> {
                &mut objects.$field
            }

            fn search($key: &ObjectKey, $object: &KeptObject<Self>, $search: &mut ConcernSearch<'_>) {
                $searched
            }

            $(fn search_status($of: &ObjectKey, $its: &KeptObject<Self>, $found: &mut Concerned) {
                $said
            })?

            $(
                const STATUS_KIND: Option<StatusKind> = Some(StatusKind::$kind);

                fn status<'o>(
                    key: &'o ObjectKey,
                    object: &'o KeptObject<Self>,
                    input: &StatusInput<'o>,
                ) -> Option<$status> {
                    $decided(key, object, input)
                }

                $(fn report(old: &$status, new: &$status) -> Option<PipelineReport> {
                    $report(old, new)
                })?
            )?
        })+

        /// All kinds.
        pub(super) const KINDS: &[PipelineKindOperations] = &[$(PipelineKindOperations::of::<$kind>()),+];
    };
}

kinds! {
    Target, targets, "targets", TargetStatus, labels true, |search, key, object| search.target(key, object),
        own |found, key, _object| found.own(key.clone());
    Release, releases, "releases", ReleaseStatus, labels true, |search, key, _object| search.release(key),
        status of_release;
    Component, components, "components", PipelineStatus, |search, key, _object| search.component(key),
        status of_component;
    ComponentVersion, component_versions, "componentversions", PipelineStatus,
        |search, key, _object| search.component_version(key),
        status of_component_version;
    Profile, profiles, "profiles", ProfileStatus, |search, key, object| search.profile(key, object),
        status of_profile, report reports::of_profile;
    ReleaseBinding, release_bindings, "releasebindings", PipelineStatus,
        |search, key, object| search.release_binding(key, object),
        status of_release_binding;
    RegistryBinding, registry_bindings, "registrybindings", PipelineStatus,
        |search, key, object| search.registry_binding(key, object),
        status of_registry_binding;
    HydratedTarget, hydrated_targets, "hydratedtargets", HydratedTargetStatus,
        |search, key, object| search.version(key, object),
        own |found, key, object| found.own_of_version(key, object);
    Registry, registries, "registries", (), |search, key, _object| search.registry(key);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_each_kind_is_decided_by_one_row() {
        // A kind that is new does not compile without a number here.
        let number = |kind| match kind {
            StatusKind::Component => 0,
            StatusKind::ComponentVersion => 1,
            StatusKind::Release => 2,
            StatusKind::Profile => 3,
            StatusKind::ReleaseBinding => 4,
            StatusKind::RegistryBinding => 5,
        };
        let mut rows: Vec<u8> = KINDS
            .iter()
            .filter_map(|row| row.status_kind.map(number))
            .collect();
        rows.sort_unstable();
        assert_eq!(rows, [0, 1, 2, 3, 4, 5]);
    }
}
