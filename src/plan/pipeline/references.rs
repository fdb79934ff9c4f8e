//! Which objects of other namespaces an object of the pipeline may refer to.

use std::collections::BTreeSet;

use crate::api::labels::GROUP;
use crate::api::pipeline::{ReleaseSourceKind, TargetReference};
use crate::plan::platform::reference_grants::ReferenceGrantIndex;

use super::object::ObjectKey;

/// The kinds of a catalog, in the plural: what tenants of other namespaces may use. Nothing is done for a namespace that the hub does
/// not serve, so Targets, tasks, bindings and registries there are none of its business.
pub const CATALOG_KINDS: [&str; 3] = ["componentversions", "profiles", "releases"];

/// What governs references between namespaces.
#[derive(Clone, Debug, Default)]
pub struct ReferenceRules {
    /// Whether a `ReferenceGrant` counts at all.
    pub crosses_namespaces: bool,
    /// Namespaces that this hub serves; empty is every one.
    pub served: Vec<String>,
    /// Namespaces of which it reads catalogs besides, and writes nothing.
    pub catalogs: Vec<String>,
    /// Namespaces of these that it may not read at the moment.
    pub unread: BTreeSet<String>,
    /// Namespaces of which it does not hold every object, because they take too much memory.
    pub overfull: BTreeSet<String>,
    /// Whether each host of a chart or image must have a `RegistryBinding`.
    pub is_registry_binding_strict: bool,
}

impl ReferenceRules {
    /// Whether a reference from an object of this kind and namespace stays in the namespace, or is granted.
    #[must_use]
    pub fn allow(
        &self,
        grants: &ReferenceGrantIndex,
        (from_kind, from): (&str, &str),
        to_kind: &str,
        to: &ObjectKey,
    ) -> bool {
        let is_granted = || grants.admits((from_kind, from), &to.namespace, (GROUP, to_kind, Some(&to.name)));
        *from == to.namespace || self.crosses_namespaces && is_granted()
    }

    /// The namespaces of which an object of a kind may refer to this one: its own, and those that are granted it.
    #[must_use]
    pub fn reaching<'g>(
        &self,
        grants: &'g ReferenceGrantIndex,
        from_kind: &str,
        to_kind: &str,
        to: &'g ObjectKey,
    ) -> BTreeSet<&'g str> {
        let mut namespaces = BTreeSet::from([to.namespace.as_str()]);
        if self.crosses_namespaces {
            namespaces.extend(grants.admitted(from_kind, &to.namespace, (GROUP, to_kind, &to.name)));
        }
        namespaces
    }

    /// The namespaces in which an object of a kind and a namespace may have grants: its own, and those that name it in one.
    #[must_use]
    pub fn reached<'g>(
        &self,
        grants: &'g ReferenceGrantIndex,
        from_kind: &str,
        from: &'g str,
    ) -> BTreeSet<&'g str> {
        let mut namespaces = BTreeSet::from([from]);
        if self.crosses_namespaces {
            namespaces.extend(grants.granting(from_kind, from));
        }
        namespaces
    }

    /// The Target that a binding of this key names, and whether it may refer to it.
    #[must_use]
    pub fn target(
        &self,
        grants: &ReferenceGrantIndex,
        from_kind: &str,
        key: &ObjectKey,
        target: &TargetReference,
    ) -> (ObjectKey, bool) {
        let target = key.referred(target.namespace.as_ref(), &target.name);
        let is_allowed = self.allow(grants, (from_kind, &key.namespace), "Target", &target);
        (target, is_allowed)
    }

    /// Whether this hub serves the namespace: it sees every kind there, and writes statuses.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        self.served.is_empty() || self.served.iter().any(|served| served == namespace)
    }

    /// Whether this hub knows all of the namespace, where it serves it or reads its catalog.
    #[must_use]
    pub fn reads(&self, namespace: &str) -> bool {
        !self.unread.contains(namespace) && !self.overfull.contains(namespace)
    }

    /// Whether a Profile of this namespace may match Targets that this hub does not know.
    #[must_use]
    pub fn may_match_unknown(&self, grants: &ReferenceGrantIndex, namespace: &str) -> bool {
        let may_match = |overfull: &String| {
            let is_granted = || grants.admits(("Profile", namespace), overfull, (GROUP, "Target", None));
            overfull == namespace || self.crosses_namespaces && is_granted()
        };
        // Of a namespace that may not be read, the grants may not be known either.
        let is_unread = self.unread.contains(namespace) || self.crosses_namespaces && !self.unread.is_empty();
        is_unread || self.overfull.iter().any(may_match)
    }

    /// Whether this hub sees what of this kind binds Releases in the namespace, so that one which it does not see is gone.
    #[must_use]
    pub fn sees(&self, kind: ReleaseSourceKind, namespace: &str) -> bool {
        let is_in_catalogs = match kind {
            ReleaseSourceKind::Profile => true,
            ReleaseSourceKind::ReleaseBinding => false,
        };
        let is_of_catalog = is_in_catalogs && self.catalogs.iter().any(|catalog| catalog == namespace);
        self.reads(namespace) && (self.serves(namespace) || is_of_catalog)
    }

    /// The namespaces of catalogs that this hub does not serve: in those that it does, it sees every kind.
    pub fn only_catalogs(&self) -> impl Iterator<Item = &String> {
        self.catalogs.iter().filter(|namespace| !self.serves(namespace))
    }
}
