//! A server with scripted answers: TLS with an authority of its own, HTTP/1.1 or HTTP/2, and any response.
//!
//! It records the requests, so a test can see that something was sent once, or not at all.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::net;
use crate::pki::Authority;

/// The server's version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1, without ALPN in the handshake.
    One,
    /// HTTP/2.
    Two,
}

/// Which certificate the server shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The one that the client expects.
    Right,
    /// One of an authority that the client does not know.
    OtherAuthority,
    /// One for another server.
    OtherName,
    /// One that is over.
    Expired,
}

/// How the server is reached.
#[derive(Clone, Copy, Debug)]
pub struct Face {
    /// Its version of HTTP.
    pub http: Http,
    /// What it shows.
    pub shown: Shown,
}

impl From<Http> for Face {
    fn from(http: Http) -> Self {
        Self {
            http,
            shown: Shown::Right,
        }
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub target: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// What the server does about a request.
pub enum Reply {
    /// It answers.
    Whole(u16, Vec<(&'static str, String)>, Bytes),
    /// It begins to answer, and goes on as the stream does.
    Parts(u16, Vec<(&'static str, String)>, BoxStream<'static, Bytes>),
    /// It never answers.
    Never,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl Reply {
    /// An answer of these bytes.
    pub fn whole(code: u16, body: impl Into<Bytes>) -> Self {
        Self::Whole(code, Vec::new(), body.into())
    }

    /// A success that is sent part by part.
    pub fn parts(parts: impl futures::Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::Parts(200, Vec::new(), parts.boxed())
    }
}

/// What a cluster says that answers probes, lists and watches, with nothing in them, and no work: neither a Job that is asked
/// for by its name nor anything that is written is ever answered.
#[must_use]
pub fn idle(asked: &Asked) -> Reply {
    let said = |body: &'static str| Reply::whole(200, body);
    match asked.target.as_str() {
        _ if asked.method != "GET" => Reply::Never,
        "/version" => said(r#"{"major": "1", "minor": "36", "gitVersion": "v1.36.0"}"#),
        target if target.contains("watch=true") => Reply::parts(futures::stream::pending()),
        target if target.contains("limit=") => said(r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#),
        target if target.starts_with("/api/v1/namespaces/") && target.matches('/').count() == 4 => {
            said(r#"{"metadata": {"uid": "6a3c5f0e-0000-4000-8000-000000000000"}}"#)
        }
        target if target.contains("/jobs/") || target.contains("/secrets/") => Reply::Never,
        _ => Reply::whole(404, r#"{"reason": "NotFound"}"#),
    }
}

#[derive(Default)]
struct State {
    accepted: AtomicUsize,
    asked: Mutex<Vec<Asked>>,
}

type Script = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;
type Raw = Arc<dyn Fn(TlsStream<TcpStream>) -> BoxFuture<'static, ()> + Send + Sync>;
type AnyBody = BoxBody<Bytes, std::convert::Infallible>;

#[derive(Clone)]
enum Does {
    Script(Script),
    Raw(Raw),
}

/// The server; it ends with the handle, and every connection to it.
pub struct Hostile {
    address: SocketAddr,
    authority: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hostile")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hostile {
    /// One that answers as the script says, on a loopback address of its own.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(
        face: impl Into<Face>,
        script: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind((net::loopback(), 0)).await?;
        Self::on(listener, face, script)
    }

    /// The same on a socket that listens already.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub fn on(
        listener: TcpListener,
        face: impl Into<Face>,
        script: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::run(listener, face.into(), Does::Script(Arc::new(script)))
    }

    /// One that does with each connection, after its handshake, whatever it likes.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn raw<F>(
        face: impl Into<Face>,
        handler: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
    ) -> Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((net::loopback(), 0)).await?;
        let raw: Raw = Arc::new(move |stream| Box::pin(handler(stream)));
        Self::run(listener, face.into(), Does::Raw(raw))
    }

    fn run(listener: TcpListener, face: Face, does: Does) -> Result<Self> {
        let address = listener.local_addr()?;
        net::check_private(address.ip())?;
        let (authority, config) = tls(face, address)?;
        let (state, acceptor) = (Arc::new(State::default()), TlsAcceptor::from(Arc::new(config)));
        let task = tokio::spawn(accept(listener, acceptor, face.http, does, Arc::clone(&state)));
        Ok(Self {
            address,
            authority,
            state,
            task,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of the authority that a client should trust, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Connections it took so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// What it was asked so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.state
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How often it was asked with each method.
    #[must_use]
    pub fn counts(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for asked in self.asked() {
            *counts.entry(asked.method).or_default() += 1;
        }
        counts
    }
}

fn tls(face: Face, address: SocketAddr) -> Result<(String, ServerConfig)> {
    let authority = Authority::new("the hostile server's authority")?;
    let (names, ips) = (["hostile.test"], [address.ip()]);
    let shown = match face.shown {
        Shown::Right => authority.server(&names, &ips)?,
        Shown::OtherAuthority => Authority::new("another authority")?.server(&names, &ips)?,
        Shown::OtherName => authority.server(&["other.test"], &[])?,
        Shown::Expired => authority.expired_server(&names, &ips)?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(shown.cert.as_bytes()).context("no certificate")?],
            PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).context("no key")?,
        )?;
    if face.http == Http::Two {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Ok((authority.pem(), config))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, http: Http, does: Does, state: Arc<State>) {
    // Aborted with this task, and so with the handle.
    let mut connections = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        state.accepted.fetch_add(1, Ordering::Relaxed);
        let (acceptor, does, state) = (acceptor.clone(), does.clone(), Arc::clone(&state));
        connections.spawn(async move {
            if let Ok(stream) = acceptor.accept(tcp).await {
                match does {
                    Does::Raw(raw) => raw(stream).await,
                    Does::Script(script) => serve(stream, http, script, state).await,
                }
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TlsStream<TcpStream>, http: Http, script: Script, state: Arc<State>) {
    let service = service_fn(move |request| {
        let (script, state) = (Arc::clone(&script), Arc::clone(&state));
        async move { answer(request, &script, &state).await }
    });
    let socket = TokioIo::new(stream);
    // A client that goes away is what many of these tests are about.
    _ = match http {
        Http::One => http1::Builder::new().serve_connection(socket, service).await,
        Http::Two => {
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(socket, service)
                .await
        }
    };
}

async fn answer(request: Request<Incoming>, script: &Script, state: &State) -> Result<Response<AnyBody>> {
    let (parts, body) = request.into_parts();
    let asked = Asked {
        method: parts.method.to_string(),
        target: parts
            .uri
            .path_and_query()
            .map(ToString::to_string)
            .unwrap_or_default(),
        headers: parts.headers,
        body: body.collect().await?.to_bytes(),
    };
    let reply = script(&asked);
    state
        .asked
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(asked);
    let (code, headers, body) = match reply {
        Reply::Whole(code, headers, body) => (code, headers, Full::new(body).boxed()),
        Reply::Parts(code, headers, parts) => {
            let frames = parts.map(|part| Ok(Frame::data(part)));
            // The body has to be shareable; a stream becomes so behind a lock that no other thread takes.
            (code, headers, BodyExt::boxed(StreamBody::new(sync(frames))))
        }
        Reply::Never => std::future::pending().await,
    };
    let mut response = Response::builder().status(code);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(body)?)
}

fn sync<T>(
    stream: impl futures::Stream<Item = T> + Send + 'static,
) -> impl futures::Stream<Item = T> + Send + Sync {
    let mut stream = Mutex::new(Box::pin(stream));
    futures::stream::poll_fn(move |context| {
        let stream = stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        stream.as_mut().poll_next(context)
    })
}
