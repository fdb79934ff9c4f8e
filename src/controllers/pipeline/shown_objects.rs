//! What a watch shows, decoded as far as it is not known.
//!
//! A spec that was shown is not decoded again until it has another generation, or the hub has restarted: defaults that a new schema adds
//! are known from then on.

use kube::Resource as _;

use crate::api::names::TaskKind;
use crate::kubernetes::object::{LabelledObject, SlimObject};
use crate::plan::pipeline::names::PipelineSpec as _;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::sealed_status::opened;
use crate::plan::pipeline::task_state::PipelineTask;

use super::kind::{KeptObject, PipelineKind};
use super::store::{PipelineStore, key_of};

impl PipelineStore {
    /// An object as a watch shows it, complete.
    pub(super) fn seen_object<K: PipelineKind>(
        &mut self,
        object: LabelledObject,
    ) -> Option<(ObjectKey, KeptObject<K>)> {
        let object = if K::IS_SELECTED {
            object
        } else {
            object.without_labels()
        };
        let meta = object.meta();
        let key = key_of(meta.namespace.as_deref(), meta.name.as_deref())?;
        let known = K::map(&self.objects).get(&key);
        let known = known.filter(|known| meta.uid.as_deref() == Some(&known.uid));
        let is_deleting = known.is_some_and(|known| known.deleting);
        let known = known.filter(|known| known.is_shown() && object.has_spec(&known.uid, known.generation));
        let is_oversized = object.has_too_many_labels();
        let spec = known
            .filter(|_| !is_oversized)
            .and_then(|known| known.spec.clone());
        let object = if spec.is_some() || is_oversized {
            object.without_spec()
        } else {
            object
        };
        let (key, mut object) = object.into_object::<K::Spec, K::Status>()?;
        let status = std::mem::take(&mut object.status);
        object.status = opened(&self.seal_key, &object.uid, object.created, status);
        K::Spec::complete_status(&mut object.status, &key.namespace, &mut self.parts);
        // The event may be older than the deletion, which is never taken back.
        object.deleting |= is_deleting;
        if spec.is_some() {
            object.spec = spec;
        } else if let Some(spec) = &mut object.spec {
            spec.complete(&key.namespace, &mut self.parts);
        }
        Some((key, object))
    }

    /// A task as a watch shows it.
    pub(super) fn seen_task(&self, object: SlimObject) -> Option<(ObjectKey, PipelineTask)> {
        let meta = object.meta();
        let key = key_of(meta.namespace.as_deref(), meta.name.as_deref())?;
        let known = self.objects.tasks.get(&key);
        let known = known.filter(|known| meta.uid.as_deref() == Some(&known.uid));
        let is_deleting = known.is_some_and(|known| known.deleting);
        let known = known.filter(|known| {
            object.has_spec(&known.uid, known.generation)
                || (known.generation == 0 && object.has_spec_hash(&known.spec_hash))
        });
        let object = if known.is_some() {
            object.without_spec()
        } else {
            object
        };
        let task = object.into_task(TaskKind::RenderTask, None)?;
        let mut seen = PipelineTask::of(&task, self.seal_key.is_genuine(&task, None));
        seen.deleting |= is_deleting;
        let seen = match known {
            Some(known) => seen.with_spec_of(known),
            None => seen,
        };
        Some((key, seen))
    }

    /// A task that the hub made is no news once a watch shows its spec.
    pub(super) fn show_generation(&mut self, key: &ObjectKey, seen: &PipelineTask) {
        let known = self.objects.tasks.get(key);
        if known.is_some_and(|known| known.generation == 0 && known.uid == seen.uid)
            && let Some(mut known) = self.objects.tasks.get_mut(key)
        {
            known.generation = seen.generation;
        }
    }
}
