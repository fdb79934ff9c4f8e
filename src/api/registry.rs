//! `Registry`: a tenant's own registry and the tenant's own credential for it.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::cluster_registry::{ConfigMapKeyReference, SecretReference};
use super::schema;

/// A registry of a tenant. Everything it names is in its own namespace and is read as the `ServiceAccount` of the task that
/// names it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "Registry",
    plural = "registries",
    shortname = "reg",
    category = "renderhub",
    namespaced
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.tokenRealm) || self.tokenRealm.startsWith('https://') || (has(self.plainHTTP) && self.plainHTTP)")
        .message("tokenRealm must be https unless the registry itself is reached over plain HTTP"),
    validation = Rule::new("!has(self.pushSecretRef) || !has(self.solarSecretRef)")
        .message("solarSecretRef is another name of pushSecretRef; set one of them")
)]
pub struct RegistrySpec {
    /// Host of the registry, with a port if it is not the scheme's own.
    #[schemars(schema_with = "schema::host")]
    pub hostname: String,
    /// Whether the registry is reached over plain HTTP. The credential then travels in clear text.
    #[serde(default, rename = "plainHTTP", skip_serializing_if = "Option::is_none")]
    pub plain_http: Option<bool>,
    /// Secret in the registry's namespace with the credential. Absent: anonymous push, and no Target renders to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_secret_ref: Option<SecretReference>,
    /// The same as `pushSecretRef`, by its name in `SolAr`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solar_secret_ref: Option<SecretReference>,
    /// Repositories must start with this; `{namespace}` is the task's namespace. Default: any repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::repository_prefix")]
    pub repository_prefix: Option<String>,
    /// URL of the token service, where its origin differs from the registry's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::url")]
    pub token_realm: Option<String>,
    /// `ConfigMap` in the registry's namespace with the certificates the registry is verified against, besides the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_config_map_ref: Option<ConfigMapKeyReference>,
    /// Secret on target clusters that charts and images from this registry are pulled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub target_pull_secret_name: Option<String>,
    /// Whether the charts of versions of Targets that are not kept any more are deleted here, by digest and within
    /// `repositoryPrefix`. Absent: they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<bool>,
    /// For `SolAr`'s discovery; this hub does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::line")]
    pub flavor: Option<String>,
    /// For `SolAr`'s discovery; this hub does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::line")]
    pub webhook_path: Option<String>,
    /// For `SolAr`'s discovery; this hub does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::line")]
    pub scan_interval: Option<String>,
}

impl RegistrySpec {
    /// The same with the credential under the hub's own name.
    #[must_use]
    pub fn with_own_names(mut self) -> Self {
        let by_solar = self.solar_secret_ref.take();
        self.push_secret_ref = self.push_secret_ref.take().or(by_solar);
        self
    }
}
