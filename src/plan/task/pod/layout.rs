//! Keys of the Secrets and `ConfigMaps` that a pod mounts, and where both of its modes find the configuration.

/// Key of the config Secret with the tenant's configuration.
pub const CONFIG_KEY: &str = "config.json";
/// Key of the config Secret with the destination.
pub const URL_KEY: &str = "url";
/// Key of a Secret with a user name, as `kubernetes.io/basic-auth` has it.
pub const USERNAME_KEY: &str = "username";
/// Key of a Secret with a password, as `kubernetes.io/basic-auth` has it.
pub const PASSWORD_KEY: &str = "password";
/// Key of the config Secret with the certificates of a tenant's registry.
pub const CA_KEY: &str = "ca.pem";
/// The configuration, where the containers find it.
pub(super) const CONFIG_FILE: &str = "/etc/renderer/config.json";
/// Key of a class's certificate ConfigMap.
pub(in crate::plan) const CLASS_CA_KEY: &str = "trust-bundle.pem";
