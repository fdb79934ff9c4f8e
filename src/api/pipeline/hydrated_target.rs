//! `HydratedTarget`: one version of a Target, with everything that its chart was made of.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::target::{ReleaseSource, RenderRegistryKind};
use crate::api::schema;

/// One version of a Target: the lock file of its cluster. The hub writes it, and nothing else may.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "HydratedTarget",
    plural = "hydratedtargets",
    shortname = "ht",
    category = "renderhub",
    namespaced,
    status = "HydratedTargetStatus"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("a version stands for one content")
)]
pub struct HydratedTargetSpec {
    /// Name of the Target.
    #[schemars(schema_with = "schema::object_name")]
    pub target_name: String,
    /// UID of the Target.
    #[schemars(schema_with = "schema::word")]
    pub target_uid: String,
    /// Number of the version; the chart's version is `v0.0.<number>`.
    #[schemars(range(min = 0, max = 1_000_000_000_000_u64))]
    pub version: i64,
    /// Where the chart is pushed to.
    pub registry: HydratedRegistry,
    /// The releases by unique name.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256))]
    #[x_kube(
        validation = Rule::new("self.all(key, size(key) <= 253)").message("a name has at most 253 characters")
    )]
    pub releases: BTreeMap<String, HydratedRelease>,
    /// The data that is handed to every release, of the Target and its Profiles together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form")]
    pub userdata: Option<Value>,
    /// What differs from the version before, as a sentence for people.
    #[schemars(schema_with = "schema::line")]
    pub changes: String,
    /// The version whose content this is, where it is a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_u64))]
    pub rollback_to: Option<i64>,
}

/// Where the chart of a version is pushed to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HydratedRegistry {
    /// Kind of the registry.
    pub kind: RenderRegistryKind,
    /// Name of the registry.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Namespace of a `Registry`, where it is another than the Target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: Option<String>,
    /// Repository of the chart.
    #[schemars(schema_with = "schema::repository")]
    pub repository: String,
}

/// A release in a version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HydratedRelease {
    /// Namespace of the Release.
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: String,
    /// Name of the Release.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// What put it on the Target.
    pub source: ReleaseSource,
    /// The version of the component, as its catalog calls it.
    #[schemars(schema_with = "schema::shown_version")]
    pub component_version: String,
    /// Repository of its chart, with the host.
    #[schemars(schema_with = "schema::reference")]
    pub repository: String,
    /// Version of its chart.
    #[schemars(schema_with = "schema::chart_version")]
    pub version: String,
    /// Whether its chart is pulled over plain HTTP.
    #[serde(default)]
    pub insecure: bool,
    /// Secret on the target cluster that its chart is pulled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub pull_secret_name: Option<String>,
    /// Digest of its chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::digest")]
    pub digest: Option<String>,
}

/// What became of a version.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HydratedTargetStatus {
    /// `Ready`: the chart was pushed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Digest of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::digest")]
    pub digest: Option<String>,
    /// When the chart was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_at: Option<Time>,
}
