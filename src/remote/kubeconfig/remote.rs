//! The validated settings with which the hub connects to a cluster, and their fingerprints.

use std::fmt;
use std::net::IpAddr;

use secrecy::{ExposeSecret, SecretSlice, SecretString};
use sha2::{Digest, Sha256};

use crate::api::names::hex;

/// Host of an API server. `Debug` hides it, because it comes from a tenant or a platform operator.
#[derive(Clone, PartialEq, Eq)]
pub enum ApiServerHost {
    /// A DNS name in lower case.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl fmt::Debug for ApiServerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name(_) => "Name",
            Self::Address(_) => "Address",
        })
    }
}

impl fmt::Display for ApiServerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// How the bytes of a private key are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateKeyEncoding {
    /// PKCS #1, RSA only.
    Pkcs1,
    /// SEC 1, elliptic curves only.
    Sec1,
    /// PKCS #8.
    Pkcs8,
}

/// The credential with which the hub authenticates to a cluster.
#[derive(Clone)]
pub enum ClusterCredential {
    /// A bearer token.
    Token(SecretString),
    /// A client certificate.
    Certificate {
        /// The certificate and its intermediate certificates, each as DER.
        chain: Vec<Vec<u8>>,
        /// How the key is encoded.
        kind: PrivateKeyEncoding,
        /// The key as DER.
        key: SecretSlice<u8>,
    },
}

impl fmt::Debug for ClusterCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "Token",
            Self::Certificate { .. } => "Certificate",
        })
    }
}

/// SHA-256 of a part of a [`RemoteConfig`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(hex(&self.0).get(..12).unwrap_or_default())
    }
}

/// All settings of a connection to a cluster, validated. `Debug` shows a fingerprint.
#[derive(Clone)]
pub struct RemoteConfig {
    /// Host of the API server.
    pub host: ApiServerHost,
    /// Its port.
    pub port: u16,
    /// The name that its certificate must be for; without it, the host.
    pub tls_server_name: Option<ApiServerHost>,
    /// Certificates of the authorities that its certificate is verified against, each as DER; at least one.
    pub authorities: Vec<Vec<u8>>,
    /// The hub's credential.
    pub login: ClusterCredential,
}

impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteConfig")
            .field(&self.fingerprint_without_token())
            .finish()
    }
}

impl RemoteConfig {
    /// Fingerprint of all settings, with the token.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut hash = self.hashed();
        if let ClusterCredential::Token(token) = &self.login {
            part(&mut hash, token.expose_secret().as_bytes());
        }
        Fingerprint(hash.finalize().into())
    }

    /// Fingerprint of all settings but the token, which each request carries by itself.
    #[must_use]
    pub fn fingerprint_without_token(&self) -> Fingerprint {
        Fingerprint(self.hashed().finalize().into())
    }

    fn hashed(&self) -> Sha256 {
        let mut hash = Sha256::new();
        part(&mut hash, self.host.to_string().as_bytes());
        part(&mut hash, &self.port.to_be_bytes());
        let name = self.tls_server_name.as_ref().map(ToString::to_string);
        part(&mut hash, name.unwrap_or_default().as_bytes());
        part(&mut hash, &self.authorities.len().to_be_bytes());
        for authority in &self.authorities {
            part(&mut hash, authority);
        }
        match &self.login {
            ClusterCredential::Token(_) => part(&mut hash, b"token"),
            ClusterCredential::Certificate { chain, kind, key } => {
                part(&mut hash, format!("{kind:?}").as_bytes());
                part(&mut hash, key.expose_secret());
                for certificate in chain {
                    part(&mut hash, certificate);
                }
            }
        }
        hash
    }
}

/// Hashes a part after its length, so that no two lists of parts have the same hash.
fn part(hash: &mut Sha256, bytes: &[u8]) {
    hash.update(bytes.len().to_be_bytes());
    hash.update(bytes);
}
