//! What workers wrote is in the store at once, without waiting for a watch.

use crate::api::labels::{PIPELINE_BOOTSTRAP, pipeline_labels};
use crate::api::pipeline::HydratedTargetSpec;
use crate::plan::pipeline::concerned::Concerned;
use crate::plan::pipeline::decide::NewTask;
use crate::plan::pipeline::names::PipelineSpec as _;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::task_state::PipelineTask;

use super::store::PipelineStore;
use super::writes::Written;

impl PipelineStore {
    /// Takes in what a worker wrote; whom it concerns besides those for whom it was written.
    pub fn take_in(&mut self, written: Written) -> Concerned {
        let objects = &mut self.objects;
        match written {
            Written::Task(key, uid, task) => return self.take_in_task(&key, uid, &task),
            Written::Version(_, made, _) if self.gone.has(&made.uid) => {}
            Written::Version(key, made, spec) => {
                let mut version = PipelineObject::made(made.uid, *spec);
                version.version = made.version;
                version.labels = pipeline_labels(PIPELINE_BOOTSTRAP);
                HydratedTargetSpec::complete(&mut version, &key.namespace, &mut self.parts);
                if !objects.hydrated_targets.contains_key(&key) {
                    objects.hydrated_targets.insert(key, version);
                }
            }
            Written::TargetFinalizers(key, finalizers, version) => {
                if let Some(mut target) = objects.targets.get_mut(&key) {
                    target.take_in(version, |target| target.finalizers = finalizers);
                }
            }
            Written::Status(put) => put(objects, &mut self.parts),
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
        let tasks = &mut self.objects.tasks;
        if !tasks.contains_key(key) && !self.gone.has(&uid) {
            tasks.insert(key.clone(), PipelineTask::made(uid, &task.spec, &task.spec_hash));
        }
        self.searched_task(key)
    }

    fn take_in_deletion(&mut self, key: &ObjectKey) -> Concerned {
        if let Some(mut task) = self.objects.tasks.get_mut(key) {
            task.deleting = true;
        }
        self.searched_task(key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::jiff::Timestamp;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::super::store::{PipelineChange, TASKS, WatchScope};
    use super::*;
    use crate::api::pipeline::{HydratedTarget, OmitsOwnNamespace as _, Target, TargetStatus};
    use crate::kubernetes::apply::CreatedObject;
    use crate::kubernetes::object::SlimObject;
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
        let metadata = json!({"name": "made", "namespace": "team", "uid": "uid", "resourceVersion": "1", "generation": 1});
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
        let written = Written::Task(ObjectKey::new("team", "made"), "uid".to_owned(), Arc::new(task));
        (spec, written)
    }

    fn version() -> (Value, Written) {
        let release = json!({
            "namespace": "team", "name": "shop", "source": {"kind": "Profile", "namespace": "team", "name": "all"},
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
        let written = Written::Version(ObjectKey::new("team", "made"), made, typed);
        (spec, written)
    }

    /// No watch shows it again, so the Target would wait for it for good.
    #[test]
    fn what_was_deleted_before_its_worker_ended_is_not_taken_in() {
        for is_deleted in [true, false] {
            let (mut store, (spec, written)) = (store(), task());
            store.handle_task_event(&scope(TASKS), Event::Apply(watched(&spec)));
            if is_deleted {
                store.handle_task_event(&scope(TASKS), Event::Delete(watched(&spec)));
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

    fn shown_task(uid: &str, generation: i64, spec: &Value) -> Event<SlimObject> {
        let metadata = json!({
            "name": "made", "namespace": "team", "uid": uid, "resourceVersion": "1", "generation": generation,
        });
        let object = json!({"metadata": metadata, "spec": spec});
        Event::Apply(serde_json::from_str(&object.to_string()).unwrap())
    }

    /// A task may not be what the hub wrote, where an admission webhook changed it, and a spec is decoded once for each generation.
    #[test]
    fn a_task_has_the_spec_that_a_watch_shows_first_of_its_generation() {
        let (mut store, (spec, written)) = (store(), task());
        store.take_in(written);
        let key = ObjectKey::new("team", "made");
        let (mut changed, mut again) = (spec.clone(), spec.clone());
        changed["tag"] = json!("2.0.0");
        again["tag"] = json!("3.0.0");
        for (uid, generation, spec, tag) in [
            ("uid", 1, &changed, "2.0.0"),
            ("uid", 1, &again, "2.0.0"),
            ("uid", 2, &again, "3.0.0"),
            ("other", 2, &changed, "2.0.0"),
        ] {
            store.handle_task_event(&scope(TASKS), shown_task(uid, generation, spec));
            let known = &store.objects.tasks[&key];
            assert_eq!(
                (known.chart.tag.as_str(), known.uid.as_str(), known.generation),
                (tag, uid, generation)
            );
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
            ));
            spec["tag"] = json!(tag);
            let change = store.handle_task_event(&scope(TASKS), shown_task("uid", 1, &spec));
            assert_eq!(change != PipelineChange::Nothing, is_news, "{tag}");
        }
    }

    #[test]
    fn a_version_that_the_hub_made_is_no_news_when_a_watch_shows_it() {
        for (label, is_news) in [("bootstrap", false), ("another", true)] {
            let (mut store, (spec, written)) = (store(), version());
            store.take_in(written);
            let made = &store.objects.hydrated_targets[&ObjectKey::new("team", "made")];
            assert_eq!(made.version, 1, "a status is written to this version");
            let labels =
                json!({"app.kubernetes.io/managed-by": "renderhub", "renderhub.dev/pipeline": label});
            let metadata = json!({
                "name": "made", "namespace": "team", "uid": "uid", "resourceVersion": "1", "generation": 1, "labels": labels,
            });
            // As it was written.
            let whole: HydratedTargetSpec = serde_json::from_value(spec).unwrap();
            let mut written = whole.clone();
            written.leave_out("team");
            let shown = json!({"metadata": metadata, "spec": written}).to_string();
            let event = Event::Apply(serde_json::from_str(&shown).unwrap());
            let change = store.handle_event::<HydratedTarget>(&scope("hydratedtargets"), event);
            assert_eq!(change != PipelineChange::Nothing, is_news, "{label}");
            let known = store
                .objects
                .hydrated_targets
                .get(&ObjectKey::new("team", "made"));
            assert_eq!(known.unwrap().spec.as_ref(), Some(&whole));
        }
    }

    #[test]
    fn a_status_is_known_whole_though_it_leaves_out_namespaces() {
        let mut store = store();
        let release = json!({
            "uniqueName": "shop", "name": "shop", "source": {"kind": "Profile", "name": "all"}, "version": "1",
        });
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

    #[test]
    fn the_same_holds_for_a_version() {
        for is_deleted in [true, false] {
            let (mut store, (spec, written)) = (store(), version());
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
