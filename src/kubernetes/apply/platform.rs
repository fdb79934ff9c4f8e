//! Writes to the statuses of the platform's objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Patch;
use kube::core::Request;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::RenderClusterStatus;
use crate::api::labels::{GROUP, VERSION};
use crate::plan::platform::namespaces::NamespaceUidPatch;

use super::client::HubClient;
use super::error::{CallError, found};
use super::response::{WriteResponse, manager};

/// What is written to the status of a platform object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlatformStatusPatch<'a> {
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
    pub namespaces: &'a NamespaceUidPatch,
}

impl HubClient {
    /// Writes a registry's status; the new resource version, or `None` where the registry is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the registry is another one of the name, or changed since the version given.
    pub async fn write_registry_status(
        &self,
        name: &str,
        write: &PlatformStatusPatch<'_>,
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
        write: &PlatformStatusPatch<'_>,
    ) -> Result<Option<String>, CallError> {
        self.write_platform(("rendererclasses", "rendererclasses/status"), name, write)
            .await
    }

    /// Writes which namespaces a cluster's grants are recorded for; the new resource version, or `None` where the cluster is
    /// gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the cluster is another one of the name, or changed since the version given.
    pub async fn write_cluster_record(
        &self,
        name: &str,
        write: &PlatformStatusPatch<'_>,
    ) -> Result<Option<String>, CallError> {
        self.write_platform(("renderclusters", "renderclusters/status"), name, write)
            .await
    }

    /// Writes how a cluster stands, without its record of namespaces; the new resource version, or `None` where the cluster
    /// is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the cluster is another one of the name.
    pub async fn write_cluster_status(
        &self,
        name: &str,
        uid: &str,
        status: &RenderClusterStatus,
    ) -> Result<Option<String>, CallError> {
        // What is absent is named all the same: a merge would leave it as it was.
        let body = json!({"metadata": {"uid": uid}, "status": {
            "conditions": status.conditions,
            "observedGeneration": status.observed_generation,
            "version": status.version,
            "lastProbeTime": status.last_probe_time,
            "activeJobs": status.active_jobs,
            "connectionAttempts": status.connection_attempts,
            "nextConnectionAttempt": status.next_connection_attempt,
        }});
        let of_cluster = ("renderclusters", "renderclusters/status");
        self.merge_platform(of_cluster, name, &body).await
    }

    async fn write_platform(
        &self,
        of_kind: (&str, &'static str),
        name: &str,
        write: &PlatformStatusPatch<'_>,
    ) -> Result<Option<String>, CallError> {
        let mut body = json!({"metadata": {"uid": write.uid}, "status": write});
        if let Some(version) = write.version {
            body["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        self.merge_platform(of_kind, name, &body).await
    }

    async fn merge_platform(
        &self,
        (plural, resource): (&str, &'static str),
        name: &str,
        body: &Value,
    ) -> Result<Option<String>, CallError> {
        let path = format!("/apis/{GROUP}/{VERSION}/{plural}");
        let request = Request::new(path).patch_subresource("status", name, &manager(), &Patch::Merge(body));
        let answer: Option<WriteResponse> = found(self.send("patch", resource, request).await)?;
        Ok(answer.map(|answer| answer.metadata.resource_version))
    }
}
