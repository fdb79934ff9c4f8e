//! The certificates that a push trusts, as a volume.

use k8s_openapi::api::core::v1::Volume;

use super::layout::{CA_KEY, CLASS_CA_KEY};
use super::parts::{config_map_volume, secret_volume};
use crate::plan::platform::catalog::credential::CertificateSource;
use crate::plan::platform::catalog::resolved::ResolvedTask;

const CA_FILE_NAME: &str = "ca-bundle.pem";

/// The certificates of the registry, else those of the class.
pub(super) fn ca(resolved: &ResolvedTask) -> Option<CertificateSource> {
    let of_class = || {
        let name = resolved.class.ca_config_map_name.clone()?;
        Some(CertificateSource::ConfigMap(name, CLASS_CA_KEY.to_owned()))
    };
    resolved.ca.clone().or_else(of_class)
}

/// Its volume: a ConfigMap of the platform's, or the tenant's own certificates in the task's Secret `name`.
pub(super) fn ca_volume(volume: &str, name: &str, resolved: &ResolvedTask) -> Option<Volume> {
    Some(match ca(resolved)? {
        CertificateSource::ConfigMap(map, key) => config_map_volume(volume, map, key, CA_FILE_NAME),
        CertificateSource::Copied(_) => secret_volume(volume, name, &[(CA_KEY, CA_FILE_NAME)]),
    })
}
