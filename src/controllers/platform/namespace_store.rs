//! The store of the namespaces that the hub serves: name and UID, nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::ObjectMeta;

use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::relist::ShownKeys;

/// The namespaces that one watch covers: one, or all.
pub type NamespaceWatchScope = Option<Arc<str>>;

/// The namespaces that the hub serves.
pub struct NamespaceStore {
    /// The names that the hub serves; empty where it serves all.
    watched: BTreeSet<Arc<str>>,
    existing: NamespaceUids,
    shown: ShownKeys<NamespaceWatchScope, String>,
}

impl NamespaceStore {
    /// A store that has seen no namespace yet; with an empty list the hub serves all.
    pub fn new(watched: &[String]) -> Self {
        Self {
            watched: watched.iter().map(|name| name.as_str().into()).collect(),
            existing: BTreeMap::new(),
            shown: ShownKeys::default(),
        }
    }

    /// The scopes of the watches that together show every namespace that the hub serves.
    pub fn scopes(&self) -> impl Iterator<Item = NamespaceWatchScope> + use<> {
        let all = self.watched.is_empty().then_some(None);
        self.watched.clone().into_iter().map(Some).chain(all)
    }

    /// Whether the hub serves a namespace of this name.
    pub fn is_own(&self, name: &str) -> bool {
        self.watched.is_empty() || self.watched.contains(name)
    }

    /// UIDs of those that exist.
    pub const fn existing(&self) -> &NamespaceUids {
        &self.existing
    }

    /// Stores a namespace; returns its name if another namespace has it now, or none.
    ///
    /// One that is being deleted counts as gone at once: a namespace of the same name can exist, and have tasks, only after everything
    /// in this one was removed, so no other watch can show them earlier.
    pub fn put(&mut self, metadata: &ObjectMeta) -> Option<String> {
        let (name, uid) = (metadata.name.clone()?, metadata.uid.clone()?);
        if metadata.deletion_timestamp.is_some() {
            return self.remove(metadata);
        }
        let scope = self.watched.get(name.as_str()).cloned();
        self.shown.add(&scope, &name);
        let before = self.existing.insert(name.clone(), uid.clone());
        (before != Some(uid)).then_some(name)
    }

    /// Removes a namespace; returns its name if it was there.
    pub fn remove(&mut self, metadata: &ObjectMeta) -> Option<String> {
        let name = metadata.name.as_ref()?;
        self.existing.remove(name).map(|_| name.clone())
    }

    /// A list begins.
    pub fn begin_list(&mut self, scope: &NamespaceWatchScope) {
        self.shown.begin(scope.clone());
    }

    /// A list ended; returns the names that it did not show.
    pub fn end_list(&mut self, scope: &NamespaceWatchScope) -> Vec<String> {
        let is_covered = |name: &String| self.watched.get(name.as_str()) == scope.as_ref();
        self.shown.sweep(scope, &mut self.existing, is_covered)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(name: &str, uid: &str, is_going: bool) -> ObjectMeta {
        let mut metadata = json!({"name": name, "uid": uid, "labels": {"tier": uid}});
        if is_going {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(metadata).unwrap()
    }

    /// Holds: T8.
    #[test]
    fn a_namespace_that_is_being_deleted_is_gone_at_once() {
        let mut store = NamespaceStore::new(&[]);
        assert_eq!(store.put(&namespace("a", "1", false)).as_deref(), Some("a"));
        assert_eq!(
            store.put(&namespace("a", "1", false)),
            None,
            "a label means nothing"
        );
        assert_eq!(store.put(&namespace("a", "1", true)).as_deref(), Some("a"));
        assert_eq!(store.put(&namespace("a", "1", true)), None);
        assert!(store.existing().is_empty());
        assert_eq!(store.remove(&namespace("a", "1", true)), None);
        assert_eq!(store.put(&namespace("a", "2", false)).as_deref(), Some("a"));
        assert_eq!(store.existing()["a"], "2");
    }

    #[test]
    fn the_end_of_a_list_drops_what_it_did_not_show_and_only_of_its_scope() {
        let mut store = NamespaceStore::new(&["a".to_owned(), "b".to_owned()]);
        store.put(&namespace("a", "1", false));
        store.put(&namespace("b", "1", false));
        let a: NamespaceWatchScope = Some("a".into());
        store.begin_list(&a);
        assert_eq!(store.existing().len(), 2, "a list under way takes nothing away");
        assert_eq!(store.end_list(&a), ["a"]);
        assert_eq!(store.existing().keys().collect::<Vec<_>>(), ["b"]);

        let mut all = NamespaceStore::new(&[]);
        for name in ["a", "b"] {
            all.put(&namespace(name, "1", false));
        }
        all.begin_list(&None);
        all.put(&namespace("b", "2", false));
        assert_eq!(all.end_list(&None), ["a"]);
        assert_eq!(all.existing()["b"], "2");
    }

    #[test]
    fn a_hub_serves_the_namespaces_it_watches() {
        let some = NamespaceStore::new(&["a".to_owned()]);
        assert!(some.is_own("a") && !some.is_own("b"));
        assert_eq!(some.scopes().collect::<Vec<_>>(), [Some("a".into())]);
        let all = NamespaceStore::new(&[]);
        assert!(all.is_own("a"));
        assert_eq!(all.scopes().collect::<Vec<_>>(), [None]);
    }
}
