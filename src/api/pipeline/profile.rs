//! `Profile`: puts a Release on every Target that its selector matches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reference::ObjectName;
use crate::api::schema;

/// Puts a Release on every Target with certain labels, without an object for each.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "Profile",
    plural = "profiles",
    shortname = "prf",
    category = "renderhub",
    namespaced,
    status = "ProfileStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct ProfileSpec {
    /// The Release, in the namespace of the Profile.
    pub release_ref: ObjectName,
    /// Labels of the Targets that get it, in the namespace of the Profile and in those that grant it. An empty selector matches
    /// every one.
    #[schemars(schema_with = "schema::label_selector")]
    pub target_selector: LabelSelector,
    /// Free-form data beneath that of the Target: maps are merged, a null removes a key, the Target wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form")]
    pub userdata: Option<Value>,
    /// Most Targets that a change of the Release reaches at a time, each until its chart is pushed: a number from 1, or a percentage
    /// of the Targets from `1%` to `100%`. Default: all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::number_or_percentage")]
    pub max_unavailable: Option<IntOrString>,
}

/// What the hub says of a Profile.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileStatus {
    /// `Ready`, and `Stalled` where only a person can help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of; -1 until the hub has looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1))]
    pub observed_generation: Option<i64>,
    /// Targets that the selector matches and that may be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub matched_targets: Option<i32>,
    /// Of these, the ones whose newest version has the Release as it is now and is pushed. Only with `maxUnavailable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub updated_targets: Option<i32>,
    /// The Targets that the selector matches and that may be reached, by namespace and name: the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: Vec<MatchedTarget>,
}

/// A Target that a Profile matches.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchedTarget {
    /// Name of the Target.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Namespace of the Target, where it is another than that of the Profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: Option<String>,
}
