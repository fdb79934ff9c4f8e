//! Which objects of other namespaces an object of the pipeline may refer to.

use crate::api::labels::GROUP;
use crate::plan::platform::reference_grants::ReferenceGrantIndex;

/// What governs references between namespaces.
#[derive(Clone, Debug, Default)]
pub struct ReferenceRules {
    /// Whether a `ReferenceGrant` counts at all.
    pub crosses_namespaces: bool,
    /// Namespaces that this hub sees; empty is every one.
    pub served: Vec<String>,
    /// Whether each host of a chart or image must have a `RegistryBinding`.
    pub is_registry_binding_strict: bool,
}

/// A reference from one object to another.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    /// Kind of the object that refers.
    pub from_kind: &'a str,
    /// Namespace of the object that refers.
    pub from: &'a str,
    /// Kind of the object that is referred to.
    pub to_kind: &'a str,
    /// Namespace of the object that is referred to.
    pub to: &'a str,
    /// Name of the object that is referred to.
    pub name: &'a str,
}

impl ReferenceRules {
    /// Whether the reference stays in its namespace, or is granted.
    #[must_use]
    pub fn allow(&self, grants: &ReferenceGrantIndex, reference: Reference<'_>) -> bool {
        reference.from == reference.to
            || self.crosses_namespaces
                && grants.admits(
                    (reference.from_kind, reference.from),
                    reference.to,
                    (GROUP, reference.to_kind, reference.name),
                )
    }

    /// Whether this hub sees the namespace.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        self.served.is_empty() || self.served.iter().any(|served| served == namespace)
    }
}
