//! References within a namespace.

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
