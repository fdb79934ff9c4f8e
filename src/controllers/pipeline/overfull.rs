//! Namespaces whose objects take more memory than the hub has for one.
//!
//! What does not fit is not kept, so nothing is decided about what rests on such a namespace, and all of it stays as it was. Which of its
//! objects are kept decides nothing. Once something there is gone, the hub lists everything anew, and knows the namespace again if all of
//! it fits.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::plan::pipeline::kept_bytes::OBJECTS_OF_NAMESPACE;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::object_map::NamesOthers as _;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::queue::backoff::Backoff;

use super::kind::PipelineKind;
use super::work_rounds::QUIET;

/// The kinds of which the hub always holds every object: it makes them itself, within bounds of their own.
const OWN_KINDS: [&str; 1] = ["hydratedtargets"];

/// The kind that the hub lets go of.
const TARGETS: &str = "targets";

/// An object that is not kept: its kind, its key and its UID.
pub(super) type RefusedObject = (&'static str, ObjectKey, String);

/// What was not kept.
#[derive(Default)]
pub(super) struct OverfullNamespaces {
    /// Namespaces of which an object was not kept since the last list of its kind, each with the kind.
    beyond: BTreeSet<(String, &'static str)>,
    /// Objects that the hub has yet to write an event about.
    pub refused: Vec<RefusedObject>,
    /// Whether something went since the last list, so that the others may fit.
    pub has_shrunk: bool,
    /// When everything is listed anew.
    pub due: Option<Instant>,
    /// When it was or is to be last.
    listed: Option<Instant>,
    lists: Backoff<()>,
}

impl OverfullNamespaces {
    /// Whether not every object of a namespace is kept.
    pub fn has(&self, namespace: &str) -> bool {
        let first = (namespace.to_owned(), "");
        let next = self.beyond.range(first..).next();
        next.is_some_and(|(known, _)| known == namespace)
    }

    /// Lists everything anew, after a pause that grows with each time until no list was needed for a while: a namespace that fits again
    /// proves nothing, because a tenant can make it too full as often as it likes.
    pub fn list_anew(&mut self, now: Instant) {
        if self.due.is_some() {
            return;
        }
        let is_quiet = |listed: Instant| now.saturating_duration_since(listed) >= QUIET;
        if self.listed.is_none_or(is_quiet) {
            self.lists.clear(&());
        }
        self.due = Some(now + self.lists.failed(&()));
        self.listed = self.due;
    }

    /// Something of a namespace is gone.
    pub fn shrink(&mut self, namespace: &str) {
        self.has_shrunk |= self.has(namespace);
    }

    /// A list ended that did not show objects which were there.
    pub fn shrink_all(&mut self) {
        self.has_shrunk |= !self.beyond.is_empty();
    }

    /// A list begins that shows all objects of a kind again, of one namespace or of all.
    pub fn begin_list(&mut self, plural: &str, own: Option<&str>) {
        self.beyond
            .retain(|(namespace, kind)| *kind != plural || own.is_some_and(|own| own != namespace.as_str()));
    }

    fn refuse(&mut self, plural: &'static str, object: RefusedObject) {
        let is_first = self.beyond.insert((object.1.namespace.clone(), plural));
        // A Target has no status then that says so.
        if is_first || plural == TARGETS {
            self.refused.push(object);
        }
    }

    /// Whether an object is kept. A Target that is being deleted always is, without what fills memory, so that it can go.
    pub fn admit<K: PipelineKind>(
        &mut self,
        objects: &PipelineObjects,
        key: &ObjectKey,
        object: &mut PipelineObject<K::Spec, K::Status>,
    ) -> bool {
        let before = K::map(objects).get(key);
        let before = before.map_or(0, PipelineObject::kept_bytes);
        let after = object.kept_bytes();
        if OWN_KINDS.contains(&K::PLURAL) || objects.has_room(&key.namespace, before, after) {
            if before == 0 || after < before {
                self.shrink(&key.namespace);
            }
            return true;
        }
        self.refuse(K::PLURAL, (K::KIND, key.clone(), object.uid.clone()));
        let is_kept = K::PLURAL == TARGETS && object.deleting && object.finalizers.hub_index.is_some();
        if is_kept {
            (object.spec, object.status) = (None, K::Status::default());
            object.labels.clear();
        }
        is_kept
    }

    /// Whether the objects of a namespace take more than the hub has for one.
    pub fn is_overfull(&self, namespace: &str, objects: &PipelineObjects) -> bool {
        self.has(namespace) || objects.bytes_within(namespace) > OBJECTS_OF_NAMESPACE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Holds: F6.
    #[test]
    fn lists_that_a_tenant_has_made_again_and_again_become_rare() {
        let (mut overfull, mut now) = (OverfullNamespaces::default(), Instant::now());
        let mut pause = |overfull: &mut OverfullNamespaces, after: Duration| {
            now += after;
            overfull.list_anew(now);
            let due = overfull.due.unwrap();
            // What comes before it is due changes nothing.
            overfull.list_anew(due);
            assert_eq!(overfull.due.take(), Some(due));
            let pause = due - now;
            now = due;
            pause
        };
        for round in 0..12 {
            let full = Duration::from_secs(1 << round).min(Duration::from_secs(300));
            let taken = pause(&mut overfull, Duration::from_secs(1));
            assert!(taken >= full / 2 && taken <= full, "{round}: {taken:?}");
        }
        assert!(pause(&mut overfull, QUIET) <= Duration::from_secs(1));
    }
}
