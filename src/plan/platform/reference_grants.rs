//! Which references between namespaces their targets allow.

#![warn(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::ReferenceGrantSpec;
use crate::api::labels::GROUP;
use crate::plan::relist::{RelistMark, Relists};

/// The namespaces that one watch of grants covers: one, or all.
pub type GrantScope = Option<Arc<str>>;

/// Every `ReferenceGrant` the hub can see, by namespace and UID.
#[derive(Clone, Debug, Default)]
pub struct ReferenceGrantIndex {
    namespaces: BTreeMap<String, BTreeMap<String, (ReferenceGrantSpec, RelistMark)>>,
    lists: Relists<GrantScope>,
}

impl ReferenceGrantIndex {
    /// Stores a grant; one that cannot be decoded allows nothing.
    pub fn put(&mut self, scope: &GrantScope, namespace: &str, uid: &str, spec: Option<ReferenceGrantSpec>) {
        match spec {
            Some(spec) => {
                let grants = self.namespaces.entry(namespace.to_owned()).or_default();
                grants.insert(uid.to_owned(), (spec, self.lists.mark(scope)));
            }
            None => self.remove(namespace, uid),
        }
    }

    /// Removes a grant.
    pub fn remove(&mut self, namespace: &str, uid: &str) {
        if let Some(grants) = self.namespaces.get_mut(namespace) {
            grants.remove(uid);
            if grants.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// A list of a scope begins.
    pub fn begin_list(&mut self, scope: GrantScope) {
        self.lists.begin(scope);
    }

    /// The list of a scope ended: removes the grants that it did not show, and returns their namespaces.
    pub fn end_list(&mut self, scope: &GrantScope) -> Vec<String> {
        let mark = self.lists.mark(scope);
        let mut lost = Vec::new();
        for (namespace, grants) in &mut self.namespaces {
            if scope.as_deref().is_none_or(|scope| scope == namespace) {
                let before = grants.len();
                grants.retain(|_, (_, listed)| *listed == mark);
                if grants.len() < before {
                    lost.push(namespace.clone());
                }
            }
        }
        self.namespaces.retain(|_, grants| !grants.is_empty());
        lost
    }

    /// Whether a `RenderTask` of one namespace may refer to a `Registry` of another.
    #[must_use]
    pub fn allows(&self, from: &str, to: &str, registry: &str) -> bool {
        self.admits(("RenderTask", from), to, (GROUP, "Registry", registry))
    }

    /// Whether a `Target` of one namespace may refer to a `Registry` of another.
    #[must_use]
    pub fn allows_target(&self, from: &str, to: &str, registry: &str) -> bool {
        self.admits(("Target", from), to, (GROUP, "Registry", registry))
    }

    /// Whether a `RenderTask` of one namespace may refer to a Secret of another.
    #[must_use]
    pub fn allows_secret(&self, from: &str, to: &str, secret: &str) -> bool {
        self.admits(("RenderTask", from), to, ("", "Secret", secret))
    }

    /// Whether objects of renderhub's, by kind and namespace, may refer to the object of a group, kind and name in namespace `to`.
    #[must_use]
    pub fn admits(&self, from: (&str, &str), to: &str, object: (&str, &str, &str)) -> bool {
        let (group, kind, name) = object;
        let admits = |grant: &ReferenceGrantSpec| {
            let is_from = |f: &crate::api::GrantFrom| {
                f.group == GROUP && (f.kind.as_str(), f.namespace.as_str()) == from
            };
            let is_to = |t: &crate::api::GrantTo| {
                t.group == group && t.kind == kind && t.name.as_deref().is_none_or(|n| n == name)
            };
            grant.from.iter().any(is_from) && grant.to.iter().any(is_to)
        };
        self.namespaces
            .get(to)
            .is_some_and(|grants| grants.values().any(|(grant, _)| admits(grant)))
    }
}
