//! Writes to the statuses of the platform's objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::Patch;
use kube::core::Request;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::{RenderCluster, RenderClusterStatus};
use crate::plan::platform::namespaces::NamespaceUidPatch;

use super::client::HubClient;
use super::error::CallError;
use super::response::{manager, written_version};

/// A change to the status of a platform object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlatformStatusPatch<'a> {
    /// UID of the object.
    #[serde(skip)]
    pub uid: &'a str,
    /// Resource version that it must be written over.
    #[serde(skip)]
    pub version: Option<u64>,
    /// All conditions; none leaves them as they are.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub conditions: &'a [Condition],
    /// Generation that the conditions are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Changed names in the record of namespaces; other names stay.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: &'a NamespaceUidPatch,
}

impl HubClient {
    /// Writes the status of an object, by its `resource` such as `clusterregistries/status`; the new resource version, or `None`
    /// where the object is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when another object has the name now, or the object changed since the version given.
    pub async fn write_platform_status<K: Resource<DynamicType = ()>>(
        &self,
        resource: &'static str,
        name: &str,
        write: &PlatformStatusPatch<'_>,
    ) -> Result<Option<u64>, CallError> {
        let mut body = json!({"metadata": {"uid": write.uid}, "status": write});
        if let Some(version) = write.version {
            body["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        self.merge_status::<K>(resource, name, &body).await
    }

    /// Writes the status of a cluster, without its record of namespaces; the new resource version, or `None` where the cluster
    /// is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the cluster is another one of the name.
    pub async fn write_cluster_status(
        &self,
        name: &str,
        uid: &str,
        status: &RenderClusterStatus,
    ) -> Result<Option<u64>, CallError> {
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
        self.merge_status::<RenderCluster>("renderclusters/status", name, &body)
            .await
    }

    async fn merge_status<K: Resource<DynamicType = ()>>(
        &self,
        resource: &'static str,
        name: &str,
        body: &Value,
    ) -> Result<Option<u64>, CallError> {
        let request = Request::new(K::url_path(&(), None));
        let request = request.patch_subresource("status", name, &manager(), &Patch::Merge(body));
        written_version(self.objects.write("patch", resource, request).await)
    }
}
