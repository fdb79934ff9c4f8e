//! `RenderTask`: what a tenant submits, and what the hub says of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{cluster_registry::SecretReference, renderer_config::RendererConfig, schema};

/// Asks the hub to render a chart and to push it to an OCI registry. The spec cannot be changed; make a new task.
#[derive(Clone, Debug, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "RenderTask",
    plural = "rendertasks",
    shortname = "rt",
    category = "renderhub",
    namespaced,
    status = "RenderTaskStatus"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    validation = Rule::new("has(self.registryRef) != has(self.baseURL)")
        .message("exactly one of registryRef and baseURL is required"),
    validation = Rule::new("has(self.baseURL) || !has(self.pushSecretRef)")
        .message("pushSecretRef is allowed only with baseURL"),
    validation = Rule::new("has(self.baseURL) || !has(self.plainHTTP)")
        .message("plainHTTP is allowed only with baseURL"),
    validation = Rule::new("!has(self.clusterName) || !has(self.kubeConfig)")
        .message("clusterName and kubeConfig exclude each other"),
    validation = Rule::new("has(self.kubeConfig) || !has(self.deploymentNamespace)")
        .message("deploymentNamespace is allowed only with kubeConfig"),
    validation = Rule::new("!has(self.config.release) || ('/' + self.repository).endsWith('/' + self.config.release.chart.name)")
        .message("the last segment of repository must equal config.release.chart.name"),
    validation = Rule::new("!has(self.config.release) || self.tag == self.config.release.chart.version.replace('+', '_')")
        .message("tag must equal config.release.chart.version, with _ for +"),
    validation = Rule::new("!has(self.config.bootstrap) || ('/' + self.repository).endsWith('/' + self.config.bootstrap.chart.name)")
        .message("the last segment of repository must equal config.bootstrap.chart.name"),
    validation = Rule::new("!has(self.config.bootstrap) || self.tag == self.config.bootstrap.chart.version.replace('+', '_')")
        .message("tag must equal config.bootstrap.chart.version, with _ for +")
)]
pub struct RenderTaskSpec {
    /// What to render.
    pub config: RendererConfig,
    /// Repository the chart is pushed to, without host. Its last segment must equal the chart's name.
    #[schemars(schema_with = "schema::repository")]
    pub repository: String,
    /// Tag the chart is pushed under. Must equal the chart's version, with `_` for `+`.
    #[schemars(schema_with = "schema::tag")]
    pub tag: String,
    /// Registry the chart is pushed to. Required unless `baseURL` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_ref: Option<RegistryReference>,
    /// Host of a registry of your own, instead of `registryRef`.
    #[serde(default, rename = "baseURL", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::host")]
    pub base_url: Option<String>,
    /// Secret in the task's own namespace (of a `ClusterRenderTask`: in the rendering namespace) to push to `baseURL` with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_secret_ref: Option<SecretReference>,
    /// Whether `baseURL` is reached over plain HTTP.
    #[serde(default, rename = "plainHTTP", skip_serializing_if = "Option::is_none")]
    pub plain_http: Option<bool>,
    /// The class of renderer that runs. Default: the class marked as default, else the hub's own renderer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub renderer_class_name: Option<String>,
    /// `ServiceAccount` in the task's namespace; everything the task names is read as it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub service_account_name: Option<String>,
    /// `RenderCluster` the Job runs on. Default: the hub's own cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub cluster_name: Option<String>,
    /// A cluster of your own that the Job runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// Namespace on the cluster that `kubeConfig` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub deployment_namespace: Option<String>,
    /// Seconds a failed Job and its config Secret are kept after the Job's end. Default 3600.
    #[serde(default, rename = "failedJobTTL", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 604_800))]
    pub failed_job_ttl: Option<i32>,
    /// Seconds after its end at which the finished task itself is removed. Default: it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Who made the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<TaskOwner>,
}

/// Names a registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.namespace) || self.kind == 'Registry'")
        .message("namespace is allowed only with kind Registry")
)]
pub struct RegistryReference {
    /// Kind of the registry.
    #[serde(default)]
    pub kind: RegistryKind,
    /// Name of the registry.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Namespace of a `Registry`. Default: the task's namespace; another one must have a `ReferenceGrant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: Option<String>,
}

/// Kind of a registry a task can name.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum RegistryKind {
    /// A registry of the platform.
    #[default]
    ClusterRegistry,
    /// A registry of the tenant, in the task's namespace.
    Registry,
}

/// A cluster of the tenant's own.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigReference {
    /// Secret with the kubeconfig.
    pub secret_ref: KubeConfigSecretReference,
}

/// A key of a Secret that holds a kubeconfig.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigSecretReference {
    /// Name of the Secret.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Key in the Secret. Default: `value`, then `value.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::data_key")]
    pub key: Option<String>,
    /// Namespace of the Secret. Default: the task's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: Option<String>,
}

/// Who made a task.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskOwner {
    /// Kind of the owner.
    #[schemars(schema_with = "schema::kind")]
    pub kind: String,
    /// Namespace of the owner; empty for a cluster-scoped owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace_or_none")]
    pub namespace: Option<String>,
    /// Name of the owner.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// What the hub says of a task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenderTaskStatus {
    /// `JobScheduled`, `JobSucceeded`, `JobFailed`, `Ready` and, where only a person can help, `Stalled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// The Job that renders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_ref: Option<TaskObjectReference>,
    /// The Secret with the renderer's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_secret_ref: Option<TaskObjectReference>,
    /// Where the chart is: `oci://host/repository:tag`.
    #[serde(default, rename = "chartURL", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::chart_url")]
    pub chart_url: Option<String>,
    /// Digest of the pushed manifest: `sha256:` and 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::digest")]
    pub digest: Option<String>,
    /// Pods that have run for the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub attempts: Option<i32>,
    /// When the Job was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the Job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Why the Job failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<TaskFailure>,
    /// Proves that the hub wrote the status; without it the status is written anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seal")]
    pub seal: Option<String>,
}

/// An object that serves a task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskObjectReference {
    /// `RenderCluster` the object is on; absent for the hub's own cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub cluster: Option<String>,
    /// API version of the object.
    #[schemars(schema_with = "schema::word")]
    pub api_version: String,
    /// Kind of the object.
    #[schemars(schema_with = "schema::kind")]
    pub kind: String,
    /// Namespace of the object.
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: String,
    /// Name of the object.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub uid: Option<String>,
}

/// Why a Job failed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskFailure {
    /// The step that failed.
    pub phase: FailurePhase,
    /// Exit code of the container that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What happened and what to do, in renderhub's own words.
    #[schemars(schema_with = "schema::message")]
    pub message: String,
}

/// The step of a Job that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum FailurePhase {
    /// The pod did not start or was ended from outside.
    Pod,
    /// Making the chart.
    Render,
    /// Pushing the chart.
    Push,
}
