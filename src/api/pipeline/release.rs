//! `Release`: a version of a component with its values, ready to be bound to targets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::schema;

/// A version of a component with its values. It reaches a Target by a `ReleaseBinding` or a `Profile`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "Release",
    plural = "releases",
    shortname = "rel",
    category = "renderhub",
    namespaced,
    status = "ReleaseStatus"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(oldSelf.uniqueName) || (has(self.uniqueName) && self.uniqueName == oldSelf.uniqueName)")
        .message("uniqueName cannot be changed once it is set; make a new Release")
)]
pub struct ReleaseSpec {
    /// The version that is released.
    pub component_version_ref: ComponentVersionReference,
    /// Namespace on the target cluster that it is installed into. Default: that of the bootstrap chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace_or_none")]
    pub target_namespace: Option<String>,
    /// A Target gets one Release of a name: the one with the highest priority. Default: the name of the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub unique_name: Option<String>,
    /// Releases with these labels are not on one Target with this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub anti_affinity: Option<LabelSelector>,
    /// Free-form values of the release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form")]
    pub values: Option<Value>,
    /// Seconds that a failed Job for its chart is kept.
    #[serde(default, rename = "failedJobTTL", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 604_800))]
    pub failed_job_ttl: Option<i32>,
    /// Of Releases that exclude each other on a Target, the one with the highest priority is there. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// Names a version of a component.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentVersionReference {
    /// Name of the `ComponentVersion`.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Namespace of the `ComponentVersion`. Default: that of the Release; another one must have a `ReferenceGrant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: Option<String>,
}

/// What the hub says of a Release.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStatus {
    /// `Ready`: the `ComponentVersion` exists and may be used; `Stalled` where only a person can help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of; -1 until the hub has looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1))]
    pub observed_generation: Option<i64>,
    /// The name of which a Target gets one Release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub effective_unique_name: Option<String>,
}

/// What the hub says of an object of which there is nothing to say but conditions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStatus {
    /// `Ready`, and `Stalled` where only a person can help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of; -1 until the hub has looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1))]
    pub observed_generation: Option<i64>,
}
