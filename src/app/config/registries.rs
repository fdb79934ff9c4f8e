//! Flags of the registries that tenants bring.

use clap::Args;

use super::error::SettingsError;
use super::parse::trimmed;
use crate::plan::platform::tenancy::TenantRegistryHosts;

/// Where tenants may push with registries of their own.
#[derive(Debug, Args)]
pub struct RegistryArgs {
    /// Hosts that tenants may name as a registry of their own (baseURL, Registry), comma-separated: `registry.example.com:5000` with
    /// the port as tasks write it, `*.example.com`, or `*`. Default: none; with --single-tenant every host.
    #[arg(long, env = "RENDERHUB_OWN_REGISTRY_HOSTS", value_delimiter = ',')]
    pub own_registry_hosts: Vec<String>,
}

impl RegistryArgs {
    pub(super) fn settings(&self, is_single_tenant: bool) -> Result<TenantRegistryHosts, SettingsError> {
        let hosts = trimmed(&self.own_registry_hosts);
        if hosts.is_empty() && is_single_tenant {
            return Ok(TenantRegistryHosts::any());
        }
        let patterns = hosts
            .into_iter()
            .map(|host| host.parse().map_err(|_| SettingsError::NotAHost(host)));
        patterns.collect::<Result<_, _>>().map(TenantRegistryHosts::of)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    /// Holds: B25.
    #[test]
    fn tenants_name_no_host_until_the_platform_lists_it() {
        let hosts = |flags: &[&str]| settings(flags).map(|found| found.tenancy.own_hosts);
        assert_eq!(hosts(&[]), Ok(TenantRegistryHosts::default()));
        assert_eq!(
            hosts(&["--own-registry-hosts="]),
            Ok(TenantRegistryHosts::default())
        );
        assert_eq!(hosts(&["--single-tenant"]), Ok(TenantRegistryHosts::any()));
        let one = TenantRegistryHosts::of(vec!["a.test:5000".parse().unwrap()]);
        assert_eq!(hosts(&["--own-registry-hosts=a.test:5000"]), Ok(one.clone()));
        assert_eq!(
            hosts(&["--single-tenant", "--own-registry-hosts=a.test:5000"]),
            Ok(one)
        );
        assert_eq!(hosts(&["--own-registry-hosts=*"]), Ok(TenantRegistryHosts::any()));
        let wrong = SettingsError::NotAHost("https://a".to_owned());
        assert_eq!(hosts(&["--own-registry-hosts=https://a"]), Err(wrong));
    }
}
