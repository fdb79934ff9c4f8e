//! What a decision about one Target means for others: whose turn it is in a rollout, which shared tasks are needed, and what
//! bindings say of those that lost.

use crate::api::pipeline::ReleaseSourceKind;
use crate::plan::pipeline::concerned::{ConcernSearch, Concerned, StatusObject};
use crate::plan::pipeline::decide::TargetDecision;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::resolution::LeftOutRelease;
use crate::plan::pipeline::status::StatusKind;

use super::controller::{PipelineController, SETTLE};
use super::work::PipelineKey;

impl PipelineController {
    /// Looks at the rollouts of Profiles, and makes due those whose turn it is now, or is not any more.
    pub(super) fn refresh_rollouts(&mut self) {
        let Some(catalog) = self.catalog.borrow().clone() else {
            return;
        };
        let (objects, rules) = (&self.store.objects, &self.settings.rules);
        let changes = self.rollouts.refresh(objects, rules, &catalog, &self.charts);
        for target in changes.targets {
            self.queue.add(&PipelineKey::Target(target));
        }
        for key in changes.profiles {
            let kind = StatusKind::Profile;
            self.refresh_status(StatusObject { kind, key });
        }
    }

    /// Remembers what others rest on: the shared tasks that a Target needs, and which Releases lost there. What the decision itself
    /// rests on is asked for.
    pub(super) fn note(&mut self, key: &ObjectKey, decision: &mut TargetDecision) {
        let needed = std::mem::take(&mut decision.needed);
        if self.needed.get(key) != Some(&needed) {
            self.look_at_leftovers(&key.namespace, SETTLE);
            self.needed.insert(key.clone(), needed);
        }
        if decision.awaits_tasks {
            self.awaiting.insert(key.clone());
        } else {
            self.awaiting.remove(key);
        }
        if !decision.is_left_out_unknown || !self.left_out.knows(key) {
            self.note_left_out(key, std::mem::take(&mut decision.left_out));
        }
        self.look_up_charts(key, decision);
    }

    fn note_left_out(&mut self, key: &ObjectKey, left_out: Vec<LeftOutRelease>) {
        if !self.left_out.knows(key) {
            self.refresh_bindings(key);
        }
        for source in self.left_out.put(key, left_out) {
            let kind = match source.kind {
                ReleaseSourceKind::ReleaseBinding => StatusKind::ReleaseBinding,
                ReleaseSourceKind::Profile => StatusKind::Profile,
            };
            let key = ObjectKey::new(&source.namespace, &source.name);
            self.refresh_status(StatusObject { kind, key });
        }
    }

    /// Looks at the statuses of what may bind something to a Target that nothing was known of before.
    fn refresh_bindings(&mut self, target: &ObjectKey) {
        let objects = &self.store.objects;
        let mut found = Concerned::default();
        if let Some(object) = objects.targets.get(target) {
            ConcernSearch::new(objects, &self.settings.rules, &mut found).target(target, object);
        }
        for object in found.statuses {
            self.refresh_status(object);
        }
    }

    /// Nothing is decided about a Target that is gone; one that cannot be decoded has no losers.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if self.needed.remove(key).is_some() {
            self.look_at_leftovers(&key.namespace, SETTLE);
        }
        self.refusals.remove(key);
        self.awaiting.remove(key);
        self.left_statuses.forget(key);
        self.rollouts.end(key);
        if self.store.objects.targets.contains_key(key) {
            self.note_left_out(key, Vec::new());
        } else {
            self.left_out.remove(key);
        }
    }
}
