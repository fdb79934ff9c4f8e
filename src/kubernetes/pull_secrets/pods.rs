//! Calls for pods that cannot be pulled, and what made them.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{LocalObjectReference, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::{GetParams, ListParams, ObjectMeta};
use serde::Deserialize;
use serde_json::json;

use super::{PullSecretClient, UNREADABLE, bytes, created, of};
use crate::kubernetes::apply::{CallError, OBJECT_MAX, found};
use crate::plan::pull_secrets::olm::{PendingPods, WantedEviction, pending_pods};

/// Pods of a namespace that are looked at: those of a namespace's operators are a few.
const PODS: u32 = 500;
/// Bytes of a list of pods.
const LIST_MAX: usize = 16 << 20;

/// A page of pods, of which so much is read: what else a tenant writes into one takes many times its text in memory.
#[derive(Deserialize)]
struct PodPage {
    items: Vec<ReadPod>,
}

#[derive(Deserialize)]
struct ReadPod {
    metadata: ReadPodMetadata,
    spec: ReadPodSpec,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadPodMetadata {
    name: Option<String>,
    uid: Option<String>,
    creation_timestamp: Option<Time>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadPodSpec {
    service_account_name: Option<String>,
    image_pull_secrets: Option<Vec<LocalObjectReference>>,
}

impl From<ReadPod> for Pod {
    fn from(read: ReadPod) -> Self {
        let metadata = ObjectMeta {
            name: read.metadata.name,
            uid: read.metadata.uid,
            creation_timestamp: read.metadata.creation_timestamp,
            owner_references: read.metadata.owner_references,
            ..ObjectMeta::default()
        };
        let spec = PodSpec {
            service_account_name: read.spec.service_account_name,
            image_pull_secrets: read.spec.image_pull_secrets,
            ..PodSpec::default()
        };
        Self {
            metadata,
            spec: Some(spec),
            status: read.status,
        }
    }
}

impl PullSecretClient {
    /// The pods of a namespace that are not running yet.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn pending_pods(&self, namespace: &str) -> Result<PendingPods, CallError> {
        let pending = ListParams::default().fields("status.phase=Pending").limit(PODS);
        let request = of::<Pod>(namespace).list(&pending);
        let body = self.call("list", "pods", request, LIST_MAX).await?;
        let pods: PodPage = serde_json::from_slice(&body).map_err(|_| UNREADABLE)?;
        Ok(pending_pods(pods.items.into_iter().map(Pod::from)))
    }

    /// Whether the pod's `ReplicaSet` is of one of the Deployments that it may be of.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn is_of_operator(&self, eviction: &WantedEviction) -> Result<bool, CallError> {
        #[derive(Deserialize)]
        struct Owned {
            metadata: Owners,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Owners {
            uid: String,
            #[serde(default)]
            owner_references: Vec<OwnerReference>,
        }
        let (name, uid) = &eviction.replica_set;
        let request = of::<ReplicaSet>(&eviction.pod.namespace).get_metadata(name, &GetParams::default());
        let Some(body) = found(self.call("get", "replicasets", request, OBJECT_MAX).await)? else {
            return Ok(false);
        };
        let set: Owned = serde_json::from_slice(&body).map_err(|_| UNREADABLE)?;
        let mut owners = set.metadata.owner_references.iter();
        let is_theirs = |owner: &OwnerReference| {
            owner.controller == Some(true)
                && owner.kind == "Deployment"
                && eviction.deployments.contains(&owner.name)
        };
        Ok(set.metadata.uid == *uid && owners.any(is_theirs))
    }

    /// Evicts a pod; a `PodDisruptionBudget` may forbid it.
    ///
    /// # Errors
    /// It is not evicted; [`CallError::NotFound`] or [`CallError::Conflict`] where it is gone.
    pub async fn evict(&self, eviction: &WantedEviction) -> Result<(), CallError> {
        let pod = &eviction.pod;
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": eviction.uid}},
        });
        let request =
            of::<Pod>(&pod.namespace).create_subresource("eviction", &pod.name, &created(), bytes(&body));
        self.call("create", "pods/eviction", request, 0).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Holds: F6.
    #[test]
    fn a_pod_of_many_variables_takes_little_more_than_its_text() {
        let variables = vec![json!({"name": "A"}); 50_000];
        let fields: serde_json::Map<_, _> = (0..50_000)
            .map(|n| (format!("k:{{\"name\":\"{n}\"}}"), json!({})))
            .collect();
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "s", "controller": true});
        let waiting = json!({"name": "a", "image": "a", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff"}}});
        let page = json!({"items": [{
            "metadata": {"name": "pod", "uid": "p", "ownerReferences": [owner], "managedFields": [{"fieldsV1": fields}]},
            "spec": {"serviceAccountName": "operator", "containers": [{"name": "a", "env": variables}]},
            "status": {"containerStatuses": [waiting]},
        }]});
        let body = page.to_string();
        let mut pending = None;
        let taken = allocation_counter::measure(|| {
            let pods: PodPage = serde_json::from_str(&body).unwrap();
            pending = Some(pending_pods(pods.items.into_iter().map(Pod::from)));
        });
        assert_eq!(pending.unwrap().waiting.len(), 1, "its image is not pulled");
        assert!(body.len() > 1 << 20 && taken.bytes_max < 64 << 10, "{taken:?}");
    }
}
