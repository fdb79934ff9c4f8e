//! `Component` and `ComponentVersion`: what can be released, as a catalog describes it.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::reference::ObjectName;
use super::release::PipelineStatus;
use crate::api::renderer_config::{Entrypoint, HelmResource};
use crate::api::schema;

/// A component of a catalog, and where its versions are found.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "Component",
    plural = "components",
    shortname = "comp",
    category = "renderhub",
    namespaced,
    status = "PipelineStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct ComponentSpec {
    /// Scheme that the registry is reached with. For people and tools: the hub does not read the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub scheme: Option<String>,
    /// Host of the registry that the component comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub registry: Option<String>,
    /// Repository of the component there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub repository: Option<String>,
}

/// One version of a component: its artifacts, and which of them is installed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "ComponentVersion",
    plural = "componentversions",
    shortname = "cv",
    category = "renderhub",
    namespaced,
    status = "PipelineStatus"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.entrypoint.resourceName in self.resources")
        .message("entrypoint.resourceName must be a key of resources")
)]
pub struct ComponentVersionSpec {
    /// The component.
    pub component_ref: ObjectName,
    /// The version, as the catalog calls it.
    #[schemars(schema_with = "schema::shown_version")]
    pub tag: String,
    /// Artifacts by name.
    #[schemars(length(min = 1), extend("maxProperties" = 64))]
    #[x_kube(
        validation = Rule::new("self.all(key, size(key) <= 253)").message("a name has at most 253 characters")
    )]
    pub resources: BTreeMap<String, ComponentResource>,
    /// The artifact that is installed.
    pub entrypoint: Entrypoint,
}

/// An artifact of a component.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentResource {
    /// OCI repository, with its host.
    #[schemars(schema_with = "schema::reference")]
    pub repository: String,
    /// Whether the artifact is pulled over plain HTTP.
    #[serde(default)]
    pub insecure: bool,
    /// Tag, or digest with a leading `@`.
    #[schemars(schema_with = "schema::resource_tag")]
    pub tag: String,
    /// What is known of the chart in the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm: Option<HelmResource>,
}
