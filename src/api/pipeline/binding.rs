//! `ReleaseBinding` and `RegistryBinding`: what one Target gets.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::reference::ObjectName;
use super::release::PipelineStatus;
use crate::api::schema;

/// Puts a Release on a Target.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "ReleaseBinding",
    plural = "releasebindings",
    shortname = "rlb",
    category = "renderhub",
    namespaced,
    status = "PipelineStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseBindingSpec {
    /// The Target.
    pub target_ref: TargetReference,
    /// The Release, in the namespace of the binding.
    pub release_ref: ObjectName,
}

/// Tells a Target with which Secret images and charts of a registry are pulled on its cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "RegistryBinding",
    plural = "registrybindings",
    shortname = "rgb",
    category = "renderhub",
    namespaced,
    status = "PipelineStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct RegistryBindingSpec {
    /// The Target.
    pub target_ref: TargetReference,
    /// The `Registry`, in the namespace of the binding: its `targetPullSecretName` is used for its host.
    pub registry_ref: ObjectName,
}

/// Names a Target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetReference {
    /// Name of the Target.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Namespace of the Target. Default: that of the binding; another one must have a `ReferenceGrant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: Option<String>,
}
