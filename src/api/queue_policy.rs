//! `QueuePolicy`: the weight of namespaces in the queue.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{cluster_registry::AllowedNamespace, schema};

/// The weight of namespaces in the queue: with tasks waiting in both, a namespace of weight 3 starts three for one of a namespace
/// of weight 1.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "QueuePolicy",
    plural = "queuepolicies",
    shortname = "qp",
    category = "renderhub"
)]
#[serde(rename_all = "camelCase")]
pub struct QueuePolicySpec {
    /// Namespaces that have the weight, whichever tenant has their name; `"*"` is every namespace, and the platform's own tasks. Where
    /// several policies match, one that names the namespace wins over `"*"`, then the larger weight wins.
    #[schemars(schema_with = "schema::allowed_namespaces")]
    pub namespaces: Vec<AllowedNamespace>,
    /// Turns for one of a namespace that no policy matches.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
}
