//! What a kind of the pipeline is to the controller.

use kube::Resource;
use serde::de::DeserializeOwned;

use crate::plan::pipeline::concerned::{ConcernSearch, Concerned};
use crate::plan::pipeline::names::PipelineSpec;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::object_map::ObjectMap;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::reports::PipelineReport;
use crate::plan::pipeline::sealed_status::SealedStatus;
use crate::plan::pipeline::status::{StatusInput, StatusKind};

/// A kind of the pipeline.
pub(super) trait PipelineKind: Resource<DynamicType = ()> + 'static {
    /// Its spec.
    type Spec: DeserializeOwned + Clone + PartialEq + PipelineSpec<Self::Status>;
    /// Its status.
    type Status: DeserializeOwned + SealedStatus + PartialEq + Send + Sync + 'static;
    /// The kind, as events name it.
    const KIND: &'static str;
    /// The plural, by which its watch is counted.
    const PLURAL: &'static str;
    /// Its status, by which writes are counted.
    const STATUS_RESOURCE: &'static str;
    /// Whether others select its objects by their labels, which are not kept else.
    const IS_SELECTED: bool = false;
    /// Where its statuses are decided with their namespace; those of Targets and of versions are with their Target.
    const STATUS_KIND: Option<StatusKind> = None;

    /// Its objects.
    fn map(objects: &PipelineObjects) -> &ObjectMap<Self::Spec, Self::Status>;

    /// The same to be changed.
    fn map_mut(objects: &mut PipelineObjects) -> &mut ObjectMap<Self::Spec, Self::Status>;

    /// Whom an object concerns.
    fn search(key: &ObjectKey, object: &KeptObject<Self>, search: &mut ConcernSearch<'_>);

    /// Whom its status alone concerns.
    fn search_status(key: &ObjectKey, _object: &KeptObject<Self>, found: &mut Concerned) {
        if let Some(kind) = Self::STATUS_KIND {
            found.status(kind, key);
        }
    }

    /// The status that an object of a [`StatusKind`] should have; `None` where it is not known.
    fn status<'o>(
        _key: &'o ObjectKey,
        _object: &'o KeptObject<Self>,
        _input: &StatusInput<'o>,
    ) -> Option<Self::Status> {
        None
    }

    /// The event about a status that is another one now.
    fn report(_old: &Self::Status, _new: &Self::Status) -> Option<PipelineReport> {
        None
    }
}

/// An object of a kind as it is kept.
pub(super) type KeptObject<K> = PipelineObject<<K as PipelineKind>::Spec, <K as PipelineKind>::Status>;
