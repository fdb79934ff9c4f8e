//! What is copied of a Secret: the one value that a kubelet reads.

use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest, Sha256};

use crate::plan::pull_secrets::copy::{DOCKER_CONFIG, LEGACY_CONFIG};

/// Bytes of a pull secret: an API server takes no Secret with more.
pub const MAX_PULL_SECRET_BYTES: usize = 1 << 20;
/// The types of pull secrets, and the key of each that a kubelet reads.
const TYPES: [(&str, &str); 2] = [DOCKER_CONFIG, LEGACY_CONFIG];

/// What is in a pull secret, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullSecretContent {
    /// Its type.
    pub kind: &'static str,
    /// The key that a kubelet reads.
    pub key: &'static str,
    /// SHA-256 of the value.
    pub digest: [u8; 32],
}

impl PullSecretContent {
    /// That of a Secret that no kubelet can pull with: no copy should have it.
    pub const NONE: Self = Self {
        kind: "",
        key: "",
        digest: [0; 32],
    };
}

/// Why a Secret is not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceFault {
    /// Its type is none that a kubelet pulls with.
    Type,
    /// It is too large.
    TooLarge,
    /// It lacks the value.
    Empty,
}

impl SourceFault {
    /// The same for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Type => "its type is neither kubernetes.io/dockerconfigjson nor kubernetes.io/dockercfg",
            Self::TooLarge => "it has more than 1 MiB",
            Self::Empty => "it has no value that a kubelet reads",
        }
    }
}

/// What is in a Secret.
///
/// # Errors
/// It is no pull secret, or too large.
pub fn content_of(secret: &Secret) -> Result<PullSecretContent, SourceFault> {
    let named = secret.type_.as_deref().unwrap_or_default();
    let known = TYPES.into_iter().find(|(kind, _)| *kind == named);
    let (kind, key) = known.ok_or(SourceFault::Type)?;
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    let value = value
        .filter(|value| !value.0.is_empty())
        .ok_or(SourceFault::Empty)?;
    if value.0.len() > MAX_PULL_SECRET_BYTES {
        return Err(SourceFault::TooLarge);
    }
    Ok(PullSecretContent {
        kind,
        key,
        digest: Sha256::digest(&value.0).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    fn secret(kind: &str, key: &str, bytes: usize) -> Secret {
        Secret {
            type_: Some(kind.to_owned()),
            data: Some(BTreeMap::from([(key.to_owned(), ByteString(vec![b'x'; bytes]))])),
            ..Secret::default()
        }
    }

    #[test]
    fn only_pull_secrets_are_copied_and_none_that_is_too_large() {
        let most = MAX_PULL_SECRET_BYTES;
        for (kind, key) in TYPES {
            assert!(content_of(&secret(kind, key, 1)).is_ok());
            assert!(content_of(&secret(kind, key, most)).is_ok());
            assert_eq!(
                content_of(&secret(kind, key, most + 1)),
                Err(SourceFault::TooLarge)
            );
            assert_eq!(content_of(&secret(kind, key, 0)), Err(SourceFault::Empty));
            assert_eq!(content_of(&secret(kind, "other", 1)), Err(SourceFault::Empty));
            let other_types = [
                "Opaque",
                "",
                "kubernetes.io/tls",
                "kubernetes.io/service-account-token",
            ];
            for other in other_types {
                assert_eq!(
                    content_of(&secret(other, key, 1)),
                    Err(SourceFault::Type),
                    "{other}"
                );
            }
        }
    }

    #[test]
    fn the_value_alone_counts() {
        let (kind, key) = TYPES[0];
        let bare = secret(kind, key, 5);
        let mut more = bare.clone();
        more.data
            .as_mut()
            .unwrap()
            .insert("note".to_owned(), ByteString(b"x".to_vec()));
        assert_eq!(content_of(&bare), content_of(&more));
        assert_ne!(content_of(&bare), content_of(&secret(kind, key, 6)));
    }
}
