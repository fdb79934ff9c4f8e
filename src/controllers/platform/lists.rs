//! The namespaces that the platform's objects list by name.

use crate::api::{
    AllowedNamespace, ClusterRegistrySpec, QueuePolicySpec, RenderClusterSpec, RendererClassSpec,
};

/// A spec that may grant something to namespaces by name.
pub(super) trait AllowsNamespaces {
    /// The names.
    fn allowed(&self) -> &[AllowedNamespace];
}

impl AllowsNamespaces for ClusterRegistrySpec {
    fn allowed(&self) -> &[AllowedNamespace] {
        &self.allowed_namespaces
    }
}

impl AllowsNamespaces for RendererClassSpec {
    fn allowed(&self) -> &[AllowedNamespace] {
        &self.allowed_namespaces
    }
}

impl AllowsNamespaces for RenderClusterSpec {
    fn allowed(&self) -> &[AllowedNamespace] {
        &self.allowed_namespaces
    }
}

impl AllowsNamespaces for QueuePolicySpec {
    fn allowed(&self) -> &[AllowedNamespace] {
        &[]
    }
}
