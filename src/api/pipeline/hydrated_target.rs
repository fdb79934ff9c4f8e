//! `HydratedTarget`: one version of a Target, with everything that its chart was made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::known_names::{NamesRelease, OmitsKnownNames, Rename};
use super::reference::NamespacedName;
use super::release_source::ReleaseSource;
use super::target::{RenderRegistryKind, is_default};
use crate::api::schema;

/// One version of a Target: the lock file of its cluster. The hub writes it, and nothing else may.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[kube(
    group = "renderhub.dev",
    version = "v1alpha1",
    kind = "HydratedTarget",
    plural = "hydratedtargets",
    shortname = "ht",
    category = "renderhub",
    namespaced,
    status = "HydratedTargetStatus"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct HydratedTargetSpec {
    /// Name of the Target.
    #[schemars(schema_with = "schema::object_name")]
    pub target_name: String,
    /// UID of the Target.
    #[schemars(schema_with = "schema::word")]
    pub target_uid: String,
    /// Number of the version; the chart's version is `v0.0.<number>`.
    #[schemars(range(min = 0, max = 1_000_000_000_000_u64))]
    pub version: i64,
    /// Where the chart is pushed to.
    pub registry: HydratedRegistry,
    /// The releases by unique name.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256))]
    #[x_kube(
        validation = Rule::new("self.all(key, size(key) <= 253)").message("a name has at most 253 characters")
    )]
    pub releases: BTreeMap<String, Arc<HydratedRelease>>,
    /// The data of Profiles that is in `userdata`, so that it stays while a Profile cannot be resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub profiles: Vec<HydratedProfile>,
    /// The data that is handed to every release, of the Target and its Profiles together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form")]
    pub userdata: Option<Value>,
    /// What differs from the version before, as a sentence for people.
    #[schemars(schema_with = "schema::line")]
    pub changes: String,
    /// The version whose content this is, where it is a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_u64))]
    pub rollback_to: Option<i64>,
}

impl OmitsKnownNames for HydratedTargetSpec {
    fn rename_namespace(&mut self, from: &str, to: &str) {
        let namespace = Rename { from, to };
        for (unique_name, release) in &mut self.releases {
            HydratedRelease::rename_in(release, unique_name, namespace);
        }
        for profile in &mut self.profiles {
            namespace.apply(&mut profile.namespace);
        }
    }
}

impl NamesRelease for HydratedRelease {
    fn name(&mut self) -> &mut String {
        &mut self.name
    }

    fn namespaces(&mut self) -> impl Iterator<Item = &mut String> {
        let bindings = self
            .registry_bindings
            .iter_mut()
            .map(|binding| &mut binding.namespace);
        let version = &mut self.component_version_ref.namespace;
        [&mut self.namespace, &mut self.source.namespace, version]
            .into_iter()
            .chain(bindings)
    }

    fn names(&self, name: &str, namespace: &str) -> bool {
        let bindings = self.registry_bindings.iter().map(|binding| &binding.namespace);
        let own = [
            &self.namespace,
            &self.source.namespace,
            &self.component_version_ref.namespace,
        ];
        self.name == name || own.into_iter().chain(bindings).any(|named| named == namespace)
    }
}

/// Where the chart of a version is pushed to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HydratedRegistry {
    /// Kind of the registry.
    pub kind: RenderRegistryKind,
    /// Name of the registry.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Namespace of a `Registry`, where it is another than the Target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: Option<String>,
    /// Host of the registry when the version was made.
    #[schemars(schema_with = "schema::host")]
    pub hostname: String,
    /// Repository of the chart.
    #[schemars(schema_with = "schema::repository")]
    pub repository: String,
}

/// A release in a version.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HydratedRelease {
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
    /// The `RegistryBindings` by which the Secrets for its artifacts are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub registry_bindings: Vec<NamespacedName>,
    /// The `ComponentVersion`.
    pub component_version_ref: NamespacedName,
    /// The version of the component, as its catalog calls it.
    #[schemars(schema_with = "schema::shown_version")]
    pub component_version: String,
    /// Repository of its chart, with the host.
    #[schemars(schema_with = "schema::reference")]
    pub repository: String,
    /// Version of its chart.
    #[schemars(schema_with = "schema::made_version")]
    pub version: String,
    /// Whether its chart is pulled over plain HTTP; without a value it is not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub insecure: bool,
    /// Secret on the target cluster that its chart is pulled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub pull_secret_name: Option<String>,
    /// Digest of its chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::digest")]
    pub digest: Option<String>,
}

/// Data of a Profile in a version.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HydratedProfile {
    /// Namespace of the Profile, where it is another than the Target's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: String,
    /// Name of the Profile.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// Unique name of the Release that it puts on the Target.
    #[schemars(schema_with = "schema::object_name")]
    pub unique_name: String,
    /// Its data.
    #[schemars(schema_with = "schema::free_form")]
    pub userdata: Value,
}

/// What became of a version.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HydratedTargetStatus {
    /// `Ready`: the chart was pushed; `Stalled` where only a person can help. None before it was pushed or failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of; -1 until the chart was pushed or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1))]
    pub observed_generation: Option<i64>,
    /// Digest of the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::digest")]
    pub digest: Option<String>,
    /// When the chart was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_at: Option<Time>,
    /// Set once the version is not kept any more and its registry prunes: its charts are deleted there before this object goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<PruneProgress>,
    /// Proves that the hub wrote the status; one without it is written anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::seal")]
    pub seal: Option<String>,
}

/// How far the deletion of a version's charts is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PruneProgress {
    /// Since when the version is not kept.
    pub since: Time,
    /// `ServiceAccount` as which a `Registry` is read: that of the Target, which may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub service_account_name: Option<String>,
    /// Attempts that failed.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub attempts: i32,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<PruneFailure>,
    /// When the next attempt is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Time>,
}

/// Why charts were not deleted from a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum PruneFailure {
    /// The registry does not exist, or may not be used for the namespace any more.
    NotGranted,
    /// The registry's Secret or certificates cannot be used, or may not be read.
    NoCredential,
    /// The registry does not let the credential delete, or lets no client delete.
    Refused,
    /// The registry did not answer in time.
    Unreachable,
    /// The registry answered with something else than the protocol has, or led elsewhere.
    BadAnswer,
    /// It did not work; the hub says no more of a registry that a tenant chose and that asked for no credential.
    Failed,
}
