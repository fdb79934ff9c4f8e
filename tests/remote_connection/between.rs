//! A middlebox between the hub and a cluster that reads along: it has a TLS certificate of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kube::Client;
use renderhub::remote::kubeconfig::{ApiServerHost, RemoteConfig};
use renderhub_harness::Identity;
use renderhub_harness::pki::Authority;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::task::AbortOnDropHandle;

use super::world::config;

/// It takes out the headers of impersonation, and may hold requests back or fail one.
pub struct Stripper {
    address: SocketAddr,
    authority: Authority,
    held: watch::Sender<Option<String>>,
    failing: watch::Sender<Option<String>>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Stripper {
    /// Passes everything on as `upstream`.
    pub async fn start(upstream: Client) -> Result<Self> {
        Self::between(upstream, true).await
    }

    /// Passes everything on as whoever sent it; `upstream` has no credential of its own.
    pub async fn honest(upstream: Client) -> Result<Self> {
        Self::between(upstream, false).await
    }

    async fn between(upstream: Client, strips: bool) -> Result<Self> {
        let held = watch::Sender::new(None);
        let failing = watch::Sender::new(None);
        let shared = Shared {
            upstream,
            held: held.subscribe(),
            failing: failing.clone(),
            strips,
        };
        let plain = TcpListener::bind("127.0.0.1:0").await?;
        let inside = plain.local_addr()?;
        let router = Router::new().fallback(strip).with_state(shared);
        let server = async move { _ = axum::serve(plain, router).await };
        let authority = Authority::new("between")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let pair = authority.server(&["between"], &[address.ip()])?;
        let certificate = CertificateDer::from_pem_slice(pair.cert.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let front = async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(acceptor.clone(), client, inside));
            }
        };
        Ok(Self {
            address,
            authority,
            held,
            failing,
            _tasks: [
                AbortOnDropHandle::new(tokio::spawn(server)),
                AbortOnDropHandle::new(tokio::spawn(front)),
            ],
        })
    }

    /// Holds requests with this in their path until it holds others, or none.
    pub fn hold(&self, part: Option<&str>) {
        self.held.send_replace(part.map(str::to_owned));
    }

    /// Answers the next request with this in its path with 503.
    pub fn fail(&self, part: &str) {
        self.failing.send_replace(Some(part.to_owned()));
    }

    /// Whether it has.
    pub fn has_failed(&self) -> bool {
        self.failing.borrow().is_none()
    }

    /// The same kubeconfig, to here.
    pub fn config(&self, who: &Identity) -> Result<RemoteConfig> {
        let mut config = config(who)?;
        config.host = ApiServerHost::Address(self.address.ip());
        config.port = self.address.port();
        let authority = CertificateDer::from_pem_slice(self.authority.pem().as_bytes())?;
        config.authorities = vec![authority.to_vec()];
        Ok(config)
    }
}

async fn carry(acceptor: TlsAcceptor, client: TcpStream, inside: SocketAddr) {
    if let Ok(mut tls) = acceptor.accept(client).await
        && let Ok(mut plain) = TcpStream::connect(inside).await
    {
        _ = tokio::io::copy_bidirectional(&mut tls, &mut plain).await;
    }
}

#[derive(Clone)]
struct Shared {
    upstream: Client,
    held: watch::Receiver<Option<String>>,
    failing: watch::Sender<Option<String>>,
    strips: bool,
}

async fn strip(State(mut shared): State<Shared>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let is_free = |held: &Option<String>| held.as_ref().is_none_or(|part| !path.contains(part));
    _ = shared.held.wait_for(is_free).await;
    let fails = shared
        .failing
        .send_if_modified(|failing| failing.take_if(|part| path.contains(part.as_str())).is_some());
    if fails {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    pass(shared.upstream, shared.strips, request)
        .await
        .unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
}

async fn pass(upstream: Client, strips: bool, request: Request) -> Result<Response> {
    let (mut parts, body) = request.into_parts();
    for name in [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    if strips {
        parts.headers.remove(header::AUTHORIZATION);
        parts.headers.remove("impersonate-user");
    }
    let body = to_bytes(body, usize::MAX).await?;
    let path = parts.uri.path_and_query().map(ToString::to_string);
    parts.uri = path.unwrap_or_default().parse()?;
    let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    let (mut parts, body) = upstream.send(request).await?.into_parts();
    for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    Ok(Response::from_parts(parts, Body::new(body)))
}
