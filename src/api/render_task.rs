//! `RenderTask`: what a tenant submits, and what the hub says of it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster_registry::SecretReference;
use super::renderer_config::RendererConfig;

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
pub struct RenderTaskSpec {
    /// What to render.
    pub config: RendererConfig,
    /// Repository the chart is pushed to, without host. Its last segment must equal the chart's name.
    pub repository: String,
    /// Tag the chart is pushed under. Must equal the chart's version.
    pub tag: String,
    /// Registry the chart is pushed to. Required unless `baseURL` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_ref: Option<RegistryReference>,
    /// Host of a registry of your own, instead of `registryRef`.
    #[serde(default, rename = "baseURL", skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Secret in the task's own namespace (of a `ClusterRenderTask`: in the rendering namespace) to push to `baseURL` with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_secret_ref: Option<SecretReference>,
    /// Whether `baseURL` is reached over plain HTTP.
    #[serde(default, rename = "plainHTTP", skip_serializing_if = "Option::is_none")]
    pub plain_http: Option<bool>,
    /// The class of renderer that runs. Default: the class marked as default, else the hub's own renderer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renderer_class_name: Option<String>,
    /// ServiceAccount in the task's namespace; everything the task names is read as it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// `RenderCluster` the Job runs on. Default: the hub's own cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// A cluster of your own that the Job runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfigReference>,
    /// Namespace on the cluster that `kubeConfig` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_namespace: Option<String>,
    /// Seconds a failed Job and its config Secret are kept after the Job's end. Default 3600.
    #[serde(default, rename = "failedJobTTL", skip_serializing_if = "Option::is_none")]
    pub failed_job_ttl: Option<i32>,
    /// Seconds after its end at which the finished task itself is removed. Default: it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Who made the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// Names a registry.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryReference {
    /// Kind of the registry.
    #[serde(default)]
    pub kind: RegistryKind,
    /// Name of the registry.
    pub name: String,
}

/// Kind of a registry a task can name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
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
    pub name: String,
    /// Key in the Secret. Default: `value`, then `value.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Namespace of the Secret. Default: the task's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Who made a task.
#[derive(Clone, Debug, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Kind of the owner.
    pub kind: String,
    /// Namespace of the owner; empty for a cluster-scoped owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the owner.
    pub name: String,
}

/// What the hub says of a task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenderTaskStatus {
    /// `JobScheduled`, `JobSucceeded`, `JobFailed`, `Ready` and, where only a person can help, `Stalled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The Job that renders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_ref: Option<ObjectRef>,
    /// The Secret with the renderer's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_secret_ref: Option<ObjectRef>,
    /// Where the chart is: `oci://host/repository:tag`.
    #[serde(default, rename = "chartURL", skip_serializing_if = "Option::is_none")]
    pub chart_url: Option<String>,
    /// Digest of the pushed manifest: `sha256:` and 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Pods that have run for the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
}

/// An object that serves a task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// `RenderCluster` the object is on; absent for the hub's own cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// API version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
