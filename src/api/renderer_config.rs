//! What a tenant asks to be rendered: the part of a task's spec that becomes the renderer's `config.json`.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema;

/// What to render. Written verbatim as the renderer's `config.json`.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[x_kube(
    validation = Rule::new("(self.type == 'release') == has(self.release)")
        .message("release is required if type is release, and forbidden otherwise"),
    validation = Rule::new("(self.type == 'bootstrap') == has(self.bootstrap)")
        .message("bootstrap is required if type is bootstrap, and forbidden otherwise")
)]
pub struct RendererConfig {
    /// What the renderer makes: `release`, `bootstrap`, or a name that the renderer class understands.
    #[serde(rename = "type")]
    #[schemars(schema_with = "schema::word")]
    pub type_: String,
    /// A chart for one release. Required when `type` is `release`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseConfig>,
    /// A chart that bundles releases. Required when `type` is `bootstrap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapConfig>,
}

/// A chart for one release of a component.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ReleaseConfig {
    /// Metadata of the chart that is made.
    pub chart: ChartMetadata,
    /// What the chart installs.
    pub input: ReleaseInput,
    /// Namespace the release is installed into; the chart's own namespace when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace_or_none")]
    pub target_namespace: Option<String>,
    /// Free-form values of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form")]
    pub values: Option<Value>,
}

/// A chart that bundles releases.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct BootstrapConfig {
    /// Metadata of the chart that is made.
    pub chart: ChartMetadata,
    /// The releases that are bundled.
    pub input: BootstrapInput,
}

/// Metadata of the chart that is made, as in `Chart.yaml`.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ChartMetadata {
    /// Name of the chart; the last segment of `repository` must equal it.
    #[schemars(schema_with = "schema::chart_name")]
    pub name: String,
    /// One line about the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::line")]
    pub description: Option<String>,
    /// Version of the chart, `SemVer` 2; `tag` must equal it, with `_` for `+`.
    #[schemars(schema_with = "schema::chart_version")]
    pub version: String,
    /// Version of what the chart installs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::shown_version")]
    pub app_version: Option<String>,
}

/// What a release chart installs.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[x_kube(
    validation = Rule::new("has(self.resources) && self.entrypoint.resourceName in self.resources")
        .message("entrypoint.resourceName must be a key of resources")
)]
pub struct ReleaseInput {
    /// The component that is released.
    pub component: ComponentName,
    /// Resources of the component by name.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256))]
    #[x_kube(
        validation = Rule::new("self.all(key, size(key) <= 253)").message("a name has at most 253 characters")
    )]
    pub resources: BTreeMap<String, ResourceSpec>,
    /// The resource that is installed.
    pub entrypoint: Entrypoint,
}

/// The component that is released.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ComponentName {
    /// Name of the component.
    #[schemars(schema_with = "schema::word")]
    pub name: String,
}

/// Which resource of the component is installed, and how.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Entrypoint {
    /// Key in `resources`.
    #[schemars(schema_with = "schema::word")]
    pub resource_name: String,
    /// Kind of the resource.
    #[serde(rename = "type")]
    pub type_: EntrypointType,
}

/// Kind of an entrypoint resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum EntrypointType {
    /// A Helm chart.
    Helm,
    /// A kro resource graph.
    Kro,
}

/// An OCI artifact that a chart refers to.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ResourceSpec {
    /// OCI repository, with its host.
    #[schemars(schema_with = "schema::reference")]
    pub repository: String,
    /// Whether the artifact is pulled over plain HTTP.
    #[serde(default)]
    pub insecure: bool,
    /// Tag, digest (with a leading `@`) or, in a bootstrap chart, a `SemVer` range.
    #[schemars(schema_with = "schema::resource_tag")]
    pub tag: String,
    /// What is known of the chart in the artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm: Option<HelmResource>,
    /// Secret on the target cluster that the artifact is pulled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name_or_none")]
    pub pull_secret_name: Option<String>,
}

/// What is known of the Helm chart in an artifact.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct HelmResource {
    /// Name of the chart.
    #[schemars(schema_with = "schema::word")]
    pub name: String,
    /// One line about the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::line")]
    pub description: Option<String>,
    /// Version of the chart.
    #[schemars(schema_with = "schema::shown_version")]
    pub version: String,
    /// Version of what the chart installs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::shown_version")]
    pub app_version: Option<String>,
    /// Template of the values that are put before the release's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::template")]
    pub values_template: Option<String>,
}

/// What a bootstrap chart installs.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct BootstrapInput {
    /// The bundled releases by name; `tag` is a `SemVer` range.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 1024))]
    #[x_kube(
        validation = Rule::new("self.all(key, size(key) <= 253)").message("a name has at most 253 characters")
    )]
    pub releases: BTreeMap<String, ResourceSpec>,
    /// Free-form data handed to every release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form")]
    pub userdata: Option<Value>,
}
