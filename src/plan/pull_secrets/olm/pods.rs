//! Pods that are not running yet: which wait for an image, and which may yet find out that they cannot pull it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use super::observed::ObservedPod;
use crate::plan::pull_secrets::ownership::is_copy_name;
use crate::plan::pull_secrets::pull_failure::PullFailure;

/// Pods of a namespace that are not running yet.
#[derive(Clone, Debug, Default)]
pub struct PendingPods {
    /// Those that wait for an image, by name.
    pub waiting: BTreeMap<String, ObservedPod>,
    /// Those that do not yet.
    pub starting: Vec<ObservedPod>,
}

/// What is known of these pods. Those that no `ReplicaSet` made are left out: they would not come back.
#[must_use]
pub fn pending_pods(pods: impl IntoIterator<Item = Pod>) -> PendingPods {
    let mut pending = PendingPods::default();
    for pod in pods {
        let Some((name, observed)) = observed(&pod) else {
            continue;
        };
        if PullFailure::of(&pod, &[]).is_some() {
            pending.waiting.insert(name, observed);
        } else {
            pending.starting.push(observed);
        }
    }
    pending
}

fn observed(pod: &Pod) -> Option<(String, ObservedPod)> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref()?);
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "ReplicaSet")?;
    let named = spec.image_pull_secrets.iter().flatten();
    let observed = ObservedPod {
        uid: meta.uid.clone()?,
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        account: spec.service_account_name.clone()?,
        replica_set: (owner.name.clone(), owner.uid.clone()),
        copies: named
            .map(|secret| secret.name.clone())
            .filter(|name| is_copy_name(name))
            .collect(),
    };
    Some((meta.name.clone()?, observed))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, owner: &Value, waiting: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "ownerReferences": [owner]},
            "spec": {"containers": [], "serviceAccountName": "etcd", "imagePullSecrets": [
                {"name": "mine"}, {"name": "olm-pull-x-0123456789abcdef"},
            ]},
            "status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": waiting}}}]},
        }))
        .unwrap()
    }

    #[test]
    fn pods_of_a_replica_set_wait_for_an_image_or_may_yet() {
        let owner = |kind: &str, controller: bool| json!({"apiVersion": "apps/v1", "kind": kind, "name": "set", "uid": "set-uid", "controller": controller});
        let pending = pending_pods([
            pod("refused", &owner("ReplicaSet", true), "ErrImagePull"),
            pod("backing-off", &owner("ReplicaSet", true), "ImagePullBackOff"),
            pod("starting", &owner("ReplicaSet", true), "ContainerCreating"),
            pod("of-a-job", &owner("Job", true), "ErrImagePull"),
            pod("of-another", &owner("ReplicaSet", false), "ErrImagePull"),
        ]);
        let waiting: Vec<&str> = pending.waiting.keys().map(String::as_str).collect();
        assert_eq!(waiting, ["backing-off", "refused"]);
        assert_eq!(pending.starting.len(), 1);
        let found = &pending.waiting["refused"];
        assert_eq!(found.replica_set, ("set".to_owned(), "set-uid".to_owned()));
        assert_eq!(found.copies, ["olm-pull-x-0123456789abcdef".to_owned()].into());
        assert_eq!(found.account, "etcd");
    }
}
