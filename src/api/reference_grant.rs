//! `ReferenceGrant`: lets objects of other namespaces refer to objects of its own, in the shape that the Gateway API made known.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::schema;

/// Allows references from other namespaces to objects of this one. It gives no right to read them: that is the
/// `ServiceAccount`'s, by RBAC.
#[derive(Clone, Debug, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "ReferenceGrant",
    plural = "referencegrants",
    shortname = "rgrant",
    category = "renderhub",
    namespaced
)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    /// Who may refer to objects of this namespace.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub from: Vec<GrantFrom>,
    /// What they may refer to.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub to: Vec<GrantTo>,
}

/// Objects that may refer to others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantFrom {
    /// API group of the objects that refer.
    #[schemars(schema_with = "schema::object_name")]
    pub group: String,
    /// Kind of the objects that refer.
    #[schemars(schema_with = "schema::kind")]
    pub kind: String,
    /// Namespace of the objects that refer.
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: String,
}

/// Objects that may be referred to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantTo {
    /// API group of the objects referred to; empty for Secrets.
    #[schemars(schema_with = "schema::object_name_or_none")]
    pub group: String,
    /// Kind of the objects referred to.
    #[schemars(schema_with = "schema::kind")]
    pub kind: String,
    /// Name of the one object. Default: every one of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub name: Option<String>,
}
