//! An API server that is too busy, for every client and for ever.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use renderhub_harness::pki::Authority;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// The whole answer to everything.
const ANSWER: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
/// Bytes of a request at most; no hub sends more before it was answered once.
const REQUEST: usize = 16 << 10;

/// The server; it ends with the handle.
#[derive(Debug)]
pub struct Busy {
    address: SocketAddr,
    authority: String,
    task: AbortHandle,
}

impl Busy {
    /// Starts one.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(address: IpAddr) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let address = listener.local_addr()?;
        let authority = Authority::new("the busy server's authority")?;
        let pair = authority.server(&[], &[address.ip()])?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).context("no certificate")?],
                PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).context("no key")?,
            )?;
        let task = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)))).abort_handle();
        Ok(Self {
            address,
            authority: authority.pem(),
            task,
        })
    }

    /// A kubeconfig that leads here.
    pub fn kubeconfig(&self) -> String {
        let authority = self.authority.as_bytes();
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "busy",
            "clusters": [{"name": "busy", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority-data": STANDARD.encode(authority),
            }}],
            "users": [{"name": "busy", "user": {"token": "anybody"}}],
            "contexts": [{"name": "busy", "context": {"cluster": "busy", "user": "busy"}}],
        })
        .to_string()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor) {
    let mut connections = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        // A client that goes away is none of its business.
        connections.spawn(answer(tcp, acceptor.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(tcp: TcpStream, acceptor: TlsAcceptor) -> std::io::Result<()> {
    let mut stream = acceptor.accept(tcp).await?;
    let mut request = Vec::with_capacity(1 << 10);
    loop {
        if stream.read_buf(&mut request).await? == 0 || request.len() > REQUEST {
            return Ok(());
        }
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            stream.write_all(ANSWER).await?;
        }
    }
}
