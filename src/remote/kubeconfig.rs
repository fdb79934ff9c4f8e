//! Decodes a kubeconfig, which is hostile input, to a few validated values.
//!
//! The hub runs no command of it, opens no file that it names, and never shows its text. A kubeconfig with an unsafe field is
//! refused as a whole, even where the field is in an unused entry: no field is ignored in silence.

#![warn(clippy::wildcard_enum_match_arm)]

mod credential;
mod document;
mod endpoint;
mod error;
mod refuse;
mod remote;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;

use document::{KubeconfigDocument, KubeconfigUser};

pub use document::MAX_BYTES;
pub use endpoint::server;
pub use error::KubeconfigError;
pub use remote::{ApiServerHost, ClusterCredential, Fingerprint, PrivateKeyEncoding, RemoteConfig};

/// Keys of a Secret that are tried when none is named, in this order.
const DEFAULT_KEYS: [&str; 2] = ["value", "value.yaml"];

/// The bytes of a kubeconfig in a Secret, with the key they are under: the named one, otherwise `value` or `value.yaml`.
///
/// An empty value counts as missing.
#[must_use]
pub fn pick<'a>(data: &'a BTreeMap<String, ByteString>, key: Option<&str>) -> Option<(&'a str, &'a [u8])> {
    let filled = |key: &str| {
        let (key, value) = data.get_key_value(key)?;
        (!value.0.is_empty()).then_some((key.as_str(), value.0.as_slice()))
    };
    key.map_or_else(|| DEFAULT_KEYS.into_iter().find_map(filled), filled)
}

/// Decodes the current context of a kubeconfig. YAML and JSON are read by one parser.
///
/// # Errors
/// When the kubeconfig is invalid or unsafe. Decoding connects to nothing and runs nothing.
pub fn decode(bytes: &[u8]) -> Result<RemoteConfig, KubeconfigError> {
    if bytes.len() > MAX_BYTES {
        return Err(KubeconfigError::TooLarge);
    }
    let document = KubeconfigDocument::parse(bytes)?;
    refuse::refuse(&document)?;
    let (cluster, user) = document.current()?;
    let url = cluster.server.as_deref().unwrap_or_default();
    if url.is_empty() {
        return Err(KubeconfigError::NoServer);
    }
    let (host, port) = server(url)?;
    let name = cluster.tls_server_name.as_deref().map(endpoint::certificate_name);
    let authorities = cluster.certificate_authority_data.as_deref();
    Ok(RemoteConfig {
        host,
        port,
        tls_server_name: name.transpose()?,
        authorities: credential::authorities(authorities.ok_or(KubeconfigError::NoAuthority)?)?,
        login: login(user)?,
    })
}

/// The single credential of the user.
fn login(user: &KubeconfigUser) -> Result<ClusterCredential, KubeconfigError> {
    let chain = user.client_certificate_data.as_deref();
    let key = user.client_key_data.as_deref();
    match (user.token.as_deref(), chain, key) {
        (Some(token), None, None) => credential::token(token).map(ClusterCredential::Token),
        (None, Some(chain), Some(key)) => {
            let chain = credential::chain(chain)?;
            let (kind, key) = credential::private_key(key)?;
            Ok(ClusterCredential::Certificate { chain, kind, key })
        }
        (None, None, None) => Err(KubeconfigError::NoLogin),
        (None, _, _) => Err(KubeconfigError::HalfCertificate),
        (Some(_), _, _) => Err(KubeconfigError::TwoLogins),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type PickedValue = Option<(&'static str, &'static [u8])>;

    #[test]
    fn a_value_is_picked_by_name_or_by_default() {
        let secret = |entries: &[(&str, &str)]| -> BTreeMap<String, ByteString> {
            let entries = entries.iter();
            entries
                .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())))
                .collect()
        };
        let both = secret(&[("value", "a"), ("value.yaml", "b"), ("other", "c"), ("empty", "")]);
        let second = secret(&[("value", ""), ("value.yaml", "b")]);
        let neither = secret(&[("kubeconfig", "d")]);
        let table: [(&BTreeMap<String, ByteString>, Option<&str>, PickedValue); 9] = [
            (&both, None, Some(("value", b"a"))),
            (&both, Some("other"), Some(("other", b"c"))),
            (&both, Some("value.yaml"), Some(("value.yaml", b"b"))),
            (&both, Some("empty"), None),
            (&both, Some("missing"), None),
            (&second, None, Some(("value.yaml", b"b"))),
            (&second, Some("value"), None),
            (&neither, None, None),
            (&neither, Some("kubeconfig"), Some(("kubeconfig", b"d"))),
        ];
        for (data, key, expected) in table {
            assert_eq!(pick(data, key), expected, "{key:?}");
        }
    }
}
