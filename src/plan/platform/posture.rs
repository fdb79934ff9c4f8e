//! How strict the settings of a hub are: one log line at its start, and a metric for as long as it runs.

use std::collections::BTreeSet;

use super::feature_gates::{FeatureGate, FeatureGates};
use super::identity_method::IdentityMethod;
use super::tenancy::TenancyPolicy;
use crate::plan::preflight::PreflightCheck;

/// The settings that make a hub stricter or less strict.
#[derive(Clone, Debug, Default)]
pub struct SecurityPosture {
    /// What tenants' references may do.
    pub tenancy: TenancyPolicy,
    /// How the hub becomes the ServiceAccount of a task.
    pub identity_method: IdentityMethod,
    /// Checks that an administrator does without.
    pub skipped: BTreeSet<PreflightCheck>,
    /// Features that are turned on.
    pub gates: FeatureGates,
    /// Whether clusters may be at addresses that are refused otherwise.
    pub allows_refused_addresses: bool,
    /// Whether metrics name namespaces of tenants.
    pub names_namespaces: bool,
}

impl SecurityPosture {
    /// `multi-tenant` or `single-tenant`.
    #[must_use]
    pub const fn mode(&self) -> &'static str {
        if self.tenancy.is_single_tenant {
            "single-tenant"
        } else {
            "multi-tenant"
        }
    }

    /// Every setting that is less strict than the default, by a name of a closed list.
    #[must_use]
    pub fn relaxed(&self) -> Vec<&'static str> {
        let TenancyPolicy {
            default_service_account,
            crosses_namespaces,
            is_single_tenant,
            own_hosts,
        } = &self.tenancy;
        let settings = [
            is_single_tenant.then_some("single-tenant"),
            crosses_namespaces.then_some("cross-namespace-refs"),
            default_service_account
                .as_ref()
                .map(|_| "default-service-account"),
            // One team that owns the cluster pushes where it likes without this setting.
            (!own_hosts.is_empty() && !is_single_tenant).then_some("own-registry-hosts"),
            self.identity_method.relaxed(),
            self.allows_refused_addresses.then_some("cluster-allow-cidrs"),
            self.names_namespaces.then_some("metrics-by-namespace"),
        ];
        let gates = FeatureGate::ALL
            .into_iter()
            .filter(|gate| self.gates.is_open(*gate));
        let skipped = self.skipped.iter().map(|check| skip_flag(*check));
        settings
            .into_iter()
            .flatten()
            .chain(gates.map(gate_flag))
            .chain(skipped)
            .collect()
    }
}

const fn gate_flag(gate: FeatureGate) -> &'static str {
    match gate {
        FeatureGate::ExternalClusterReference => "feature-gate-external-cluster-reference",
        FeatureGate::ExternalClusterReferenceCrossNamespace => {
            "feature-gate-external-cluster-reference-cross-namespace"
        }
    }
}

const fn skip_flag(check: PreflightCheck) -> &'static str {
    match check {
        PreflightCheck::RenderingNamespace => "skip-preflight-rendering-namespace",
        PreflightCheck::TenantTasks => "skip-preflight-tenant-tasks",
        PreflightCheck::TenantRights => "skip-preflight-tenant-rights",
        PreflightCheck::RoleBindings => "skip-preflight-role-bindings",
        PreflightCheck::PodSecurity => "skip-preflight-pod-security",
        PreflightCheck::NetworkPolicy => "skip-preflight-network-policy",
        PreflightCheck::ResourceQuota => "skip-preflight-resource-quota",
        PreflightCheck::OwnRights => "skip-preflight-own-rights",
        PreflightCheck::RegistryScope => "skip-preflight-registry-scope",
        PreflightCheck::Pipeline => "skip-preflight-pipeline",
        PreflightCheck::Peers => "skip-preflight-peers",
        PreflightCheck::UnownedNamespaces => "skip-preflight-unowned-namespaces",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::platform::tenancy::TenantRegistryHosts;

    #[test]
    fn the_default_is_relaxed_in_nothing() {
        let strict = SecurityPosture::default();
        assert_eq!(
            (strict.mode(), strict.identity_method.as_str()),
            ("multi-tenant", "token")
        );
        assert!(strict.relaxed().is_empty());
    }

    #[test]
    fn each_relaxed_setting_is_named() {
        let relaxed = SecurityPosture {
            tenancy: TenancyPolicy {
                default_service_account: Some("builder".to_owned()),
                crosses_namespaces: true,
                is_single_tenant: true,
                own_hosts: TenantRegistryHosts::any(),
            },
            identity_method: IdentityMethod::Impersonate,
            skipped: PreflightCheck::ALL
                .into_iter()
                .filter(|check| check.can_be_skipped())
                .collect(),
            gates: FeatureGates::parse(["ExternalClusterReferenceCrossNamespace=true"]).unwrap(),
            allows_refused_addresses: true,
            names_namespaces: true,
        };
        assert_eq!(
            (relaxed.mode(), relaxed.identity_method.as_str()),
            ("single-tenant", "impersonate")
        );
        let named: BTreeSet<_> = relaxed.relaxed().into_iter().collect();
        assert_eq!(named.len(), 8 + relaxed.skipped.len());
        for check in &relaxed.skipped {
            assert!(named.contains(&*format!("skip-preflight-{check}")), "{check}");
        }
    }
}
