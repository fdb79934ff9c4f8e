//! TLS settings of one cluster: only its own authorities, its own credential, and no session resumption.

#![warn(clippy::wildcard_enum_match_arm)]

use std::sync::{Arc, LazyLock};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer, ServerName,
};
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret, SecretSlice};

use crate::remote::kubeconfig::{ApiServerHost, ClusterCredential, PrivateKeyEncoding, RemoteConfig};

/// Why no remote client can be made of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteClientError {
    /// An authority's certificate cannot be used.
    #[error("a certificate of the authorities cannot be used")]
    Authorities,
    /// The client's certificate or key cannot be used, or they do not belong together.
    #[error("the client certificate and its key cannot be used together")]
    ClientCertificate,
    /// The name that the server's certificate must be for is none.
    #[error("the name of the server is no DNS name and no address")]
    ServerName,
    /// The token cannot be sent.
    #[error("the token has characters that cannot be sent")]
    Token,
}

/// One for all clients, because each would take as much memory as a connection.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

/// TLS settings of the connections of a client.
pub(super) fn client_config(config: &RemoteConfig) -> Result<ClientConfig, RemoteClientError> {
    let mut roots = RootCertStore::empty();
    for authority in &config.authorities {
        let certificate = CertificateDer::from(authority.as_slice());
        roots
            .add(certificate)
            .map_err(|_| RemoteClientError::Authorities)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()
        .map_err(|_| RemoteClientError::Authorities)?
        .with_root_certificates(roots);
    let mut tls = match &config.login {
        ClusterCredential::Token(_) => builder.with_no_client_auth(),
        ClusterCredential::Certificate { chain, kind, key } => {
            let chain = chain.iter().cloned().map(CertificateDer::from).collect();
            // Fails too where the key belongs to another certificate.
            builder
                .with_client_auth_cert(chain, private_key(*kind, key))
                .map_err(|_| RemoteClientError::ClientCertificate)?
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Tickets of 1,000 clusters take as much memory as their connections, and spare a handshake a day.
    tls.resumption = Resumption::disabled();
    Ok(tls)
}

/// The name that the server's certificate must be for.
pub(super) fn server_name(config: &RemoteConfig) -> Result<ServerName<'static>, RemoteClientError> {
    match config.tls_server_name.as_ref().unwrap_or(&config.host) {
        ApiServerHost::Address(address) => Ok(ServerName::from(*address)),
        ApiServerHost::Name(name) => {
            ServerName::try_from(name.clone()).map_err(|_| RemoteClientError::ServerName)
        }
    }
}

fn private_key(kind: PrivateKeyEncoding, key: &SecretSlice<u8>) -> PrivateKeyDer<'static> {
    let bytes = key.expose_secret().to_vec();
    match kind {
        PrivateKeyEncoding::Pkcs1 => PrivatePkcs1KeyDer::from(bytes).into(),
        PrivateKeyEncoding::Sec1 => PrivateSec1KeyDer::from(bytes).into(),
        PrivateKeyEncoding::Pkcs8 => PrivatePkcs8KeyDer::from(bytes).into(),
    }
}
