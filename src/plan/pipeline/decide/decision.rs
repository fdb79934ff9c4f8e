//! What a decision rests on, and what it says.

use k8s_openapi::jiff::Timestamp;

use crate::api::RenderTaskSpec;
use crate::api::pipeline::{HydratedTargetSpec, HydratedTargetStatus, TargetStatus};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::source::TargetView;
use crate::plan::platform::catalog::Catalog;

/// A task to be made.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Its name.
    pub name: String,
    /// What it renders.
    pub spec: RenderTaskSpec,
    /// Whether it is the Target's alone, and goes with it.
    pub is_targets_own: bool,
}

/// An object to be written or deleted, as it was seen.
pub type SeenObject = (ObjectKey, String);

/// What is to be done for a Target.
#[derive(Clone, Debug, Default)]
pub struct TargetDecision {
    /// Tasks to be made.
    pub new_tasks: Vec<NewTask>,
    /// The version to be made.
    pub new_version: Option<(String, HydratedTargetSpec)>,
    /// The status of a version to be written.
    pub version_status: Option<(SeenObject, HydratedTargetStatus)>,
    /// Versions to be deleted.
    pub old_versions: Vec<SeenObject>,
    /// Tasks to be deleted.
    pub old_tasks: Vec<SeenObject>,
    /// Names of the shared tasks that the Target needs.
    pub needed: Vec<String>,
    /// The status that the Target should have.
    pub status: TargetStatus,
    /// When to decide again, if nothing happens before.
    pub look_again: Option<Timestamp>,
}

/// Everything that a decision rests on.
#[derive(Clone, Copy, Debug)]
pub struct TargetInput<'o> {
    /// The Target.
    pub target: TargetView<'o>,
    /// All objects of the pipeline.
    pub objects: &'o PipelineObjects,
    /// What governs references.
    pub rules: &'o ReferenceRules,
    /// What the platform offers.
    pub catalog: &'o Catalog,
    /// Charts that were planned before.
    pub charts: &'o ChartCache,
    /// The time.
    pub now: Timestamp,
}
