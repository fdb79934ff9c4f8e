//! The trusted certificates: the system's certificate authorities, and the platform's own in addition.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::file::{self, FileError};

/// Where systems keep their bundle; the first that exists counts.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// What the system trusts; a program that asks many registries reads it once.
static SYSTEM_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let system = SYSTEM_BUNDLES
        .iter()
        .find_map(|path| file::read(Path::new(path), MAX_BYTES).ok());
    roots.add_parsable_certificates(certificates(&system.unwrap_or_default()));
    roots
});
/// Largest bundle in bytes; the public one is a quarter of a MiB.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Why no TLS connection can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The file with the private authorities cannot be read.
    #[error("failed to read CA file: {0}")]
    Unreadable(#[source] FileError),
    /// The file with the private authorities holds none.
    #[error("CA file holds no certificate")]
    NoCertificate,
    /// Neither the system nor the platform has any authority.
    #[error("no certificate authority to trust")]
    NoRoots,
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up")]
    Setup,
}

/// A TLS client that trusts the system's authorities and those in `extra`.
///
/// # Errors
/// When a file of `extra` cannot be read or holds no certificate, or nothing at all is trusted.
pub fn client_config(extra: &[&Path]) -> Result<ClientConfig, TlsError> {
    let bundles = extra.iter().map(|path| file::read(path, MAX_BYTES));
    let bundles: Result<Vec<_>, _> = bundles.collect();
    client_config_of(&bundles.map_err(TlsError::Unreadable)?)
}

/// The same with the extra authorities in memory, as PEM.
///
/// # Errors
/// When one of `extra` holds no certificate, or nothing at all is trusted.
pub fn client_config_of(extra: &[impl AsRef<[u8]>]) -> Result<ClientConfig, TlsError> {
    let mut roots = SYSTEM_ROOTS.clone();
    for pem in extra {
        let (added, _) = roots.add_parsable_certificates(certificates(pem.as_ref()));
        if added == 0 {
            return Err(TlsError::NoCertificate);
        }
    }
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    with_roots(roots)
}

/// A TLS client that trusts no certificate, for registries with plain HTTP.
///
/// # Errors
/// When the TLS library refuses its own defaults.
pub fn no_tls() -> Result<ClientConfig, TlsError> {
    with_roots(RootCertStore::empty())
}

fn with_roots(roots: RootCertStore) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|_| TlsError::Setup)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_bundle_must_be_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        assert_eq!(
            client_config(&[&path]).unwrap_err(),
            TlsError::Unreadable(FileError::NotFound)
        );
        for text in [
            "",
            "no pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(
                client_config(&[&path]).unwrap_err(),
                TlsError::NoCertificate,
                "{text}"
            );
        }
    }
}
