//! The API of renderhub: the types from which its custom resources are generated, and their names.

pub mod basic_auth;
mod cluster_registry;
mod cluster_render_task;
pub mod conditions;
mod definitions;
pub mod docker_config;
pub mod input_hashes;
pub mod labels;
pub mod names;
pub mod oci;
pub mod olm;
pub mod pipeline;
pub mod policy;
mod queue_policy;
mod reference_grant;
mod registry;
mod render_cluster;
mod render_task;
mod renderer_class;
mod renderer_config;
mod schema;
pub mod termination;
pub mod time;
pub mod zeroized;

pub use cluster_registry::{
    AllowedNamespace, ClusterRegistry, ClusterRegistrySpec, ClusterRegistryStatus, ConfigMapKeyReference,
    SecretReference, Verification,
};
pub use cluster_render_task::{ClusterRenderTask, ClusterRenderTaskSpec};
pub use definitions::custom_resource_definitions;
pub use queue_policy::{QueuePolicy, QueuePolicySpec};
pub use reference_grant::{GrantFrom, GrantTo, ReferenceGrant, ReferenceGrantSpec};
pub use registry::{Registry, RegistrySpec};
pub use render_cluster::{
    ClusterKubeConfig, ClusterSecretReference, RenderCluster, RenderClusterSpec, RenderClusterStatus,
};
pub use render_task::{
    FailurePhase, KubeConfigReference, KubeConfigSecretReference, RegistryKind, RegistryReference,
    RenderTask, RenderTaskSpec, RenderTaskStatus, TaskFailure, TaskObjectReference, TaskOwner,
};
pub use renderer_class::{
    PullPolicy, PullSecretEntries, RendererClass, RendererClassSpec, RendererClassStatus, RendererMode,
};
pub use renderer_config::{
    BootstrapConfig, BootstrapInput, ChartMetadata, ComponentName, Entrypoint, EntrypointType, HelmResource,
    ReleaseConfig, ReleaseInput, RendererConfig, ResourceSpec,
};
