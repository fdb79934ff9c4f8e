//! The objects of the pipeline as watched, and what follows from each event.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use kube::Resource as _;
use kube::runtime::watcher::Event;

use crate::api::ReferenceGrantSpec;
use crate::api::pipeline::HydratedTarget;
use crate::kubernetes::object::LabelledObject;
use crate::kubernetes::watch::{PipelineTaskChange, WatchChange};
use crate::plan::pipeline::concerned::{ConcernSearch, Concerned};
use crate::plan::pipeline::object::{ObjectDifference, ObjectKey};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::shared_parts::SharedParts;
use crate::plan::pipeline::task_state::PipelineTask;
use crate::plan::relist::ShownKeys;
use crate::plan::task::status_seal::SealKey;

use super::kind::{KeptObject, PipelineKind};
use super::overfull::OverfullNamespaces;
use super::recent_deletions::RecentDeletions;

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
    /// Nothing that a decision rests on, or a list that has not ended.
    Nothing,
    /// Something in this namespace, and whom it concerns.
    Concerned(String, Box<Concerned>),
    /// A list ended.
    Listed,
}

/// The objects, and what the lists under way have shown of them.
pub(super) struct PipelineStore {
    pub(super) seal_key: Arc<SealKey>,
    rules: ReferenceRules,
    pub objects: PipelineObjects,
    pub parts: SharedParts,
    pub(super) shown: ShownKeys<WatchScope, ObjectKey>,
    /// Watches whose current list has not ended.
    pub unlisted: HashSet<WatchScope>,
    /// Those of them, each of one namespace, that the API server refuses.
    refused: HashSet<WatchScope>,
    pub overfull: OverfullNamespaces,
    pub gone: RecentDeletions,
}

impl PipelineStore {
    /// An empty one, which takes statuses with the seal of this key, of objects among which these rules hold.
    pub fn new(seal_key: Arc<SealKey>, rules: ReferenceRules) -> Self {
        Self {
            seal_key,
            rules,
            objects: PipelineObjects::default(),
            parts: SharedParts::default(),
            shown: ShownKeys::default(),
            unlisted: HashSet::new(),
            refused: HashSet::new(),
            overfull: OverfullNamespaces::default(),
            gone: RecentDeletions::default(),
        }
    }

    /// Whether everything has been listed, but for namespaces that the hub may not read.
    pub fn is_listed(&self) -> bool {
        self.unlisted.iter().all(|scope| self.refused.contains(scope))
    }

    /// The namespaces that the hub may not read, or not all of.
    pub fn unread(&self) -> BTreeSet<String> {
        let namespaces = self.refused.iter().filter_map(|scope| scope.namespace.as_deref());
        namespaces.map(str::to_owned).collect()
    }

    /// Takes in that a watch is refused. One of a namespace, whose rights went with the namespace it was, keeps no other waiting.
    pub fn handle_refusal(&mut self, scope: &WatchScope) -> PipelineChange {
        let is_waited_for = scope.namespace.is_some() && self.unlisted.contains(scope);
        if !is_waited_for || !self.refused.insert(scope.clone()) {
            return PipelineChange::Nothing;
        }
        tracing::warn!(
            namespace = scope.namespace.as_deref(),
            kind = scope.plural,
            "the hub has no rights on these objects of the pipeline; nothing that rests on the namespace is decided, and the others are served"
        );
        PipelineChange::Listed
    }

    /// Whether not every object of a namespace is kept.
    pub fn is_overfull(&self, namespace: &str) -> bool {
        self.overfull.is_overfull(namespace, &self.objects)
    }

    /// A list of a scope has ended.
    fn listed(&mut self, scope: &WatchScope) {
        self.unlisted.remove(scope);
        self.refused.remove(scope);
    }

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
                let known = K::map_mut(&mut self.objects);
                let before = known.len();
                known.retain(|key, _| !is_gone(key));
                if known.len() < before {
                    self.overfull.shrink_all();
                }
                PipelineChange::Listed
            }
            Event::Apply(object) | Event::InitApply(object) => self.handle_object::<K>(scope, object),
            Event::Delete(object) => {
                let meta = object.meta();
                let Some(key) = key_of(meta.namespace.as_deref(), meta.name.as_deref()) else {
                    return PipelineChange::Nothing;
                };
                if K::PLURAL == HydratedTarget::PLURAL {
                    self.gone.add(meta.uid.as_deref());
                }
                self.overfull.shrink(&key.namespace);
                self.drop_object::<K>(&key)
            }
        }
    }

    fn handle_object<K: PipelineKind>(
        &mut self,
        scope: &WatchScope,
        object: LabelledObject,
    ) -> PipelineChange {
        let object = if K::IS_SELECTED {
            object
        } else {
            object.without_labels()
        };
        let meta = object.meta();
        let Some(key) = key_of(meta.namespace.as_deref(), meta.name.as_deref()) else {
            return PipelineChange::Nothing;
        };
        self.shown.add(scope, &key);
        let known = K::map(&self.objects).get(&key);
        if known.is_some_and(|known| object.is_known(known)) {
            return PipelineChange::Nothing;
        }
        self.see_object::<K>(key, object)
    }

    fn see_object<K: PipelineKind>(&mut self, key: ObjectKey, object: LabelledObject) -> PipelineChange {
        let Some(mut object) = self.seen_object::<K>(&key, object) else {
            return PipelineChange::Nothing;
        };
        let known = K::map(&self.objects).get(&key);
        // A status that the hub wrote, and took in before the watch showed it, changes nothing.
        if known.is_some_and(|known| object.difference(known) == ObjectDifference::None) {
            K::map_mut(&mut self.objects).show(&key, &object);
            return PipelineChange::Nothing;
        }
        if !self.overfull.admit::<K>(&self.objects, &key, &mut object) {
            return self.drop_object::<K>(&key);
        }
        let known = K::map(&self.objects).get(&key);
        let difference = known.map_or(ObjectDifference::Content, |known| object.difference(known));
        let mut found = Concerned::default();
        if difference == ObjectDifference::Content {
            found = self.searched::<K>(&key);
            warn_undecodable::<K>(&key, &object);
        } else if difference == ObjectDifference::Status {
            K::search_status(&key, &object, &mut found);
        }
        K::map_mut(&mut self.objects).insert(key.clone(), object);
        if difference == ObjectDifference::Content {
            self.search::<K>(&key, &mut found);
        }
        self.change(key.namespace, found)
    }

    /// Takes an object out that does not fit: its namespace is not known any more.
    fn drop_object<K: PipelineKind>(&mut self, key: &ObjectKey) -> PipelineChange {
        let found = self.searched::<K>(key);
        K::map_mut(&mut self.objects).remove(key);
        self.change(key.namespace.clone(), found)
    }

    /// Whom the object of a key concerns as it is.
    fn searched<K: PipelineKind>(&self, key: &ObjectKey) -> Concerned {
        let mut found = Concerned::default();
        self.search::<K>(key, &mut found);
        found
    }

    fn search<K: PipelineKind>(&self, key: &ObjectKey, found: &mut Concerned) {
        if let Some(object) = K::map(&self.objects).get(key).filter(|_| self.is_listed()) {
            K::search(key, object, &mut self.search_into(found));
        }
    }

    fn search_into<'s>(&'s self, found: &'s mut Concerned) -> ConcernSearch<'s> {
        ConcernSearch::new(&self.objects, &self.rules, found)
    }

    /// Until every watch has listed it is not asked whom a change concerns: once they have, everything is looked at.
    fn change(&self, namespace: String, found: Concerned) -> PipelineChange {
        if self.is_listed() && found != Concerned::default() {
            PipelineChange::Concerned(namespace, Box::new(found))
        } else {
            PipelineChange::Nothing
        }
    }

    /// Handles what the watch of tasks shows of those that the pipeline made.
    pub fn handle_task_change(&mut self, scope: &WatchScope, change: PipelineTaskChange) -> PipelineChange {
        match change {
            WatchChange::Restart => self.begin_list(scope),
            WatchChange::Synced => {
                let is_gone = self.end_list(scope);
                self.objects.tasks.retain(|key, _| !is_gone(key));
                PipelineChange::Listed
            }
            WatchChange::Seen((key, task)) => self.see_task(scope, key, task),
            WatchChange::Gone((key, uid)) => {
                self.gone.add(Some(uid.as_str()));
                let found = self.searched_task(&key);
                self.objects.tasks.remove(&key);
                self.change(key.namespace, found)
            }
        }
    }

    fn see_task(&mut self, scope: &WatchScope, key: ObjectKey, mut seen: PipelineTask) -> PipelineChange {
        self.shown.add(scope, &key);
        let known = self.objects.tasks.get(&key);
        // The event may be older than the deletion, which is never taken back.
        seen.deleting |= known.is_some_and(|known| known.uid == seen.uid && known.deleting);
        if known == Some(&seen) {
            return PipelineChange::Nothing;
        }
        let is_pushed = known.is_some_and(|known| seen.is_pushed_since(known));
        // Of the same owner it concerns whom it concerned.
        let had_another = known.is_some_and(|known| known.owner != seen.owner);
        let mut found = if had_another {
            self.searched_task(&key)
        } else {
            Concerned::default()
        };
        found.pushed = is_pushed.then(|| key.clone());
        self.objects.tasks.insert(key.clone(), seen);
        self.search_task(&key, &mut found);
        self.change(key.namespace, found)
    }

    /// Whom the task of a key concerns as it is.
    pub fn searched_task(&self, key: &ObjectKey) -> Concerned {
        let mut found = Concerned::default();
        self.search_task(key, &mut found);
        found
    }

    fn search_task(&self, key: &ObjectKey, found: &mut Concerned) {
        if let Some(task) = self.objects.tasks.get(key).filter(|_| self.is_listed()) {
            self.search_into(found).task(key, task);
        }
    }

    /// Handles an event of a grant.
    pub fn handle_grant_event(&mut self, scope: &WatchScope, event: Event<LabelledObject>) -> PipelineChange {
        let (object, is_gone) = match event {
            Event::Init => {
                self.objects.grants.begin_list(scope.namespace.clone());
                self.unlisted.insert(scope.clone());
                return PipelineChange::Nothing;
            }
            Event::InitDone => {
                self.objects.grants.end_list(&scope.namespace);
                self.listed(scope);
                return PipelineChange::Listed;
            }
            Event::Apply(object) | Event::InitApply(object) => (object, false),
            Event::Delete(object) => (object, true),
        };
        let Some((key, object)) = object.into_object::<ReferenceGrantSpec, ()>() else {
            return PipelineChange::Nothing;
        };
        let mut found = Concerned::default();
        self.search_grant(&key.namespace, &object.uid, &mut found);
        let spec = object.spec.filter(|_| !is_gone);
        let grants = &mut self.objects.grants;
        grants.put(&scope.namespace, &key.namespace, &object.uid, spec);
        self.search_grant(&key.namespace, &object.uid, &mut found);
        self.change(key.namespace, found)
    }

    fn search_grant(&self, namespace: &str, uid: &str, found: &mut Concerned) {
        let grant = self.objects.grants.get(namespace, uid);
        if let Some(grant) = grant.filter(|_| self.is_listed()) {
            self.search_into(found).grant(namespace, grant);
        }
    }

    fn begin_list(&mut self, scope: &WatchScope) -> PipelineChange {
        self.shown.begin(scope.clone());
        self.overfull.begin_list(scope.plural, scope.namespace.as_deref());
        self.unlisted.insert(scope.clone());
        PipelineChange::Nothing
    }

    /// Which objects are gone, because the list of their scope did not show them.
    fn end_list(&mut self, scope: &WatchScope) -> impl Fn(&ObjectKey) -> bool + use<> {
        self.listed(scope);
        let (is_gone, own) = (self.shown.finish(scope), scope.namespace.clone());
        move |key| own.as_deref().is_none_or(|own| own == key.namespace) && is_gone(key)
    }
}

pub(super) fn key_of(namespace: Option<&str>, name: Option<&str>) -> Option<ObjectKey> {
    Some(ObjectKey::new(namespace?, name?))
}

fn warn_undecodable<K: PipelineKind>(key: &ObjectKey, object: &KeptObject<K>) {
    if object.spec.is_none() {
        tracing::warn!(
            kind = K::PLURAL,
            namespace = key.namespace,
            name = key.name,
            "the spec of this object cannot be decoded, or it has too many labels; what rests on it stays as it is until it is corrected"
        );
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::plan::task::status_seal::KEY_BYTES;

    fn scope(plural: &'static str, namespace: Option<&str>) -> WatchScope {
        WatchScope {
            plural,
            namespace: namespace.map(Arc::from),
        }
    }

    /// A store that waits for these watches.
    fn waiting(scopes: &[&WatchScope]) -> PipelineStore {
        PipelineStore {
            unlisted: scopes.iter().map(|scope| (*scope).clone()).collect(),
            ..PipelineStore::new(
                Arc::new(SealKey::new([0; KEY_BYTES], Timestamp::UNIX_EPOCH)),
                ReferenceRules::default(),
            )
        }
    }

    fn list(store: &mut PipelineStore, scope: &WatchScope) -> PipelineChange {
        store.handle_grant_event(scope, Event::Init);
        store.handle_grant_event(scope, Event::InitDone)
    }

    #[test]
    fn a_namespace_that_is_refused_keeps_no_other_waiting_and_is_known_as_such() {
        let (one, other) = (scope(GRANTS, Some("a")), scope(GRANTS, Some("b")));
        let mut store = waiting(&[&one, &other]);
        assert_eq!(list(&mut store, &one), PipelineChange::Listed);
        assert!(!store.is_listed());
        assert_eq!(store.handle_refusal(&other), PipelineChange::Listed);
        assert!(store.is_listed());
        assert_eq!(store.unread(), BTreeSet::from(["b".to_owned()]));
        // A list that is begun once more and refused once more is no news.
        store.handle_grant_event(&other, Event::Init);
        assert_eq!(store.handle_refusal(&other), PipelineChange::Nothing);
        assert!(store.is_listed());
        assert_eq!(list(&mut store, &other), PipelineChange::Listed);
        assert!(store.is_listed() && store.unread().is_empty());
        // A watch that has listed knows its objects, whatever becomes of it.
        assert_eq!(store.handle_refusal(&other), PipelineChange::Nothing);
        assert!(store.unread().is_empty());
    }

    /// Without a grant's list, nothing is granted and nothing is denied.
    #[test]
    fn while_the_watch_of_all_grants_is_refused_nothing_is_decided() {
        let all = scope(GRANTS, None);
        let mut store = waiting(&[&all]);
        assert_eq!(store.handle_refusal(&all), PipelineChange::Nothing);
        assert!(!store.is_listed());
        list(&mut store, &all);
        assert!(store.is_listed());
    }
}
