//! The credential that a tenant's Secret holds.

use k8s_openapi::api::core::v1::Secret;
use secrecy::ExposeSecret as _;

use super::missing::{SOON, quoted};
use crate::api::basic_auth::{self, BasicCredential, SecretHostMatch};
use crate::api::conditions::Reason;
use crate::api::docker_config::DockerConfig;
use crate::api::oci::RegistryHost;
use crate::plan::task::refusal::Refusal;

/// Type of a Secret with a user name and a password.
pub(in crate::plan) const BASIC_AUTH: &str = "kubernetes.io/basic-auth";

/// A credential that a tenant owns, and which state of its Secret it was read from.
#[derive(Clone, Debug)]
pub struct TenantCredential {
    /// User name and password.
    pub credential: BasicCredential,
    /// UID and version of the Secret.
    pub version: String,
}

impl TenantCredential {
    /// Bytes of it.
    pub(in crate::plan) fn bytes(&self) -> usize {
        self.credential.username.len() + self.credential.password.expose_secret().len()
    }
}

/// The credential for exactly this host that a tenant's Secret holds.
///
/// # Errors
/// What to correct, where it has another type or nothing usable for the host.
pub fn login(secret: &Secret, hostname: &str) -> Result<TenantCredential, Refusal> {
    let meta = &secret.metadata;
    let version = [&meta.uid, &meta.resource_version].map(|part| part.as_deref().unwrap_or_default());
    let login = basic_credential(secret, hostname).map(|credential| TenantCredential {
        credential,
        version: version.join("/"),
    });
    login.ok_or_else(|| {
        let name = quoted(secret.metadata.name.as_deref().unwrap_or_default());
        Refusal::new(
            Reason::PushSecretInvalid,
            format!(
                "the push Secret{name} cannot be used for the registry's host: it must be of type kubernetes.io/basic-auth with \
                 username and password, with no other host in the annotation renderhub.dev/registry-host, or of type \
                 kubernetes.io/dockerconfigjson with an entry for the host; correct it: {SOON}"
            ),
        )
    })
}

/// The user name and password for exactly this host that a Secret holds, if it is of one of the two types and names no other host.
pub(in crate::plan) fn basic_credential(secret: &Secret, hostname: &str) -> Option<BasicCredential> {
    let value = |key: &str| secret.data.as_ref()?.get(key).map(|v| v.0.as_slice());
    let named = SecretHostMatch::of(secret.metadata.annotations.as_ref(), hostname);
    match secret.type_.as_deref() {
        Some(BASIC_AUTH) if named == SecretHostMatch::Another => None,
        Some(BASIC_AUTH) => value("username")
            .zip(value("password"))
            .and_then(|(username, password)| basic_auth::parse(username, password).ok()),
        Some("kubernetes.io/dockerconfigjson") => {
            let config = value(".dockerconfigjson").and_then(|bytes| DockerConfig::parse(bytes).ok());
            let host: Option<RegistryHost> = hostname.parse().ok();
            config
                .zip(host)
                .and_then(|(config, host)| config.lookup(&host).ok().flatten().cloned())
        }
        _ => None,
    }
}
