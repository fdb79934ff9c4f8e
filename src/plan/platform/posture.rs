//! How strict a hub was told to be: one line at its start, and a metric for as long as it runs.

use std::collections::BTreeSet;

use super::gates::{Gate, Gates};
use super::tenancy::Tenancy;
use crate::plan::preflight::Check;

/// The settings that make a hub stricter or less strict.
#[derive(Clone, Debug, Default)]
pub struct Posture {
    /// What tenants' references may do.
    pub tenancy: Tenancy,
    /// Whether the hub becomes a tenant's ServiceAccount by impersonation.
    pub impersonates: bool,
    /// Checks that an administrator does without.
    pub skipped: BTreeSet<Check>,
    /// Features that are turned on.
    pub gates: Gates,
    /// Whether clusters may be at addresses that are refused otherwise.
    pub allows_refused_addresses: bool,
    /// Whether metrics name namespaces of tenants.
    pub names_namespaces: bool,
}

impl Posture {
    /// `multi-tenant` or `single-tenant`.
    #[must_use]
    pub const fn mode(&self) -> &'static str {
        if self.tenancy.is_single_tenant {
            "single-tenant"
        } else {
            "multi-tenant"
        }
    }

    /// `token` or `impersonate`.
    #[must_use]
    pub const fn identity(&self) -> &'static str {
        if self.impersonates { "impersonate" } else { "token" }
    }

    /// Every setting that is less strict than the default, by a name of a closed list.
    #[must_use]
    pub fn relaxed(&self) -> Vec<&'static str> {
        let Tenancy {
            default_service_account,
            crosses_namespaces,
            is_single_tenant,
            own_hosts,
        } = &self.tenancy;
        let settings = [
            (*is_single_tenant, "single-tenant"),
            (*crosses_namespaces, "cross-namespace-refs"),
            (default_service_account.is_some(), "default-service-account"),
            // One team that owns the cluster pushes where it likes without this setting.
            (!own_hosts.is_empty() && !is_single_tenant, "own-registry-hosts"),
            (self.impersonates, "tenant-identity-impersonate"),
            (self.allows_refused_addresses, "cluster-allow-cidrs"),
            (self.names_namespaces, "metrics-by-namespace"),
        ];
        let gates = Gate::ALL.into_iter().filter(|gate| self.gates.is_open(*gate));
        let skipped = self.skipped.iter().map(|check| skip_of(*check));
        settings
            .into_iter()
            .filter_map(|(is_set, name)| is_set.then_some(name))
            .chain(gates.map(gate_of))
            .chain(skipped)
            .collect()
    }
}

const fn gate_of(gate: Gate) -> &'static str {
    match gate {
        Gate::ExternalClusterReference => "feature-gate-external-cluster-reference",
        Gate::ExternalClusterReferenceCrossNamespace => {
            "feature-gate-external-cluster-reference-cross-namespace"
        }
    }
}

const fn skip_of(check: Check) -> &'static str {
    match check {
        Check::RenderingNamespace => "skip-preflight-rendering-namespace",
        Check::TenantTasks => "skip-preflight-tenant-tasks",
        Check::TenantRights => "skip-preflight-tenant-rights",
        Check::RoleBindings => "skip-preflight-role-bindings",
        Check::PodSecurity => "skip-preflight-pod-security",
        Check::NetworkPolicy => "skip-preflight-network-policy",
        Check::ResourceQuota => "skip-preflight-resource-quota",
        Check::OwnRights => "skip-preflight-own-rights",
        Check::RegistryScope => "skip-preflight-registry-scope",
        Check::Peers => "skip-preflight-peers",
        Check::UnownedNamespaces => "skip-preflight-unowned-namespaces",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::platform::tenancy::OwnHosts;

    #[test]
    fn the_default_is_relaxed_in_nothing() {
        let strict = Posture::default();
        assert_eq!((strict.mode(), strict.identity()), ("multi-tenant", "token"));
        assert!(strict.relaxed().is_empty());
    }

    #[test]
    fn each_relaxed_setting_is_named() {
        let relaxed = Posture {
            tenancy: Tenancy {
                default_service_account: Some("builder".to_owned()),
                crosses_namespaces: true,
                is_single_tenant: true,
                own_hosts: OwnHosts::any(),
            },
            impersonates: true,
            skipped: Check::ALL
                .into_iter()
                .filter(|check| check.can_be_skipped())
                .collect(),
            gates: Gates::parse(["ExternalClusterReferenceCrossNamespace=true"]).unwrap(),
            allows_refused_addresses: true,
            names_namespaces: true,
        };
        assert_eq!(
            (relaxed.mode(), relaxed.identity()),
            ("single-tenant", "impersonate")
        );
        let named: BTreeSet<_> = relaxed.relaxed().into_iter().collect();
        assert_eq!(named.len(), 8 + relaxed.skipped.len());
        for check in &relaxed.skipped {
            assert!(named.contains(&*format!("skip-preflight-{check}")), "{check}");
        }
    }
}
