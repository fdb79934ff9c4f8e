//! What the controller does for each kind.

use futures::stream::BoxStream;
use kube::Client;
use kube::runtime::watcher::Event;

use crate::api::Registry;
use crate::api::pipeline::{
    Component, ComponentVersion, HydratedTarget, Profile, RegistryBinding, Release, ReleaseBinding, Target,
};
use crate::base::metrics::Metrics;
use crate::kubernetes::object::LabelledObject;
use crate::kubernetes::watch::{PipelineWatch, pipeline_objects};

use super::kinds::PipelineKind;
use super::store::{PipelineChange, PipelineStore, WatchScope};

/// What the controller does for one kind.
pub(super) struct PipelineKindOperations {
    pub plural: &'static str,
    pub watch: fn(&Client, Option<&str>, &Metrics) -> BoxStream<'static, PipelineWatch<LabelledObject>>,
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

/// All kinds.
pub(super) const KINDS: &[PipelineKindOperations] = &[
    PipelineKindOperations::of::<Target>(),
    PipelineKindOperations::of::<Release>(),
    PipelineKindOperations::of::<Component>(),
    PipelineKindOperations::of::<ComponentVersion>(),
    PipelineKindOperations::of::<Profile>(),
    PipelineKindOperations::of::<ReleaseBinding>(),
    PipelineKindOperations::of::<RegistryBinding>(),
    PipelineKindOperations::of::<HydratedTarget>(),
    PipelineKindOperations::of::<Registry>(),
];
