//! Which references between namespaces their targets allow.

#![warn(clippy::wildcard_enum_match_arm)]

use std::collections::{BTreeMap, BTreeSet};

use crate::api::ReferenceGrantSpec;
use crate::api::labels::GROUP;

/// Every `ReferenceGrant` the hub can see, by namespace and UID.
#[derive(Clone, Debug, Default)]
pub struct ReferenceGrantIndex {
    namespaces: BTreeMap<String, BTreeMap<String, ReferenceGrantSpec>>,
}

impl ReferenceGrantIndex {
    /// Takes in a grant; one that cannot be decoded allows nothing.
    pub fn put(&mut self, namespace: &str, uid: &str, spec: Option<ReferenceGrantSpec>) {
        match spec {
            Some(spec) => {
                let grants = self.namespaces.entry(namespace.to_owned()).or_default();
                grants.insert(uid.to_owned(), spec);
            }
            None => self.remove(namespace, uid),
        }
    }

    /// Forgets a grant that is gone.
    pub fn remove(&mut self, namespace: &str, uid: &str) {
        if let Some(grants) = self.namespaces.get_mut(namespace) {
            grants.remove(uid);
            if grants.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    /// Forgets the grants of a namespace, or with `None` of all, that a finished list did not show; the namespaces that
    /// lost one.
    pub fn keep(&mut self, scope: Option<&str>, shown: &BTreeSet<String>) -> Vec<String> {
        let mut lost = Vec::new();
        for (namespace, grants) in &mut self.namespaces {
            if scope.is_none_or(|scope| scope == namespace) {
                let before = grants.len();
                grants.retain(|uid, _| shown.contains(uid));
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
        self.admit(from, to, GROUP, "Registry", registry)
    }

    /// Whether a `RenderTask` of one namespace may refer to a Secret of another.
    #[must_use]
    pub fn allows_secret(&self, from: &str, to: &str, secret: &str) -> bool {
        self.admit(from, to, "", "Secret", secret)
    }

    fn admit(&self, from: &str, to: &str, group: &str, kind: &str, name: &str) -> bool {
        let admits = |grant: &ReferenceGrantSpec| {
            let is_from =
                |f: &crate::api::GrantFrom| f.group == GROUP && f.kind == "RenderTask" && f.namespace == from;
            let is_to = |t: &crate::api::GrantTo| {
                t.group == group && t.kind == kind && t.name.as_deref().is_none_or(|n| n == name)
            };
            grant.from.iter().any(is_from) && grant.to.iter().any(is_to)
        };
        self.namespaces
            .get(to)
            .is_some_and(|grants| grants.values().any(admits))
    }
}
