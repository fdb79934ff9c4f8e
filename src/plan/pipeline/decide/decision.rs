//! What a decision rests on, and what it says.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::RenderTaskSpec;
use crate::api::pipeline::{HydratedTargetSpec, HydratedTargetStatus, TargetStatus};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::history::StoredVersion;
use crate::plan::pipeline::lookups::{ChartAnswers, ChartQuestion};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::prune::{Retirement, is_pruned, retire};
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::resolution::LeftOutRelease;
use crate::plan::pipeline::rollout::RolloutIndex;
use crate::plan::pipeline::source::TargetView;
use crate::plan::platform::catalog::Catalog;

/// A task to be made.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Its name.
    pub name: String,
    /// What it renders.
    pub spec: Arc<RenderTaskSpec>,
    /// SHA-256 of that.
    pub spec_hash: String,
    /// Whether it is the Target's alone, and goes with it.
    pub is_targets_own: bool,
}

/// An object to be written or deleted, as it was seen.
pub type SeenObject = (ObjectKey, String);

/// What is done with the finalizer of a Target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinalizerChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is put on the Target, before anything else is done.
    Add,
    /// It is taken off, after everything else is done.
    Remove,
    /// It is taken off although something of the Target may be left, which an event says.
    Force,
}

/// When a Target is decided about again once what was decided is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowUp {
    /// At once: something may follow from what was written.
    #[default]
    AtOnce,
    /// When something changes: nothing follows, neither for the Target nor for those that share its tasks.
    OnChange,
}

/// The shared tasks that a Target needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeededTasks {
    /// Every one of its namespace: nothing is decided about which.
    All,
    /// Those whose first attempts have these names.
    Named(BTreeSet<String>),
}

impl Default for NeededTasks {
    fn default() -> Self {
        Self::Named(BTreeSet::new())
    }
}

impl NeededTasks {
    /// Whether a task that is needed is among those that run, beside one that is needed as well and whose chart is pushed.
    #[must_use]
    pub fn has_another(&self, pushed: &str, running: &BTreeSet<&str>) -> bool {
        match self {
            Self::All => false,
            Self::Named(names) => {
                let is_running = |name: &String| name != pushed && running.contains(name.as_str());
                names.contains(pushed) && names.iter().any(is_running)
            }
        }
    }
}

/// The status of a version to be written.
#[derive(Clone, Debug)]
pub struct VersionRecord {
    /// The version.
    pub seen: SeenObject,
    /// Resource version of the object: its status is written to that version alone.
    pub resource_version: u64,
    /// The whole status.
    pub status: HydratedTargetStatus,
}

impl VersionRecord {
    /// A status for this version.
    #[must_use]
    pub fn of(key: &ObjectKey, version: &StoredVersion, status: HydratedTargetStatus) -> Self {
        Self {
            seen: (key.clone(), version.uid.clone()),
            resource_version: version.version,
            status,
        }
    }
}

/// What is to be done for a Target.
#[derive(Clone, Debug, Default)]
pub struct TargetDecision {
    /// What is done with the Target's finalizer.
    pub finalizer: FinalizerChange,
    /// Tasks to be made.
    pub new_tasks: Vec<NewTask>,
    /// The version to be made.
    pub new_version: Option<(String, HydratedTargetSpec)>,
    /// The status of a version to be written.
    pub version_status: Option<VersionRecord>,
    /// Versions to be deleted.
    pub old_versions: Vec<SeenObject>,
    /// Versions that stay until their charts are deleted, with the status that says so.
    pub records: Vec<VersionRecord>,
    /// Tasks to be deleted.
    pub old_tasks: Vec<SeenObject>,
    /// The shared tasks that the Target needs.
    pub needed: NeededTasks,
    /// Whether nothing changes for the Target before every task that it needs has ended, or one of them fails or waits for something.
    pub awaits_tasks: bool,
    /// The status that the Target should have.
    pub status: TargetStatus,
    /// When to decide again, if nothing happens before.
    pub look_again: Option<Timestamp>,
    /// When to decide again once all of that is written.
    pub follow_up: FollowUp,
    /// Whether nothing is to be done before rollouts were looked at again.
    pub awaits_rollout: bool,
    /// Charts of an earlier version that the Target goes back to, which its registry is asked for.
    pub questions: Vec<ChartQuestion>,
    /// Releases that are bound to the Target and lost to others.
    pub left_out: Vec<LeftOutRelease>,
    /// Whether it is not known who lost, so that all are taken to be those that were known before.
    pub is_left_out_unknown: bool,
}

/// Why the API server does not let the hub make an object for a Target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateRefusal {
    /// An object of another has the name.
    NameTaken,
    /// A quota, an admission policy or a missing right forbids it.
    Forbidden,
    /// It is invalid by the installed definitions or by an admission policy.
    Invalid,
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
    /// Why what was decided before could not be made, more than once in a row.
    pub refusal: Option<CreateRefusal>,
    /// Charts that were planned before.
    pub charts: &'o ChartCache,
    /// How far the rollouts of Profiles are.
    pub rollouts: &'o RolloutIndex,
    /// What registries said of charts of earlier versions.
    pub answers: &'o ChartAnswers,
    /// The time.
    pub now: Timestamp,
}

impl TargetDecision {
    /// Whether there is anything to be written besides the status of the Target.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        self.finalizer != FinalizerChange::Keep
            || self.new_version.is_some()
            || self.version_status.is_some()
            || !self.new_tasks.is_empty()
            || !self.old_tasks.is_empty()
            || !self.old_versions.is_empty()
            || !self.records.is_empty()
    }

    /// Gives a version up that is not kept any more.
    pub(super) fn retire(
        &mut self,
        key: &ObjectKey,
        version: &StoredVersion,
        account: Option<&str>,
        input: TargetInput<'_>,
    ) {
        let is_pruned = is_pruned(key, version, input.objects, input.rules, input.catalog);
        match retire(version, account, is_pruned, input.now) {
            Retirement::Delete => self.old_versions.push((key.clone(), version.uid.clone())),
            Retirement::Record(status) => self.records.push(VersionRecord::of(key, version, *status)),
        }
    }
}
