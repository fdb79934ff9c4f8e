//! What the platform operator made, each with what the hub found out about it.

use super::credential::CredentialState;
use crate::api::{ClusterRegistrySpec, RenderClusterSpec, RendererClassSpec};
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::pull_secrets::named::NamedPullSecret;
use crate::plan::pull_secrets::pull_failure::ClassPullFailure;

/// A registry and the verdict on its credential.
#[derive(Clone, Debug)]
pub struct CatalogRegistry {
    /// As the platform wrote it.
    pub spec: ClusterRegistrySpec,
    /// The credential it is pushed to with.
    pub credential: CredentialState,
    /// UID of each namespace it lists, as recorded at first use.
    pub recorded: NamespaceUids,
}

/// A renderer class by name.
#[derive(Clone, Debug, Default)]
pub struct CatalogClass {
    /// As the platform wrote it.
    pub spec: RendererClassSpec,
    /// Whether tasks that name no class get it.
    pub is_default: bool,
    /// Whether the API server would not accept its Jobs, when it was asked last.
    pub is_refused: bool,
    /// UID of each namespace it lists, as recorded at first use.
    pub recorded: NamespaceUids,
    /// The pull Secrets that it names, in their order.
    pub pull_secrets: Vec<NamedPullSecret>,
    /// Where its image was not pulled last.
    pub pull_failure: Option<ClassPullFailure>,
}

/// A cluster of the platform's.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogCluster {
    /// As the platform wrote it.
    pub spec: RenderClusterSpec,
    /// UID of the object: another one of its name is another cluster.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// UID of each namespace it lists, as recorded at first use.
    pub recorded: NamespaceUids,
}
