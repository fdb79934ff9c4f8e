//! `Profile`: puts a Release on every Target that its selector matches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reference::ObjectName;
use crate::api::schema;

/// Puts a Release on every Target with certain labels, without an object for each.
#[derive(Clone, Debug, Deserialize, Serialize, CustomResource, KubeSchema)]
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
}
