//! The rollouts of Profiles as the controller keeps them: what is known of each, and which versions are being made.
//!
//! A version that a worker makes counts as one that is on its way from the moment of the decision, because no watch shows it yet.
//! Where the call failed it may be there all the same, so it counts until the Target was decided about again.

use std::collections::BTreeSet;

use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::concerned::Concerned;
use crate::plan::pipeline::decide::TargetDecision;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::rollout::{RolloutChanges, RolloutIndex, RolloutInput, VersionsInMaking};
use crate::plan::pipeline::status::StatusKind;
use crate::plan::platform::catalog::Catalog;

/// The rollouts, and what the controller alone knows of them.
#[derive(Default)]
pub(super) struct RolloutState {
    pub index: RolloutIndex,
    in_making: VersionsInMaking,
    /// Targets about which nothing is decided before rollouts were looked at again.
    deferred: BTreeSet<ObjectKey>,
}

impl RolloutState {
    /// Something changed in a namespace, and concerns these; returns whether rollouts are to be looked at again.
    pub fn mark(&mut self, namespace: &str, found: &Concerned) -> bool {
        let has_profile = found
            .statuses
            .iter()
            .any(|object| object.kind == StatusKind::Profile);
        if self.index.is_empty() && !has_profile {
            return false;
        }
        self.index.mark(namespace);
        let namespaces = found.targets.iter().chain(&found.own);
        for target in namespaces {
            self.index.mark(&target.namespace);
        }
        true
    }

    /// Everything may have changed.
    pub fn mark_all<'n>(&mut self, namespaces: impl IntoIterator<Item = &'n String>) {
        for namespace in namespaces {
            self.index.mark(namespace);
        }
    }

    /// Decides about a Target after the next look.
    pub fn defer(&mut self, target: &ObjectKey) {
        self.index.mark(&target.namespace);
        self.deferred.insert(target.clone());
    }

    /// Notes the version that a worker is about to make; without one, the Target has none in making any more.
    pub fn begin(&mut self, target: &ObjectKey, decision: &TargetDecision) {
        self.in_making.remove(target);
        if let Some((_, version)) = decision.new_version.as_ref().filter(|_| !self.index.is_empty()) {
            self.in_making.insert(target.clone(), version.releases.clone());
        }
    }

    /// The version that was being made is in the store, or the Target is gone.
    pub fn end(&mut self, target: &ObjectKey) {
        self.in_making.remove(target);
    }

    /// Looks at the rollouts again; returns also the Targets that were waiting for that.
    pub fn refresh(
        &mut self,
        objects: &PipelineObjects,
        rules: &ReferenceRules,
        catalog: &Catalog,
        charts: &ChartCache,
    ) -> RolloutChanges {
        let mut changes = self.index.refresh(RolloutInput {
            objects,
            rules,
            catalog,
            charts,
            in_making: &self.in_making,
        });
        changes.targets.append(&mut self.deferred);
        changes
    }
}
