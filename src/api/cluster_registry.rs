//! `ClusterRegistry`: binds a platform credential to the one place it may go to.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Binds a platform credential to one registry host, scheme and repository prefix, and says which namespaces may use it.
#[derive(Clone, Debug, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "ClusterRegistry",
    plural = "clusterregistries",
    shortname = "creg",
    category = "renderhub",
    status = "ClusterRegistryStatus"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.tokenRealm) || self.tokenRealm.startsWith('https://') || self.plainHTTP")
        .message("tokenRealm must be https unless the registry itself is reached over plain HTTP")
)]
pub struct ClusterRegistrySpec {
    /// Host of the registry, with a port if it is not the scheme's own.
    #[schemars(schema_with = "schema::host")]
    pub hostname: String,
    /// Whether the registry is reached over plain HTTP. The credential then travels in clear text.
    #[serde(default, rename = "plainHTTP")]
    pub plain_http: bool,
    /// Secret in the rendering namespace with the credential. Absent: anonymous push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_secret_ref: Option<SecretReference>,
    /// Repositories start with this; `{namespace}` is the task's namespace. Default `{namespace}/`; empty grants the whole registry.
    #[serde(default = "default_repository_prefix")]
    #[schemars(schema_with = "schema::repository_prefix")]
    pub repository_prefix: String,
    /// Namespaces whose tasks may use the registry; `"*"` is every namespace.
    #[serde(default)]
    #[schemars(schema_with = "schema::allowed_namespaces")]
    pub allowed_namespaces: Vec<AllowedNamespace>,
    /// URL of the token service, where its origin differs from the registry's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::url")]
    pub token_realm: Option<String>,
    /// `ConfigMap` in the rendering namespace with the certificates the registry is verified against, besides the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_config_map_ref: Option<ConfigMapKeyReference>,
    /// Secret on target clusters that charts from this registry are pulled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub target_pull_secret_name: Option<String>,
    /// Whether the charts of versions of Targets that are not kept any more are deleted here, by digest and within
    /// `repositoryPrefix`. Absent: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<bool>,
    /// Whether the hub asks the registry for the chart before it reports success. Absent: it does for tasks that run on
    /// another cluster, and for others where the registry answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verification>,
}

/// The repository prefix of a registry that names none: each namespace has its own.
fn default_repository_prefix() -> String {
    "{namespace}/".to_owned()
}

/// Name of a namespace, or `"*"`.
pub type AllowedNamespace = String;

/// Names a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Name of the Secret.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// Names a key of a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyReference {
    /// Name of the `ConfigMap`.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Key of the `ConfigMap`. Default `trust-bundle.pem`.
    #[serde(default = "default_ca_key")]
    #[schemars(schema_with = "schema::data_key")]
    pub key: String,
}

/// The key that trust bundles are published under by convention.
fn default_ca_key() -> String {
    "trust-bundle.pem".to_owned()
}

/// Whether the hub asks the registry for the chart before it reports success. Absent: it does for tasks that run on another
/// cluster, and for others where the registry answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Verification {
    /// The renderer's word is enough, wherever it runs.
    None,
    /// The registry must hold the digest, or the task fails.
    Digest,
}

/// What the hub says of a registry.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRegistryStatus {
    /// `Ready`: the Secret exists, has a supported type and covers the host.
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
