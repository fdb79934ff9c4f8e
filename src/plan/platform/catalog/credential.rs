//! What a push proves itself with, and what it trusts.

/// What is known of a registry's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialState {
    /// The registry names none.
    Anonymous,
    /// A `kubernetes.io/basic-auth` Secret of this name.
    BasicAuth(String),
    /// A `kubernetes.io/dockerconfigjson` Secret of this name, with an entry for the host.
    DockerConfig(String),
    /// The Secret does not exist.
    Missing,
    /// The Secret has another type, or no usable entry for the host.
    Invalid,
}

/// Where a registry's certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// In this ConfigMap of the rendering namespace, under this key.
    ConfigMap(String, String),
    /// A tenant's, to be put into the config Secret.
    Copied(String),
}
