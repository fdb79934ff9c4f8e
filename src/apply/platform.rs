//! Writes to the statuses of the platform's objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Patch;
use kube::core::Request;
use serde::Serialize;
use serde_json::json;

use crate::api::labels::{GROUP, VERSION};
use crate::plan::namespaces::RecordPatch;

use super::error::found;
use super::{Answer, CallError, Calls, manager};

/// What is written to the status of a platform object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusWrite<'a> {
    /// UID of the object.
    #[serde(skip)]
    pub uid: &'a str,
    /// Resource version that it was decided on, where it may be written over no other.
    #[serde(skip)]
    pub version: Option<u64>,
    /// All conditions; none leaves them as they are.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub conditions: &'a [Condition],
    /// Generation that the conditions speak of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What changes in the record of namespaces; other names stay.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: &'a RecordPatch,
}

impl Calls {
    /// Writes a registry's status; the new resource version, or `None` where the registry is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the registry is another one of the name, or changed since the version given.
    pub async fn write_registry_status(
        &self,
        name: &str,
        write: &StatusWrite<'_>,
    ) -> Result<Option<String>, CallError> {
        self.write_platform(("clusterregistries", "clusterregistries/status"), name, write)
            .await
    }

    /// Writes a renderer class's status; the new resource version, or `None` where the class is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the class is another one of the name, or changed since the version given.
    pub async fn write_class_status(
        &self,
        name: &str,
        write: &StatusWrite<'_>,
    ) -> Result<Option<String>, CallError> {
        self.write_platform(("rendererclasses", "rendererclasses/status"), name, write)
            .await
    }

    async fn write_platform(
        &self,
        (plural, resource): (&str, &'static str),
        name: &str,
        write: &StatusWrite<'_>,
    ) -> Result<Option<String>, CallError> {
        let mut body = json!({"metadata": {"uid": write.uid}, "status": write});
        if let Some(version) = write.version {
            body["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        let path = format!("/apis/{GROUP}/{VERSION}/{plural}");
        let request = Request::new(path).patch_subresource("status", name, &manager(), &Patch::Merge(&body));
        let answer: Option<Answer> = found(self.send("patch", resource, request).await)?;
        Ok(answer.map(|answer| answer.metadata.resource_version))
    }
}
