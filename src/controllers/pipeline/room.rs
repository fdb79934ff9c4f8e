//! What the controller does where the objects of a namespace do not fit: it says so, decides again about what may rest on them, and lists
//! everything anew once they may fit.

use std::time::Instant;

use crate::api::conditions::Reason;
use crate::plan::pipeline::kept_bytes::OBJECTS_OF_NAMESPACE;
use crate::plan::pipeline::reports::PipelineReport;
use crate::plan::pipeline::version_bytes::waiting_for_room;

use super::controller::PipelineController;
use super::store::PipelineChange;
use super::work::PipelineKey;

impl PipelineController {
    /// Looks whether all objects still fit, after a change.
    pub(super) fn look_at_room(&mut self, change: &PipelineChange) {
        match change {
            PipelineChange::Nothing => {}
            PipelineChange::Concerned(namespace, _) => self.look_at_namespace(namespace),
            PipelineChange::Listed => {
                for namespace in self.settings.rules.overfull.clone() {
                    self.look_at_namespace(&namespace);
                }
            }
        }
        let overfull = &mut self.store.overfull;
        if std::mem::take(&mut overfull.has_shrunk) {
            overfull.list_anew(Instant::now());
        }
        for (kind, key, uid) in std::mem::take(&mut self.store.overfull.refused) {
            self.look_at_namespace(&key.namespace);
            self.writer.record(kind, &(key, uid), &not_kept());
        }
    }

    /// Looks whether the objects of a namespace still fit, or do again.
    pub(super) fn look_at_namespace(&mut self, namespace: &str) {
        let is_overfull = self.store.is_overfull(namespace);
        let known = &mut self.settings.rules.overfull;
        if known.contains(namespace) == is_overfull {
            return;
        }
        if is_overfull {
            known.insert(namespace.to_owned());
            tracing::warn!(
                namespace,
                bytes = OBJECTS_OF_NAMESPACE,
                "the objects of the pipeline in this namespace take more memory than the hub has for one; nothing that rests on the \
                 namespace is decided, and the others are served"
            );
        } else {
            known.remove(namespace);
            tracing::info!(
                namespace,
                "the hub holds all of this namespace's objects of the pipeline again"
            );
        }
        self.wake_all();
    }

    /// Whether everything is to be listed anew now.
    pub(super) fn takes_list(&mut self) -> bool {
        let is_synced = self.is_synced();
        let overfull = &mut self.store.overfull;
        let is_due = is_synced && overfull.due.is_some_and(|due| due <= Instant::now());
        if is_due {
            overfull.due = None;
        }
        is_due
    }

    /// Decides again about the Targets of a namespace that had no room for a new version: others may have made some.
    pub(super) fn wake_waiting_for_room(&mut self, namespace: &str) {
        for target in waiting_for_room(namespace, &self.store.objects) {
            self.queue.add(&PipelineKey::Target(target.clone()));
        }
    }
}

/// The event about an object that the hub does not keep.
fn not_kept() -> PipelineReport {
    PipelineReport {
        is_warning: true,
        reason: Reason::TooManyObjects,
        note: "the hub does not take this object into account, because those of its namespace take more memory than it has for one; what \
               rests on the namespace stays as it is: delete some of its objects, or spread them over several namespaces"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::jiff::Timestamp;
    use kube::Resource as _;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::super::store::{PipelineStore, WatchScope};
    use super::*;
    use crate::api::labels::TARGET_FINALIZER;
    use crate::api::pipeline::{Release, ReleaseBinding, Target};
    use crate::kubernetes::object::LabelledObject;
    use crate::plan::pipeline::object::ObjectKey;
    use crate::plan::pipeline::references::ReferenceRules;
    use crate::plan::task::status_seal::{KEY_BYTES, SealKey};

    /// Bytes of text of which three fit, and a fourth does not.
    const TEXT: usize = OBJECTS_OF_NAMESPACE / 4 + 1;

    fn store() -> PipelineStore {
        PipelineStore::new(
            Arc::new(SealKey::new([0; KEY_BYTES], Timestamp::UNIX_EPOCH)),
            ReferenceRules::default(),
        )
    }

    fn scope(plural: &'static str) -> WatchScope {
        WatchScope {
            plural,
            namespace: None,
        }
    }

    fn object(name: &str, version: usize, more: &Value, spec: &Value) -> LabelledObject {
        let mut metadata = json!({
            "name": name, "namespace": "a", "uid": name, "resourceVersion": version.to_string(), "generation": version,
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            metadata[field] = value.clone();
        }
        let object = json!({"metadata": metadata, "spec": spec}).to_string();
        serde_json::from_str(&object).unwrap()
    }

    fn release(name: &str, version: usize, bytes: usize) -> LabelledObject {
        let values = json!({"text": "x".repeat(bytes)});
        let spec = json!({"componentVersionRef": {"name": "c"}, "values": values});
        object(name, version, &json!({}), &spec)
    }

    fn see(store: &mut PipelineStore, event: Event<LabelledObject>) -> PipelineChange {
        store.handle_event::<Release>(&scope("releases"), event)
    }

    /// Whether a namespace is overfull, the Releases that are kept, and whether something went since the last look.
    fn state(store: &mut PipelineStore) -> (bool, Vec<String>, bool) {
        let kept = store.objects.releases.keys().map(|key| key.name.clone());
        let kept = kept.collect();
        let has_shrunk = std::mem::take(&mut store.overfull.has_shrunk);
        (store.is_overfull("a"), kept, has_shrunk)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Holds: F6.
    #[test]
    fn what_does_not_fit_is_not_kept_and_a_list_after_something_went_knows_the_namespace_again() {
        let mut store = store();
        for name in ["b", "c", "d"] {
            see(&mut store, Event::Apply(release(name, 1, TEXT)));
        }
        assert_eq!(state(&mut store), (false, names(&["b", "c", "d"]), false));
        // One more has no room, whatever its name, and displaces none.
        see(&mut store, Event::Apply(release("a", 2, TEXT)));
        assert_eq!(state(&mut store), (true, names(&["b", "c", "d"]), false));
        assert!(!store.is_overfull("b"));
        assert_eq!(store.overfull.refused.len(), 1);
        // What is kept does not grow beyond the bound either, and is not kept as it was.
        see(&mut store, Event::Apply(release("b", 3, 2 * TEXT)));
        assert_eq!(state(&mut store), (true, names(&["c", "d"]), false));
        // One that was not kept is gone: the others may fit now.
        see(&mut store, Event::Delete(release("b", 4, 2 * TEXT)));
        assert_eq!(state(&mut store), (true, names(&["c", "d"]), true));
        see(&mut store, Event::Init);
        for (name, version) in [("a", 2), ("c", 1), ("d", 1)] {
            see(&mut store, Event::InitApply(release(name, version, TEXT)));
        }
        assert_eq!(see(&mut store, Event::InitDone), PipelineChange::Listed);
        assert_eq!(state(&mut store), (false, names(&["a", "c", "d"]), false));
    }

    /// Which objects are kept depends on the order; whether the namespace is known does not.
    #[test]
    fn a_namespace_is_overfull_in_whatever_order_its_objects_come() {
        let all = [("a", TEXT), ("b", 10), ("c", 3 * TEXT), ("d", 10)];
        for first in 0..all.len() {
            let mut store = store();
            see(&mut store, Event::Init);
            for index in 0..all.len() {
                let (name, bytes) = all[(first + index) % all.len()];
                see(&mut store, Event::InitApply(release(name, 1, bytes)));
            }
            see(&mut store, Event::InitDone);
            assert!(store.is_overfull("a"), "{first}");
            assert!(store.objects.bytes_within("a") <= OBJECTS_OF_NAMESPACE);
            // Another kind's list says nothing of Releases.
            store.handle_event::<Target>(&scope("targets"), Event::Init);
            assert!(store.is_overfull("a"), "{first}");
            store.overfull.begin_list("releases", None);
            assert!(!store.overfull.has("a"), "{first}");
        }
    }

    /// Holds: F6.
    #[test]
    fn an_object_that_has_too_many_labels_is_there_and_counts_as_one_that_cannot_be_decoded() {
        let labels = |count: usize| {
            let labels = (0..count).map(|number| (format!("{number}"), json!("")));
            json!({"labels": labels.collect::<serde_json::Map<_, _>>()})
        };
        let spec = json!({"componentVersionRef": {"name": "c"}});
        let mut store = store();
        for (version, count, is_decoded) in [(1, 1, true), (2, 257, false), (3, 256, true)] {
            // The spec is the one that is known already.
            let mut object = object("b", 1, &labels(count), &spec);
            object.meta_mut().resource_version = Some(version.to_string());
            see(&mut store, Event::Apply(object));
            let known = &store.objects.releases[&ObjectKey::new("a", "b")];
            assert_eq!(
                (known.spec.is_some(), known.labels.is_empty()),
                (is_decoded, !is_decoded),
                "{count}"
            );
        }
        let target = json!({"targetRef": {"name": "edge"}, "releaseRef": {"name": "r"}});
        let bound = object("b", 1, &labels(257), &target);
        store.handle_event::<ReleaseBinding>(&scope("releasebindings"), Event::Apply(bound));
        let known = &store.objects.release_bindings[&ObjectKey::new("a", "b")];
        assert!(
            known.spec.is_some() && known.labels.is_empty(),
            "no object selects it"
        );
    }

    #[test]
    fn small_objects_without_end_are_not_kept_either() {
        let mut store = store();
        let spec = json!({"targetRef": {"name": "edge"}, "releaseRef": {"name": "r"}});
        let bindings = scope("releasebindings");
        for number in 0..100_000 {
            let binding = object(&format!("b{number}"), 1, &json!({}), &spec);
            store.handle_event::<ReleaseBinding>(&bindings, Event::InitApply(binding));
        }
        assert!(store.is_overfull("a"));
        let kept = store.objects.release_bindings.len();
        assert!(kept <= OBJECTS_OF_NAMESPACE / 2_048, "{kept}");
        assert!(store.overfull.refused.len() == 1, "one of them is known");
    }

    #[test]
    fn a_target_that_is_being_deleted_is_kept_so_that_it_can_go_and_any_other_is_told_of() {
        let mut store = store();
        for name in ["b", "c", "d"] {
            see(&mut store, Event::Apply(release(name, 1, TEXT)));
        }
        let registry = json!({"renderRegistryRef": {"name": "main"}, "userdata": {"text": "x".repeat(TEXT)}});
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [TARGET_FINALIZER]});
        for (name, more, is_kept) in [
            ("one", json!({}), false),
            ("two", json!({"finalizers": [TARGET_FINALIZER]}), false),
            ("three", deleting, true),
        ] {
            let target = object(name, 1, &more, &registry);
            store.handle_event::<Target>(&scope("targets"), Event::Apply(target));
            let key = ObjectKey::new("a", name);
            let known = store.objects.targets.get(&key);
            assert_eq!(
                known.map(|known| known.spec.is_none()),
                is_kept.then_some(true),
                "{name}"
            );
        }
        let reported: Vec<_> = store
            .overfull
            .refused
            .iter()
            .map(|(kind, key, _)| (*kind, key.name.as_str()))
            .collect();
        assert_eq!(
            reported,
            [("Target", "one"), ("Target", "two"), ("Target", "three")]
        );
    }
}
