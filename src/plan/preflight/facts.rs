//! What was learned of a cluster, for the checks to judge.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::ResourceRule;
use k8s_openapi::api::core::v1::ResourceQuotaSpec;
use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use k8s_openapi::api::rbac::v1::RoleBinding;

use super::needs::NeededPermission;
use super::tenants::TenantPermissions;
use crate::api::ClusterRegistrySpec;

/// Why a fact is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactError {
    /// The hub may not ask.
    Forbidden,
    /// The API server does not serve it, or in another form.
    Unreadable,
    /// Not asked for.
    NotAsked,
}

/// What was learned.
pub type Fact<T> = Result<T, FactError>;

/// The facts on which the preflight decides.
#[derive(Clone, Debug)]
pub struct PreflightFacts {
    /// Name of the rendering namespace.
    pub rendering: String,
    /// Whether one team owns the whole cluster.
    pub is_single_tenant: bool,
    /// The user name of the hub, as the API server sees it.
    pub user: Option<String>,
    /// Labels of the rendering namespace; `None` where it does not exist.
    pub namespace: Fact<Option<BTreeMap<String, String>>>,
    /// Whether a task lies in the rendering namespace.
    pub has_tasks: Fact<bool>,
    /// What tenants may do in the rendering namespace.
    pub rights: Fact<TenantPermissions>,
    /// Bindings of the rendering namespace.
    pub bindings: Fact<Vec<RoleBinding>>,
    /// Network policies of the rendering namespace.
    pub policies: Fact<Vec<NetworkPolicySpec>>,
    /// Quotas of the rendering namespace.
    pub quotas: Fact<Vec<ResourceQuotaSpec>>,
    /// What the hub may do.
    pub own_rules: Fact<HubPermissions>,
    /// What the pipeline lacks; `None` where it is off.
    pub pipeline: Fact<Option<PipelineFacts>>,
    /// Every registry of the platform, by name.
    pub registries: Fact<Vec<(String, ClusterRegistrySpec)>>,
}

/// The rights of the hub, as the API server lists them.
#[derive(Clone, Debug, Default)]
pub struct HubPermissions {
    /// In the rendering namespace.
    pub rendering: Vec<ResourceRule>,
    /// In the namespace of the kubeconfigs, where that is another.
    pub kubeconfigs: Vec<ResourceRule>,
    /// In a namespace that it has nothing to do with.
    pub elsewhere: Vec<ResourceRule>,
}

/// What a hub that makes tasks for Targets lacks.
#[derive(Clone, Debug, Default)]
pub struct PipelineFacts {
    /// Kinds that the API server does not serve, in the plural.
    pub missing_kinds: Vec<&'static str>,
    /// Permissions that the hub does not have, with their namespace; `None` is the whole cluster.
    pub missing_permissions: Vec<(Option<String>, NeededPermission)>,
}
