//! Calls for pods that cannot be pulled, and what made them.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{GetParams, ListParams};
use serde::Deserialize;
use serde_json::json;

use super::{PullSecretClient, UNREADABLE, bytes, created, of};
use crate::kubernetes::apply::{CallError, OBJECT_MAX, found};
use crate::plan::pull_secrets::olm::{PendingPods, WantedEviction, pending_pods};

/// Pods of a namespace that are looked at: those of a namespace's operators are a few.
const PODS: u32 = 500;
/// Bytes of a list of pods.
const LIST_MAX: usize = 16 << 20;

impl PullSecretClient {
    /// The pods of a namespace that are not running yet.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn pending_pods(&self, namespace: &str) -> Result<PendingPods, CallError> {
        #[derive(Deserialize)]
        struct Pods {
            items: Vec<Pod>,
        }
        let pending = ListParams::default().fields("status.phase=Pending").limit(PODS);
        let request = of::<Pod>(namespace).list(&pending);
        let body = self.call("list", "pods", request, LIST_MAX).await?;
        let pods: Pods = serde_json::from_slice(&body).map_err(|_| UNREADABLE)?;
        Ok(pending_pods(&pods.items))
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
