//! Which references between namespaces their targets allow.

#![warn(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::labels::GROUP;
use crate::api::{GrantFrom, GrantTo, ReferenceGrantSpec};
use crate::plan::relist::ShownKeys;

/// The namespaces that one watch of grants covers: one, or all.
pub type GrantScope = Option<Arc<str>>;

/// Every `ReferenceGrant` the hub can see, by namespace and UID.
#[derive(Clone, Debug, Default)]
pub struct ReferenceGrantIndex {
    namespaces: BTreeMap<String, BTreeMap<String, ReferenceGrantSpec>>,
    /// The namespaces with grants for a kind of another namespace, each with how many there are.
    granting: BTreeMap<(String, String), BTreeMap<String, usize>>,
    /// UIDs of the grants.
    shown: ShownKeys<GrantScope, String>,
}

impl ReferenceGrantIndex {
    /// Stores a grant; one that cannot be decoded allows nothing.
    pub fn put(&mut self, scope: &GrantScope, namespace: &str, uid: &str, spec: Option<ReferenceGrantSpec>) {
        self.remove(namespace, uid);
        let Some(spec) = spec else { return };
        self.shown.add(scope, uid);
        for from in &spec.from {
            let granting = self.granting.entry((from.kind.clone(), from.namespace.clone()));
            *granting.or_default().entry(namespace.to_owned()).or_default() += 1;
        }
        let grants = self.namespaces.entry(namespace.to_owned()).or_default();
        grants.insert(uid.to_owned(), spec);
    }

    /// Removes a grant.
    pub fn remove(&mut self, namespace: &str, uid: &str) {
        let Some(grants) = self.namespaces.get_mut(namespace) else {
            return;
        };
        let gone = grants.remove(uid);
        if grants.is_empty() {
            self.namespaces.remove(namespace);
        }
        for from in gone.iter().flat_map(|spec| &spec.from) {
            let key = (from.kind.clone(), from.namespace.clone());
            let Some(granting) = self.granting.get_mut(&key) else {
                continue;
            };
            if let Some(count) = granting.get_mut(namespace) {
                *count -= 1;
                if *count == 0 {
                    granting.remove(namespace);
                }
            }
            if granting.is_empty() {
                self.granting.remove(&key);
            }
        }
    }

    /// A grant.
    #[must_use]
    pub fn get(&self, namespace: &str, uid: &str) -> Option<&ReferenceGrantSpec> {
        self.namespaces.get(namespace)?.get(uid)
    }

    /// The namespaces with a grant for objects of a kind and a namespace, whatever it is that they may refer to.
    pub fn granting(&self, from_kind: &str, from: &str) -> impl Iterator<Item = &str> {
        let granting = self.granting.get(&(from_kind.to_owned(), from.to_owned()));
        granting.into_iter().flat_map(BTreeMap::keys).map(String::as_str)
    }

    /// A list of a scope begins.
    pub fn begin_list(&mut self, scope: GrantScope) {
        self.shown.begin(scope);
    }

    /// The list of a scope ended: removes the grants that it did not show, and returns their namespaces.
    pub fn end_list(&mut self, scope: &GrantScope) -> Vec<String> {
        let is_gone = self.shown.finish(scope);
        let is_covered = |namespace: &str| scope.as_deref().is_none_or(|scope| scope == namespace);
        let mut lost: Vec<(String, String)> = Vec::new();
        for (namespace, grants) in &self.namespaces {
            let gone = grants.keys().filter(|uid| is_covered(namespace) && is_gone(uid));
            lost.extend(gone.map(|uid| (namespace.clone(), uid.clone())));
        }
        for (namespace, uid) in &lost {
            self.remove(namespace, uid);
        }
        let mut namespaces: Vec<String> = lost.into_iter().map(|(namespace, _)| namespace).collect();
        namespaces.dedup();
        namespaces
    }

    /// Whether objects of renderhub's, by kind and namespace, may refer to the object of a group, kind and name in namespace `to`, or
    /// to any of the kind where it has no name.
    #[must_use]
    pub fn admits(&self, from: (&str, &str), to: &str, object: (&str, &str, Option<&str>)) -> bool {
        let mut all = self.of(to, object).flat_map(|grant| &grant.from);
        all.any(|f| is_from(f, from.0) && f.namespace == from.1)
    }

    /// The namespaces of which objects of renderhub's of a kind may refer to the object of a group, kind and name in namespace
    /// `to`, each as often as a grant names it.
    pub fn admitted<'g>(
        &'g self,
        from_kind: &str,
        to: &str,
        (group, kind, name): (&str, &str, &str),
    ) -> impl Iterator<Item = &'g str> {
        let grants = self.of(to, (group, kind, Some(name)));
        let from = grants.flat_map(|grant| &grant.from);
        from.filter(move |f| is_from(f, from_kind))
            .map(|f| f.namespace.as_str())
    }

    /// The grants of a namespace that speak of this object, or of any of its kind where it has no name.
    fn of<'g>(
        &'g self,
        namespace: &str,
        (group, kind, name): (&str, &str, Option<&str>),
    ) -> impl Iterator<Item = &'g ReferenceGrantSpec> {
        let is_name = move |n: &str| name.is_none_or(|name| name == n);
        let is_to =
            move |t: &GrantTo| t.group == group && t.kind == kind && t.name.as_deref().is_none_or(is_name);
        let grants = self.namespaces.get(namespace).into_iter();
        let grants = grants.flat_map(BTreeMap::values);
        grants.filter(move |grant| grant.to.iter().any(is_to))
    }
}

fn is_from(from: &GrantFrom, kind: &str) -> bool {
    from.group == GROUP && from.kind == kind
}
