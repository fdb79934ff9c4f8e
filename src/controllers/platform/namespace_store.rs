//! The namespaces a hub answers for, as they are now: name and UID, nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::ObjectMeta;

use crate::plan::platform::namespaces::NamespaceUids;

/// What one watch covers: one namespace, or all.
pub type NamespaceWatchScope = Option<Arc<str>>;

/// The namespaces a hub answers for.
pub struct NamespaceStore {
    /// The only names that count; empty where all do.
    watched: BTreeSet<Arc<str>>,
    existing: NamespaceUids,
    /// Names that the lists under way showed.
    shown: BTreeSet<String>,
}

impl NamespaceStore {
    /// No namespace seen yet, of those that are watched; of all where the list is empty.
    pub fn new(watched: &[String]) -> Self {
        Self {
            watched: watched.iter().map(|name| name.as_str().into()).collect(),
            existing: BTreeMap::new(),
            shown: BTreeSet::new(),
        }
    }

    /// The watches that show everything there is to see.
    pub fn parts(&self) -> impl Iterator<Item = NamespaceWatchScope> + use<> {
        let all = self.watched.is_empty().then_some(None);
        self.watched.clone().into_iter().map(Some).chain(all)
    }

    /// Whether the hub answers for a namespace of this name.
    pub fn is_own(&self, name: &str) -> bool {
        self.watched.is_empty() || self.watched.contains(name)
    }

    /// UIDs of those that exist.
    pub const fn existing(&self) -> &NamespaceUids {
        &self.existing
    }

    /// Takes a namespace in; its name, if another namespace has it now or none has.
    ///
    /// One that is being deleted counts as gone at once. Its successor and the successor's tasks come only after everything
    /// in it was removed, so they cannot overtake this watch by being seen on another a moment earlier.
    pub fn put(&mut self, metadata: &ObjectMeta) -> Option<String> {
        let (name, uid) = (metadata.name.clone()?, metadata.uid.clone()?);
        if metadata.deletion_timestamp.is_some() {
            return self.drop(metadata);
        }
        self.shown.insert(name.clone());
        let before = self.existing.insert(name.clone(), uid.clone());
        (before != Some(uid)).then_some(name)
    }

    /// Takes a namespace away; its name, if it was there.
    pub fn drop(&mut self, metadata: &ObjectMeta) -> Option<String> {
        let name = metadata.name.as_ref()?;
        self.existing.remove(name).map(|_| name.clone())
    }

    /// A list begins.
    pub fn begin(&mut self, part: &NamespaceWatchScope) {
        self.shown.retain(|name| !covers(part, name));
    }

    /// A list has ended; the names it no longer showed.
    pub fn end(&mut self, part: &NamespaceWatchScope) -> Vec<String> {
        let is_gone = |name: &&String| covers(part, name) && !self.shown.contains(*name);
        let gone: Vec<String> = self.existing.keys().filter(is_gone).cloned().collect();
        self.existing.retain(|name, _| !gone.contains(name));
        self.shown.retain(|name| !covers(part, name));
        gone
    }
}

fn covers(part: &NamespaceWatchScope, name: &str) -> bool {
    part.as_deref().is_none_or(|own| own == name)
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
        let mut land = NamespaceStore::new(&[]);
        assert_eq!(land.put(&namespace("a", "1", false)).as_deref(), Some("a"));
        assert_eq!(
            land.put(&namespace("a", "1", false)),
            None,
            "a label means nothing"
        );
        assert_eq!(land.put(&namespace("a", "1", true)).as_deref(), Some("a"));
        assert_eq!(land.put(&namespace("a", "1", true)), None);
        assert!(land.existing().is_empty());
        assert_eq!(land.drop(&namespace("a", "1", true)), None);
        assert_eq!(land.put(&namespace("a", "2", false)).as_deref(), Some("a"));
        assert_eq!(land.existing()["a"], "2");
    }

    #[test]
    fn the_end_of_a_list_drops_what_it_did_not_show_and_only_of_its_part() {
        let mut land = NamespaceStore::new(&["a".to_owned(), "b".to_owned()]);
        land.put(&namespace("a", "1", false));
        land.put(&namespace("b", "1", false));
        let a: NamespaceWatchScope = Some("a".into());
        land.begin(&a);
        assert_eq!(land.existing().len(), 2, "a list under way takes nothing away");
        assert_eq!(land.end(&a), ["a"]);
        assert_eq!(land.existing().keys().collect::<Vec<_>>(), ["b"]);

        let mut all = NamespaceStore::new(&[]);
        for name in ["a", "b"] {
            all.put(&namespace(name, "1", false));
        }
        all.begin(&None);
        all.put(&namespace("b", "2", false));
        assert_eq!(all.end(&None), ["a"]);
        assert_eq!(all.existing()["b"], "2");
    }

    #[test]
    fn a_hub_answers_for_the_namespaces_it_watches() {
        let some = NamespaceStore::new(&["a".to_owned()]);
        assert!(some.is_own("a") && !some.is_own("b"));
        assert_eq!(some.parts().collect::<Vec<_>>(), [Some("a".into())]);
        let all = NamespaceStore::new(&[]);
        assert!(all.is_own("a"));
        assert_eq!(all.parts().collect::<Vec<_>>(), [None]);
    }
}
