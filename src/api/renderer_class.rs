//! `RendererClass`: which renderer runs, and in what kind of pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LocalObjectReference, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{cluster_registry::AllowedNamespace, schema};

/// A renderer and the kind of pod it runs in.
#[derive(Clone, Debug, Default, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "RendererClass",
    plural = "rendererclasses",
    shortname = "rcls",
    category = "renderhub",
    status = "RendererClassStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct RendererClassSpec {
    /// Image of the renderer.
    #[schemars(schema_with = "schema::reference")]
    pub image: String,
    /// When the image is pulled. Default: Kubernetes' own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Command of the renderer. Default `/renderhub-renderer`; in mode `Single` the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::command_line")]
    pub command: Vec<String>,
    /// Arguments put before the hub's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::command_line")]
    pub args: Vec<String>,
    /// Secrets the image is pulled with, in the hub's release namespace: the hub copies them to where the Jobs run. One of the same name
    /// that was made by hand in the namespace of the Jobs is used as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::secret_names")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// What of these Secrets is copied. Default `Needed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secret_entries: Option<PullSecretEntries>,
    /// `Split`: one container renders, another pushes. `Single`: one foreign renderer does both and sees the credential.
    #[serde(default)]
    pub mode: RendererMode,
    /// Resources of each container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Nodes the pod may run on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints the pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// Priority class of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub priority_class_name: Option<String>,
    /// Runtime class of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub runtime_class_name: Option<String>,
    /// `ConfigMap` in the rendering namespace with certificates, key `trust-bundle.pem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub ca_config_map_name: Option<String>,
    /// Pods that may fail before the Job fails. Default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub backoff_limit: Option<i32>,
    /// Seconds after which the Job is ended. Default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub active_deadline_seconds: Option<i64>,
    /// Namespaces whose tasks may use the class; `"*"` is every namespace. Empty is every namespace in mode `Split` and none in
    /// mode `Single`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::allowed_namespaces")]
    pub allowed_namespaces: Vec<AllowedNamespace>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PullPolicy {
    /// Each time a pod starts.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never; the node must have it.
    Never,
}

/// What of a pull Secret goes to where Jobs run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PullSecretEntries {
    /// The entries that the kubelet tries for the image of the class, and no others.
    #[default]
    Needed,
    /// All of it, for nodes that pull from mirrors of other hosts.
    All,
}

/// How many containers see the credential and the tenant's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RendererMode {
    /// One container renders without a credential, another pushes without the tenant's input.
    #[default]
    Split,
    /// One container does both.
    Single,
}

/// What the hub says of a class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RendererClassStatus {
    /// `Ready`; `Isolated`: whether the credential and the tenant's input are kept in containers of their own; `PullSecretsResolved` where
    /// it names pull Secrets; `ImagePulled` while its image is not pulled.
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
}
