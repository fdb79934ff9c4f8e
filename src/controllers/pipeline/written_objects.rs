//! What workers wrote is in the store at once, without waiting for a watch.

use crate::api::pipeline::HydratedTarget;
use crate::plan::pipeline::concerned::Concerned;
use crate::plan::pipeline::decide::{FollowUp, NewTask};
use crate::plan::pipeline::names::PipelineSpec as _;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::task_state::PipelineTask;

use super::kind::PipelineKind as _;
use super::store::{PipelineStore, TASKS, WatchScope};
use super::writes::Written;

impl PipelineStore {
    /// Takes in what a worker wrote; whom it concerns besides those for whom it was written.
    pub fn take_in(&mut self, written: Written) -> Concerned {
        let objects = &mut self.objects;
        match written {
            Written::Task(key, uid, task, follow_up) => {
                let found = self.take_in_task(&key, uid, &task);
                // To the Targets that share it, a task that is made now was as good as running before.
                let is_known = follow_up == FollowUp::OnChange;
                return if is_known { found.without_targets() } else { found };
            }
            Written::Version(_, made, _) if self.gone.has(&made.uid) => {}
            Written::Version(key, made, mut spec) => {
                self.show_made(HydratedTarget::PLURAL, &key);
                spec.complete(&key.namespace, &mut self.parts);
                let mut version = PipelineObject::made(made.uid, *spec);
                version.version = made.version;
                let namespace = key.namespace.clone();
                let versions = &mut self.objects.hydrated_targets;
                if !versions.contains_key(&key) {
                    versions.insert(key, version);
                }
                // It takes room, for which history may have to go.
                return Concerned {
                    leftovers: Some(namespace),
                    ..Concerned::default()
                };
            }
            Written::TargetFinalizers(key, finalizers, version) => {
                if let Some(mut target) = objects.targets.get_mut(&key) {
                    target.take_in(version, |target| target.finalizers = finalizers);
                }
            }
            Written::Status(key, put) => return put(&key, objects, &mut self.parts),
            // They go when a watch shows it: a finalizer may keep them, and their name, for a while.
            Written::TaskGone(key) => return self.take_in_deletion(&key),
            Written::VersionGone(key) => {
                if let Some(mut version) = objects.hydrated_targets.get_mut(&key) {
                    version.deleting = true;
                }
            }
        }
        Concerned::default()
    }

    fn take_in_task(&mut self, key: &ObjectKey, uid: String, task: &NewTask) -> Concerned {
        if !self.objects.tasks.contains_key(key) && !self.gone.has(&uid) {
            self.show_made(TASKS, key);
            let tasks = &mut self.objects.tasks;
            tasks.insert(key.clone(), PipelineTask::made(uid, &task.spec, &task.spec_hash));
        }
        self.searched_task(key)
    }

    /// An object that is made while its kind is listed may be younger than the list, which does not show it then.
    fn show_made(&mut self, plural: &'static str, key: &ObjectKey) {
        for namespace in [None, Some(key.namespace.as_str().into())] {
            self.shown.add(&WatchScope { plural, namespace }, key);
        }
    }

    fn take_in_deletion(&mut self, key: &ObjectKey) -> Concerned {
        if let Some(mut task) = self.objects.tasks.get_mut(key) {
            task.deleting = true;
        }
        self.searched_task(key)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use k8s_openapi::jiff::Timestamp;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::super::store::{PipelineChange, TASKS, WatchScope};
    use super::*;
    use crate::api::conditions::{ConditionType, Reason, merge};
    use crate::api::names::{TaskKind, TaskUid};
    use crate::api::pipeline::{
        HydratedTarget, HydratedTargetSpec, OmitsKnownNames as _, Target, TargetStatus,
    };
    use crate::kubernetes::apply::CreatedObject;
    use crate::kubernetes::object::{LabelledObject, SlimObject};
    use crate::kubernetes::watch::{PipelineTaskChange, WatchChange};
    use crate::plan::pipeline::conditions::Verdict;
    use crate::plan::pipeline::content_hash::content_hash;
    use crate::plan::pipeline::references::ReferenceRules;
    use crate::plan::pipeline::sealed_status::sealed;
    use crate::plan::task::status_seal::{KEY_BYTES, SealKey};

    fn store() -> PipelineStore {
        PipelineStore::new(Arc::new(seal_key()), ReferenceRules::default())
    }

    fn seal_key() -> SealKey {
        SealKey::new([0; KEY_BYTES], Timestamp::UNIX_EPOCH)
    }

    fn scope(plural: &'static str) -> WatchScope {
        WatchScope {
            plural,
            namespace: None,
        }
    }

    fn watched<O: serde::de::DeserializeOwned>(spec: &Value) -> O {
        let metadata = json!({"name": "made", "namespace": "team", "uid": "uid", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-11-27T12:00:00Z"});
        serde_json::from_str(&json!({"metadata": metadata, "spec": spec}).to_string()).unwrap()
    }

    fn task() -> (Value, Written) {
        let bootstrap = json!({"chart": {"name": "edge", "version": "1.0.0"}, "input": {"releases": {}}});
        let config = json!({"type": "bootstrap", "bootstrap": bootstrap});
        let spec = json!({"config": config, "repository": "edge", "tag": "1.0.0"});
        let task = NewTask {
            name: "made".to_owned(),
            spec: serde_json::from_value(spec.clone()).unwrap(),
            spec_hash: "hash".to_owned(),
            is_targets_own: true,
        };
        let key = ObjectKey::new("team", "made");
        let written = Written::Task(key, "uid".to_owned(), Arc::new(task), FollowUp::OnChange);
        (spec, written)
    }

    /// A version that the hub made: its key, its spec, and what a worker says of it.
    pub(in crate::controllers::pipeline) fn version() -> (ObjectKey, Value, Written) {
        let release = json!({
            "namespace": "team", "name": "shop", "source": "Profile/team/all",
            "componentVersionRef": {"namespace": "team", "name": "shop"}, "componentVersion": "1", "repository": "r", "version": "1",
        });
        let spec = json!({
            "targetName": "edge", "targetUid": "uid", "version": 1, "releases": {"shop": release}, "changes": "first version",
            "registry": {"kind": "Registry", "name": "main", "namespace": "team", "hostname": "registry.test", "repository": "edge"},
        });
        let typed = Box::new(serde_json::from_value(spec.clone()).unwrap());
        let made = CreatedObject {
            uid: "uid".to_owned(),
            version: 1,
        };
        let key = ObjectKey::new("team", "made");
        (key.clone(), spec, Written::Version(key, made, typed))
    }

    /// No watch shows it again, so the Target would wait for it for good.
    #[test]
    fn what_was_deleted_before_it_is_taken_in_is_not() {
        for is_deleted in [true, false] {
            let (mut store, (spec, written)) = (store(), task());
            store.handle_task_change(&scope(TASKS), shown_task("uid", &spec));
            if is_deleted {
                let gone = (ObjectKey::new("team", "made"), TaskUid::new("uid"));
                store.handle_task_change(&scope(TASKS), WatchChange::Gone(gone));
            }
            store.take_in(written);
            assert_eq!(store.objects.tasks.is_empty(), is_deleted);
        }
    }

    /// Another Target of the name has none of what was said of the first, though the API server gives no version for one that is gone.
    #[test]
    fn a_status_is_taken_in_for_the_object_that_it_was_written_to_and_no_other() {
        for (uid, version, is_taken) in [
            ("uid", Some(2), true),
            ("uid", None, true),
            ("other", None, false),
        ] {
            let mut store = store();
            let spec = json!({"renderRegistryRef": {"name": "main"}});
            store.handle_event::<Target>(&scope("targets"), Event::Apply(watched(&spec)));
            let (key, status) = (ObjectKey::new("team", "made"), TargetStatus::default());
            let status = TargetStatus {
                bootstrap_version: Some(7),
                ..status
            };
            store.take_in(Written::status::<Target>(
                (key.clone(), uid.to_owned()),
                status,
                version,
            ));
            let known = store.objects.targets.get(&key).unwrap();
            assert_eq!(
                known.status.bootstrap_version,
                is_taken.then_some(7),
                "{uid} {version:?}"
            );
        }
    }

    fn shown_task(uid: &str, spec: &Value) -> PipelineTaskChange {
        let metadata = json!({
            "name": "made", "namespace": "team", "uid": uid, "resourceVersion": "1", "generation": 1,
        });
        let object = json!({"metadata": metadata, "spec": spec}).to_string();
        let object: SlimObject = serde_json::from_str(&object).unwrap();
        let task = object.into_task(TaskKind::RenderTask, None).unwrap();
        WatchChange::Seen((ObjectKey::new("team", "made"), PipelineTask::of(&task, true)))
    }

    /// A task may not be what the hub wrote, where an admission webhook changed it.
    #[test]
    fn a_task_has_the_spec_that_a_watch_shows() {
        let (mut store, (spec, written)) = (store(), task());
        store.take_in(written);
        let key = ObjectKey::new("team", "made");
        for (uid, tag) in [("uid", "2.0.0"), ("uid", "3.0.0"), ("other", "2.0.0")] {
            let mut changed = spec.clone();
            changed["tag"] = json!(tag);
            store.handle_task_change(&scope(TASKS), shown_task(uid, &changed));
            let known = &store.objects.tasks[&key];
            assert_eq!((known.chart.tag.as_str(), known.uid.as_str()), (tag, uid));
        }
    }

    /// The Target of before may need a task of this name, and there is none any more.
    #[test]
    fn a_task_that_has_another_owner_concerns_whom_the_one_before_did() {
        let (mut store, (mut spec, _)) = (store(), task());
        let mut concerned = |owner: &str| -> Vec<_> {
            spec["owner"] = json!({"kind": "Target", "namespace": "team", "name": owner});
            let WatchChange::Seen((_, task)) = shown_task(owner, &spec) else {
                unreachable!()
            };
            let seen = WatchChange::Seen((ObjectKey::new("team", "bootstrap-edge-1"), task));
            let PipelineChange::Concerned(_, found) = store.handle_task_change(&scope(TASKS), seen) else {
                return Vec::new();
            };
            let all = found.own.into_iter().chain(found.targets);
            all.map(|key| key.name).collect()
        };
        for (owner, expected) in [
            ("edge", &["edge"][..]),
            ("edge", &[]),
            ("ed", &["ed", "edge"]),
            ("ed", &[]),
        ] {
            assert_eq!(concerned(owner), expected, "{owner}");
        }
    }

    #[test]
    fn a_task_that_the_hub_made_is_no_news_when_a_watch_shows_it() {
        for (tag, is_news) in [("1.0.0", false), ("2.0.0", true)] {
            let (mut store, (mut spec, _)) = (store(), task());
            spec["owner"] = json!({"kind": "Target", "namespace": "team", "name": "made"});
            let target = json!({"renderRegistryRef": {"name": "main"}});
            store.handle_event::<Target>(&scope("targets"), Event::Apply(watched(&target)));
            let task = NewTask {
                name: "made".to_owned(),
                spec: serde_json::from_value(spec.clone()).unwrap(),
                spec_hash: content_hash(&spec),
                is_targets_own: true,
            };
            store.take_in(Written::Task(
                ObjectKey::new("team", "made"),
                "uid".to_owned(),
                Arc::new(task),
                FollowUp::OnChange,
            ));
            spec["tag"] = json!(tag);
            let change = store.handle_task_change(&scope(TASKS), shown_task("uid", &spec));
            assert_eq!(change != PipelineChange::Nothing, is_news, "{tag}");
        }
    }

    /// The event of the version `made`, with this label and these changes in its spec, which is as the hub writes it.
    fn shown_version(
        uid: &str,
        version: u64,
        (label, changes): (&str, &str),
        spec: &Value,
    ) -> Event<LabelledObject> {
        let labels = json!({"app.kubernetes.io/managed-by": "renderhub", "renderhub.dev/pipeline": label});
        let metadata = json!({
            "name": "made", "namespace": "team", "uid": uid, "resourceVersion": version.to_string(), "generation": 1,
            "labels": labels, "creationTimestamp": "2026-11-27T12:00:00Z",
        });
        let mut written: HydratedTargetSpec = serde_json::from_value(spec.clone()).unwrap();
        changes.clone_into(&mut written.changes);
        written.leave_out("team");
        let shown = json!({"metadata": metadata, "spec": written}).to_string();
        Event::Apply(serde_json::from_str(&shown).unwrap())
    }

    #[test]
    fn a_version_that_the_hub_made_is_no_news_when_a_watch_shows_it() {
        for (label, changes, is_news) in [
            ("bootstrap", "first version", false),
            // No object is selected by labels of this kind.
            ("another", "first version", false),
            // What an admission webhook may do.
            ("bootstrap", "changed", true),
        ] {
            let (mut store, (key, spec, written)) = (store(), version());
            store.take_in(written);
            let made = &store.objects.hydrated_targets[&key];
            let status_is_written_to = (made.version, made.generation);
            assert_eq!(status_is_written_to, (1, 1));
            for (version, shown, is_news) in [(1, changes, is_news), (2, "once more", false)] {
                let event = shown_version("uid", version, (label, shown), &spec);
                let change = store.handle_event::<HydratedTarget>(&scope("hydratedtargets"), event);
                assert_eq!(change != PipelineChange::Nothing, is_news, "{label} {shown}");
                // A spec that was shown is not decoded again: it is immutable.
                let mut whole: HydratedTargetSpec = serde_json::from_value(spec.clone()).unwrap();
                changes.clone_into(&mut whole.changes);
                let known = &store.objects.hydrated_targets[&key];
                assert_eq!((known.version, known.spec.as_ref()), (version, Some(&whole)));
            }
        }
    }

    /// An API server keeps whole seconds, and the hub decides between them.
    #[test]
    fn a_status_that_the_hub_wrote_is_no_news_when_a_watch_shows_it() {
        for (generation, is_news) in [(1, false), (2, true)] {
            let mut store = store();
            let spec = json!({"renderRegistryRef": {"name": "main"}});
            store.handle_event::<Target>(&scope("targets"), Event::Apply(watched(&spec)));
            let mut status = TargetStatus::default();
            let ready = Verdict::good(Reason::Ready, "pushed");
            let decided = Timestamp::new(1_000_000, 400_000_000).unwrap();
            merge(
                &mut status.conditions,
                &[ready.of(ConditionType::Ready)],
                &[],
                Some(1),
                decided,
            );
            let seen = (ObjectKey::new("team", "made"), "uid".to_owned());
            store.take_in(Written::status::<Target>(seen, status.clone(), Some(2)));
            let shown = json!({
                "metadata": {"name": "made", "namespace": "team", "uid": "uid", "resourceVersion": "2", "generation": generation,
                    "creationTimestamp": "2026-11-27T12:00:00Z"},
                "spec": spec, "status": sealed(&seal_key(), "uid", &status),
            });
            let event = Event::Apply(serde_json::from_str(&shown.to_string()).unwrap());
            let change = store.handle_event::<Target>(&scope("targets"), event);
            assert_eq!(change != PipelineChange::Nothing, is_news, "{generation}");
            let known = &store.objects.targets[&ObjectKey::new("team", "made")];
            assert_eq!((known.version, known.generation), (2, generation));
        }
    }

    /// What a tenant changed before the hub wrote its status is shown for the first time with the hub's own write.
    #[test]
    fn an_event_of_the_version_that_the_hub_wrote_is_news_where_a_tenant_changed_the_object() {
        let forged = json!({"chartUrl": "oci://registry.test/forged:1"});
        let too_many: serde_json::Map<_, _> = (0..1_000).map(|n| (n.to_string(), json!(""))).collect();
        let too_many = Value::Object(too_many);
        for (version, pointer, value, is_news) in [
            ("2", "/metadata/name", json!("made"), false),
            ("2", "/status", forged.clone(), false),
            ("3", "/status", forged, true),
            ("2", "/metadata/labels", json!({"env": "prod"}), true),
            // Of too many labels the hub keeps none, as if there were none.
            ("2", "/metadata/labels", too_many, true),
            ("2", "/metadata/generation", json!(2), true),
            (
                "2",
                "/metadata/deletionTimestamp",
                json!("2026-11-28T12:00:00Z"),
                true,
            ),
            ("2", "/metadata/finalizers", json!(["another.io/one"]), true),
            ("2", "/metadata/uid", json!("other"), true),
            // It was shown before the hub wrote.
            ("1", "/metadata/labels", json!({"env": "prod"}), false),
        ] {
            let mut store = store();
            let spec = json!({"renderRegistryRef": {"name": "main"}});
            store.handle_event::<Target>(&scope("targets"), Event::Apply(watched(&spec)));
            let status: TargetStatus = serde_json::from_value(json!({"bootstrapVersion": 7})).unwrap();
            let seen = (ObjectKey::new("team", "made"), "uid".to_owned());
            store.take_in(Written::status::<Target>(seen, status.clone(), Some(2)));
            let mut shown = json!({
                "metadata": {"name": "made", "namespace": "team", "uid": "uid", "resourceVersion": version, "generation": 1,
                    "creationTimestamp": "2026-11-27T12:00:00Z"},
                "spec": spec, "status": sealed(&seal_key(), "uid", &status),
            });
            let (above, field) = pointer.rsplit_once('/').unwrap();
            shown.pointer_mut(above).unwrap()[field] = value;
            let event = Event::Apply(serde_json::from_str(&shown.to_string()).unwrap());
            let change = store.handle_event::<Target>(&scope("targets"), event);
            assert_eq!(change != PipelineChange::Nothing, is_news, "{version} {pointer}");
        }
    }

    /// What could not be decoded, or did not fit, is looked at again whenever it is shown.
    #[test]
    fn an_object_without_a_spec_is_decoded_though_its_version_is_known() {
        let mut store = store();
        let spec = json!({"renderRegistryRef": {"name": "main"}});
        let shown = |version: &str, labels: usize| {
            let labels: serde_json::Map<_, _> = (0..labels).map(|n| (n.to_string(), json!(""))).collect();
            let object = json!({
                "metadata": {"name": "made", "namespace": "team", "uid": "uid", "resourceVersion": version, "generation": 1,
                    "creationTimestamp": "2026-11-27T12:00:00Z", "labels": labels},
                "spec": spec,
            });
            Event::Apply(serde_json::from_str(&object.to_string()).unwrap())
        };
        store.handle_event::<Target>(&scope("targets"), shown("1", 1_000));
        // A tenant takes the labels off, and the hub writes the status before a watch shows that.
        let seen = (ObjectKey::new("team", "made"), "uid".to_owned());
        store.take_in(Written::status::<Target>(seen, TargetStatus::default(), Some(3)));
        for is_decoded in [false, true] {
            let known = &store.objects.targets[&ObjectKey::new("team", "made")];
            assert_eq!(known.spec.is_some(), is_decoded);
            store.handle_event::<Target>(&scope("targets"), shown("3", 0));
        }
    }

    #[test]
    fn a_task_that_is_made_concerns_the_targets_that_share_it_where_something_follows() {
        for (follow_up, is_concerned) in [(FollowUp::OnChange, false), (FollowUp::AtOnce, true)] {
            let (mut store, (_, written)) = (store(), task());
            let Written::Task(key, uid, task, _) = written else {
                unreachable!()
            };
            let spec = json!({"renderRegistryRef": {"name": "main"}});
            store.handle_event::<Target>(&scope("targets"), Event::Apply(watched(&spec)));
            let found = store.take_in(Written::Task(key, uid, task, follow_up));
            assert_eq!(!found.targets.is_empty(), is_concerned, "{follow_up:?}");
        }
    }

    #[test]
    fn a_status_is_known_whole_though_it_leaves_out_what_is_known() {
        let mut store = store();
        let release = json!({"uniqueName": "shop", "source": "Profile/all", "version": "1"});
        let written: TargetStatus = serde_json::from_value(json!({"releases": [release]})).unwrap();
        let mut object = json!({
            "metadata": {"name": "made", "namespace": "team", "uid": "uid", "resourceVersion": "1", "generation": 1},
            "spec": {"renderRegistryRef": {"name": "main"}},
        });
        object["status"] = serde_json::to_value(sealed(&seal_key(), "uid", &written)).unwrap();
        let event = Event::Apply(serde_json::from_str(&object.to_string()).unwrap());
        store.handle_event::<Target>(&scope("targets"), event);
        let mut whole = written;
        whole.fill_in("team");
        let known = store.objects.targets.get(&ObjectKey::new("team", "made"));
        assert_eq!(known.unwrap().status, whole);
    }

    /// A list may be older than what was made while it was under way.
    #[test]
    fn what_is_made_while_its_kind_is_listed_is_there_once_the_list_ends() {
        for namespace in [None, Some("team"), Some("other")] {
            let (mut store, (_, task), (_, _, version)) = (store(), task(), version());
            let scope = |plural| WatchScope {
                plural,
                namespace: namespace.map(Into::into),
            };
            store.handle_task_change(&scope(TASKS), WatchChange::Restart);
            store.handle_event::<HydratedTarget>(&scope("hydratedtargets"), Event::Init);
            store.take_in(task);
            store.take_in(version);
            store.handle_task_change(&scope(TASKS), WatchChange::Synced);
            store.handle_event::<HydratedTarget>(&scope("hydratedtargets"), Event::InitDone);
            let objects = &store.objects;
            assert_eq!((objects.tasks.len(), objects.hydrated_targets.len()), (1, 1));
        }
    }

    /// An event may be older than what a worker did.
    #[test]
    fn a_deletion_is_not_taken_back() {
        for (uid, is_deleting) in [("uid", true), ("other", false)] {
            let (mut store, (spec, task)) = (store(), task());
            let (key, _, version) = version();
            store.take_in(task);
            store.take_in(version);
            store.take_in(Written::TaskGone(key.clone()));
            store.take_in(Written::VersionGone(key.clone()));
            store.handle_task_change(&scope(TASKS), shown_task(uid, &spec));
            let (_, spec, _) = self::version();
            let shown = shown_version(uid, 2, ("bootstrap", "first version"), &spec);
            store.handle_event::<HydratedTarget>(&scope("hydratedtargets"), shown);
            assert_eq!(store.objects.tasks[&key].deleting, is_deleting, "{uid}");
            assert_eq!(
                store.objects.hydrated_targets[&key].deleting, is_deleting,
                "{uid}"
            );
        }
    }

    #[test]
    fn a_spec_that_was_shown_is_decoded_again_once_it_may_be_another() {
        let mut store = store();
        for (uid, generation, class, expected) in [
            ("uid", 1, "first", "first"),
            ("uid", 1, "unseen", "first"),
            ("uid", 2, "second", "second"),
            ("other", 2, "third", "third"),
        ] {
            let object = json!({
                "metadata": {"name": "made", "namespace": "team", "uid": uid, "generation": generation,
                    "creationTimestamp": "2026-11-27T12:00:00Z", "labels": {"class": class}},
                "spec": {"renderRegistryRef": {"name": "main"}, "rendererClassName": class},
            });
            let event = Event::Apply(serde_json::from_str(&object.to_string()).unwrap());
            store.handle_event::<Target>(&scope("targets"), event);
            let known = &store.objects.targets[&ObjectKey::new("team", "made")];
            let spec = known.spec.as_ref().unwrap();
            assert_eq!(spec.renderer_class_name.as_deref(), Some(expected));
            assert_eq!(known.labels["class"], class);
        }
    }

    #[test]
    fn the_same_holds_for_a_version() {
        for is_deleted in [true, false] {
            let (mut store, (_, spec, written)) = (store(), version());
            let scope = scope("hydratedtargets");
            store.handle_event::<HydratedTarget>(&scope, Event::Apply(watched(&spec)));
            if is_deleted {
                store.handle_event::<HydratedTarget>(&scope, Event::Delete(watched(&spec)));
            }
            store.take_in(written);
            assert_eq!(store.objects.hydrated_targets.is_empty(), is_deleted);
        }
    }
}
