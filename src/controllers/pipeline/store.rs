//! The objects of the pipeline as watched, and what follows from each event.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kube::Resource as _;
use kube::runtime::watcher::Event;

use crate::api::ReferenceGrantSpec;
use crate::api::names::TaskKind;
use crate::kubernetes::object::{LabelledObject, SlimObject};
use crate::plan::pipeline::object::{ObjectKey, ObjectMap, PipelineObject};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::task_state::PipelineTask;
use crate::plan::relist::{RelistMark, Relists};
use crate::plan::task::status_seal::SealKey;

use super::kinds::PipelineKind;
use super::work::Written;

/// Plural under which the watch of tasks is known.
pub(super) const TASKS: &str = "rendertasks";
/// Plural under which the watch of grants is known.
pub(super) const GRANTS: &str = "referencegrants";

/// What one watch covers: a kind, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WatchScope {
    pub plural: &'static str,
    pub namespace: Option<Arc<str>>,
}

/// What an event changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PipelineChange {
    /// Nothing that a decision rests on.
    Nothing,
    /// Something of one Target.
    Target(ObjectKey),
    /// Something that several Targets may rest on, in this namespace.
    Namespace(String),
    /// A list ended.
    Listed,
}

/// The objects, and the list that showed each of them last.
#[derive(Default)]
pub(super) struct PipelineStore {
    pub objects: PipelineObjects,
    lists: Relists<WatchScope>,
    marks: BTreeMap<(&'static str, ObjectKey), RelistMark>,
    /// Watches whose current list has not ended.
    pub unlisted: HashSet<WatchScope>,
}

impl PipelineStore {
    /// Handles an event of a kind.
    pub fn handle_event<K: PipelineKind>(
        &mut self,
        scope: &WatchScope,
        event: Event<LabelledObject>,
    ) -> PipelineChange {
        match event {
            Event::Init => self.begin_list(scope),
            Event::InitDone => {
                let is_gone = self.end_list(scope);
                K::map(&mut self.objects).retain(|key, _| !is_gone(key));
                PipelineChange::Listed
            }
            Event::Apply(object) | Event::InitApply(object) => {
                let Some((key, object)) = object.into_object() else {
                    return PipelineChange::Nothing;
                };
                self.mark(scope, &key);
                let known = K::map(&mut self.objects);
                if known
                    .get(&key)
                    .is_some_and(|known| known.uid == object.uid && known.version > object.version)
                {
                    return PipelineChange::Nothing;
                }
                let target = K::target(&key, object.spec.as_ref());
                warn_undecodable::<K>(&key, &object);
                K::map(&mut self.objects).insert(key.clone(), object);
                target.map_or(PipelineChange::Namespace(key.namespace), PipelineChange::Target)
            }
            Event::Delete(object) => {
                let meta = object.meta();
                let Some(key) = key_of(meta.namespace.as_deref(), meta.name.as_deref()) else {
                    return PipelineChange::Nothing;
                };
                self.marks.remove(&(scope.plural, key.clone()));
                let gone = K::map(&mut self.objects).remove(&key);
                let target = gone.and_then(|gone| K::target(&key, gone.spec.as_ref()));
                target.map_or(PipelineChange::Namespace(key.namespace), PipelineChange::Target)
            }
        }
    }

    /// Handles an event of a task that the pipeline made.
    pub fn handle_task_event(
        &mut self,
        scope: &WatchScope,
        event: Event<SlimObject>,
        key: &SealKey,
    ) -> PipelineChange {
        match event {
            Event::Init => self.begin_list(scope),
            Event::InitDone => {
                let is_gone = self.end_list(scope);
                self.objects.tasks.retain(|key, _| !is_gone(key));
                PipelineChange::Listed
            }
            Event::Apply(object) | Event::InitApply(object) => {
                let Some(task) = object.into_task(TaskKind::RenderTask) else {
                    return PipelineChange::Nothing;
                };
                let place = ObjectKey::new(&task.id.namespace, &task.id.name);
                let seen = PipelineTask::of(&task, key.is_genuine(&task, None));
                self.mark(scope, &place);
                if self.objects.tasks.get(&place) == Some(&seen) {
                    return PipelineChange::Nothing;
                }
                let change = owner_change(&place, &seen);
                self.objects.tasks.insert(place, seen);
                change
            }
            Event::Delete(object) => {
                let meta = object.meta();
                let Some(place) = key_of(meta.namespace.as_deref(), meta.name.as_deref()) else {
                    return PipelineChange::Nothing;
                };
                self.marks.remove(&(scope.plural, place.clone()));
                let gone = self.objects.tasks.remove(&place);
                gone.map_or(PipelineChange::Nothing, |gone| owner_change(&place, &gone))
            }
        }
    }

    /// Handles an event of a grant.
    pub fn handle_grant_event(&mut self, scope: &WatchScope, event: Event<LabelledObject>) -> PipelineChange {
        let grants = &mut self.objects.grants;
        match event {
            Event::Init => {
                grants.begin_list(scope.namespace.clone());
                self.unlisted.insert(scope.clone());
                PipelineChange::Nothing
            }
            Event::InitDone => {
                grants.end_list(&scope.namespace);
                self.unlisted.remove(scope);
                PipelineChange::Listed
            }
            Event::Apply(object) | Event::InitApply(object) => {
                let Some((key, object)) = object.into_object::<ReferenceGrantSpec, ()>() else {
                    return PipelineChange::Nothing;
                };
                grants.put(&scope.namespace, &key.namespace, &object.uid, object.spec);
                PipelineChange::Namespace(key.namespace)
            }
            Event::Delete(object) => {
                let Some((key, object)) = object.into_object::<ReferenceGrantSpec, ()>() else {
                    return PipelineChange::Nothing;
                };
                grants.remove(&key.namespace, &object.uid);
                PipelineChange::Namespace(key.namespace)
            }
        }
    }

    /// Takes in what a worker wrote.
    pub fn take_in(&mut self, written: Written) {
        let objects = &mut self.objects;
        match written {
            Written::Task(key, uid, task) => {
                let task = PipelineTask::made(uid, &task.spec);
                objects.tasks.entry(key).or_insert(task);
            }
            Written::Version(key, uid, spec) => {
                let version = PipelineObject::made(uid, *spec);
                objects.hydrated_targets.entry(key).or_insert(version);
            }
            Written::TargetStatus(key, status, version) => {
                put_status(&mut objects.targets, &key, *status, version);
            }
            Written::VersionStatus(key, status, version) => {
                put_status(&mut objects.hydrated_targets, &key, *status, version);
            }
            // They go when a watch shows it: a finalizer may keep them, and their name, for a while.
            Written::TaskGone(key) => {
                if let Some(task) = objects.tasks.get_mut(&key) {
                    task.deleting = true;
                }
            }
            Written::VersionGone(key) => {
                if let Some(version) = objects.hydrated_targets.get_mut(&key) {
                    version.deleting = true;
                }
            }
            Written::NamespaceStatus(write, version) => write.take_in(objects, version),
        }
    }

    fn begin_list(&mut self, scope: &WatchScope) -> PipelineChange {
        self.lists.begin(scope.clone());
        self.unlisted.insert(scope.clone());
        PipelineChange::Nothing
    }

    /// Which objects are gone, because the list of their scope did not show them.
    fn end_list(&mut self, scope: &WatchScope) -> impl Fn(&ObjectKey) -> bool + use<> {
        self.unlisted.remove(scope);
        let mark = self.lists.mark(scope);
        let (plural, own) = (scope.plural, scope.namespace.clone());
        self.marks.retain(|(kind, key), listed| {
            let is_covered = own.as_deref().is_none_or(|own| own == key.namespace);
            *kind != plural || !is_covered || *listed == mark
        });
        let shown = self.marks.keys().filter(|(kind, _)| *kind == plural);
        let shown: HashSet<ObjectKey> = shown.map(|(_, key)| key.clone()).collect();
        move |key| own.as_deref().is_none_or(|own| own == key.namespace) && !shown.contains(key)
    }

    fn mark(&mut self, scope: &WatchScope, key: &ObjectKey) {
        let mark = self.lists.mark(scope);
        self.marks.insert((scope.plural, key.clone()), mark);
    }
}

fn put_status<S, T>(map: &mut ObjectMap<S, T>, key: &ObjectKey, status: T, version: Option<u64>) {
    if let Some(object) = map.get_mut(key) {
        object.status = status;
        object.version = version.unwrap_or(object.version);
    }
}

fn key_of(namespace: Option<&str>, name: Option<&str>) -> Option<ObjectKey> {
    Some(ObjectKey::new(namespace?, name?))
}

fn warn_undecodable<K: PipelineKind>(key: &ObjectKey, object: &PipelineObject<K::Spec, K::Status>) {
    if object.spec.is_none() {
        tracing::warn!(
            kind = K::PLURAL,
            namespace = key.namespace,
            name = key.name,
            "the spec of this object cannot be decoded; what rests on it stays as it is until it is corrected"
        );
    }
}

/// Whom a task concerns: its Target, or every Target of the namespace that may share it.
fn owner_change(place: &ObjectKey, task: &PipelineTask) -> PipelineChange {
    match &task.owner {
        Some(owner) if owner.kind == "Target" => {
            PipelineChange::Target(ObjectKey::new(&place.namespace, &owner.name))
        }
        _ => PipelineChange::Namespace(place.namespace.clone()),
    }
}
