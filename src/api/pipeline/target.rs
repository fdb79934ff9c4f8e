//! `Target`: a cluster that gets releases, and where its charts are rendered to.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::known_names::{NamesRelease, OmitsKnownNames, Rename};
use super::reference::NamespacedName;
use super::release_source::ReleaseSource;
use crate::api::schema;

/// A cluster that gets releases: the hub renders a chart of all of them and pushes it, and Flux on that cluster installs it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "Target",
    plural = "targets",
    shortname = "tgt",
    category = "renderhub",
    namespaced,
    status = "TargetStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct TargetSpec {
    /// Registry that the Target's charts are pushed to.
    pub render_registry_ref: RenderRegistryReference,
    /// Free-form data handed to every release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form")]
    pub userdata: Option<Value>,
    /// `ServiceAccount` in the Target's namespace as which a `Registry` is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub service_account_name: Option<String>,
    /// The class of renderer that renders the charts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub renderer_class_name: Option<String>,
    /// `RenderCluster` that the charts are rendered on; it says nothing of where they are installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub render_cluster_name: Option<String>,
    /// Whether nothing is rendered for the Target until further notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Versions that are kept, besides the newest. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub history_limit: Option<i32>,
    /// Version whose content the Target has until the field is removed, whatever is bound to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64))]
    pub rollback_to: Option<i64>,
    /// Whether a chart without any release may be rendered, which removes all of them from the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_empty: Option<bool>,
}

/// Names the registry that the charts of a Target are pushed to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.namespace) || !has(self.kind) || self.kind == 'Registry'")
        .message("namespace is allowed only with kind Registry")
)]
pub struct RenderRegistryReference {
    /// Kind of the registry.
    #[serde(default)]
    pub kind: RenderRegistryKind,
    /// Name of the registry.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Namespace of a `Registry`. Default: the Target's namespace; another one must have a `ReferenceGrant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: Option<String>,
}

/// Kind of a registry that a Target can name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum RenderRegistryKind {
    /// A registry of the tenant.
    #[default]
    Registry,
    /// A registry of the platform.
    ClusterRegistry,
}

/// What the hub says of a Target.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// `RegistryResolved`, `ReleasesResolved`, `ReleasesRendered`, `BootstrapReady`, `Ready` (the newest version is pushed: it
    /// does not say that it runs) and, where only a person can help, `Stalled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of; -1 until the hub has looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1))]
    pub observed_generation: Option<i64>,
    /// The newest version that was made. Its number is used once, whatever becomes of its `HydratedTarget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_u64))]
    pub newest_version: Option<i64>,
    /// The newest version that was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_u64))]
    pub bootstrap_version: Option<i64>,
    /// Where its chart is: `oci://host/repository:tag`.
    #[serde(default, rename = "chartURL", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::chart_url")]
    pub chart_url: Option<String>,
    /// The Releases that the Target has, by unique name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub releases: Vec<Arc<TargetRelease>>,
    /// Releases and data of Profiles whose selector matches no more, and since when: they leave a minute later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 512), extend("x-kubernetes-list-type" = "atomic"))]
    pub leaving: Vec<LeavingRelease>,
    /// Proves that the hub wrote the status; one without it is written anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seal")]
    pub seal: Option<String>,
}

impl OmitsKnownNames for TargetStatus {
    fn rename_namespace(&mut self, from: &str, to: &str) {
        let namespace = Rename { from, to };
        for release in &mut self.releases {
            let unique_name = release.unique_name.clone();
            TargetRelease::rename_in(release, &unique_name, namespace);
        }
        for profile in self.leaving.iter_mut().filter_map(|one| one.profile.as_mut()) {
            namespace.apply(&mut profile.namespace);
        }
    }
}

impl NamesRelease for TargetRelease {
    fn name(&mut self) -> &mut String {
        &mut self.name
    }

    fn namespaces(&mut self) -> impl Iterator<Item = &mut String> {
        [&mut self.namespace, &mut self.source.namespace].into_iter()
    }

    fn names(&self, name: &str, namespace: &str) -> bool {
        self.name == name || self.namespace == namespace || self.source.namespace == namespace
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A Release that a Target has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetRelease {
    /// The name of which a Target has one Release.
    #[schemars(schema_with = "schema::object_name")]
    pub unique_name: String,
    /// Namespace of the Release, where it is another than the Target's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: String,
    /// Name of the Release, where it is another than its unique name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// What put it on the Target: `KIND/NAME`, or `KIND/NAMESPACE/NAME` where the namespace is another than the Target's.
    #[schemars(schema_with = "schema::release_source")]
    pub source: ReleaseSource,
    /// Its priority; without one it is 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Version of its chart.
    #[schemars(schema_with = "schema::made_version")]
    pub version: String,
}

/// A Release whose selector matches the Target no more, or the data of such a Profile whose Release stays.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeavingRelease {
    /// The name of which a Target has one Release.
    #[schemars(schema_with = "schema::object_name")]
    pub unique_name: String,
    /// The Profile whose data leaves; the Release itself leaves without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<NamespacedName>,
    /// Since when the selector does not match.
    pub since: Time,
}
