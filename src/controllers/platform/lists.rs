//! The namespaces that the platform's objects list by name.

use crate::api::{
    AllowedNamespace, ClusterRegistrySpec, QueuePolicySpec, RenderClusterSpec, RendererClassSpec,
};

/// A spec that may grant something to namespaces by name.
pub(super) trait Lists {
    /// The names.
    fn allowed(&self) -> &[AllowedNamespace];
}

impl Lists for ClusterRegistrySpec {
    fn allowed(&self) -> &[AllowedNamespace] {
        &self.allowed_namespaces
    }
}

impl Lists for RendererClassSpec {
    fn allowed(&self) -> &[AllowedNamespace] {
        &self.allowed_namespaces
    }
}

impl Lists for RenderClusterSpec {
    fn allowed(&self) -> &[AllowedNamespace] {
        &self.allowed_namespaces
    }
}

impl Lists for QueuePolicySpec {
    fn allowed(&self) -> &[AllowedNamespace] {
        &[]
    }
}
