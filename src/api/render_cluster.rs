//! `RenderCluster`: a cluster of the platform's that Jobs can run on.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::cluster_registry::AllowedNamespace;
use super::schema;

/// A cluster that renders for the hub: how it is reached, who may use it, and which credentials may go there.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "RenderCluster",
    plural = "renderclusters",
    shortname = "rcl",
    category = "renderhub",
    status = "RenderClusterStatus"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.renderNamespace == oldSelf.renderNamespace")
        .message("renderNamespace cannot be changed, because Jobs may run there; make another RenderCluster")
)]
pub struct RenderClusterSpec {
    /// The kubeconfig that the cluster is reached with.
    pub kube_config: ClusterKubeConfig,
    /// Namespace on the cluster that Jobs run in.
    #[schemars(schema_with = "schema::namespace")]
    pub render_namespace: String,
    /// Namespaces whose tasks may run there; `"*"` is every namespace.
    #[serde(default)]
    #[schemars(schema_with = "schema::allowed_namespaces")]
    pub allowed_namespaces: Vec<AllowedNamespace>,
    /// `ClusterRegistries` whose credentials may be copied to the cluster, each into the Secret of the task that needs it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::object_names")]
    pub registries: Vec<String>,
    /// Jobs there at once. Default: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_active_jobs: Option<i32>,
    /// Requests a second to the cluster, in the long run. Default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000))]
    pub qps: Option<i32>,
    /// Requests at once after a pause. Default 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000))]
    pub burst: Option<i32>,
    /// Whether nothing new is started there; what runs goes on.
    #[serde(default)]
    pub suspend: bool,
    /// Whether the hub keeps away from the cluster: no connection, nothing new, and no time counts against what runs there.
    #[serde(default)]
    pub disconnect: bool,
}

/// Where the kubeconfig of a `RenderCluster` is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterKubeConfig {
    /// Secret with the kubeconfig, in the namespace of `--cluster-namespace`.
    pub secret_ref: ClusterSecretReference,
}

/// A key of a Secret in the hub's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSecretReference {
    /// Name of the Secret.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Key in the Secret. Default: `value`, then `value.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::data_key")]
    pub key: Option<String>,
}

/// What the hub says of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenderClusterStatus {
    /// `Connected`: the hub reaches the cluster, and may do there what it must.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// UID of each listed namespace when the hub first saw it: another namespace of the same name is not allowed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::namespace_uids")]
    pub namespaces: BTreeMap<String, String>,
    /// Version of Kubernetes there: major and minor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub version: Option<String>,
    /// When the cluster answered the hub last, to within some minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// Jobs of this hub that run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub active_jobs: Option<i32>,
    /// Attempts to connect since the connection was lost; absent while the hub is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub connection_attempts: Option<i32>,
    /// When the next attempt to connect is made; absent while the hub is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_connection_attempt: Option<Time>,
}
