//! What a watch shows, decoded as far as it is not known.
//!
//! A spec that was shown is not decoded again until it has another generation, or the hub has restarted: defaults that a new schema adds
//! are known from then on.

use kube::Resource as _;

use crate::kubernetes::object::LabelledObject;
use crate::plan::pipeline::names::PipelineSpec as _;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::sealed_status::opened;

use super::kind::{KeptObject, PipelineKind};
use super::store::PipelineStore;

impl PipelineStore {
    /// An object as a watch shows it, complete.
    pub(super) fn seen_object<K: PipelineKind>(
        &mut self,
        key: &ObjectKey,
        object: LabelledObject,
    ) -> Option<KeptObject<K>> {
        let meta = object.meta();
        let known = K::map(&self.objects).get(key);
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
        let (_, mut object) = object.into_object::<K::Spec, K::Status>()?;
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
        Some(object)
    }
}
