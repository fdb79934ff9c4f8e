//! References to objects by their names.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::api::schema;

/// Names an object in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectName {
    /// Name of the object.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// Names an object and its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedName {
    /// Its namespace, where it is another than the Target's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: String,
    /// Its name.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}
