//! A scripted registry: honest unless a test changes one of its responses, and it records every request.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use renderhub::api::basic_auth::BasicCredential;
use renderhub::api::oci::{Digest, OciReference};
use renderhub::renderer::auth::{Authenticator, TokenScope};
use renderhub::renderer::config::ChartDescription;
use renderhub::renderer::manifest::Artifact;
use renderhub::renderer::origin::Origin;
use renderhub::renderer::registry::RegistryClient;
use renderhub::renderer::tls;
use renderhub::renderer::transport::{Transport, TransportLimits};
use renderhub_harness::pki::Authority;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Never to be seen anywhere but at the registry.
pub const PASSWORD: &str = "canary-password";
/// `canary-user:canary-password`.
pub const BASIC: &str = "Basic Y2FuYXJ5LXVzZXI6Y2FuYXJ5LXBhc3N3b3Jk";

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Method and target, e.g. `HEAD /v2/…`.
    pub line: String,
    /// Header names in lower case.
    pub headers: HashMap<String, String>,
    /// Body.
    pub body: Vec<u8>,
}

impl Seen {
    /// Method.
    pub fn method(&self) -> &str {
        self.line.split(' ').next().unwrap()
    }

    /// Target.
    pub fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }

    /// The `Authorization` header.
    pub fn authorization(&self) -> Option<&str> {
        self.headers.get("authorization").map(String::as_str)
    }

    /// Which call of a push this is.
    pub fn step(&self) -> &'static str {
        match (self.method(), self.target()) {
            (_, target) if target.starts_with("/token") => "token",
            ("HEAD", target) if target.contains("/manifests/sha256:") => "verify",
            ("HEAD", target) if target.contains("/manifests/") => "lookup",
            ("GET", target) if target.contains("/manifests/") => "fetch",
            ("HEAD", _) => "blob",
            ("POST", _) => "open",
            ("PUT", target) if target.contains("/manifests/") => "manifest",
            ("PUT", _) => "upload",
            _ => "other",
        }
    }
}

/// What to answer.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Status, headers, body.
    Say(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Nothing, with the connection left open.
    Hang,
    /// A status line and headers, then bytes without end.
    Endless(u16),
    /// A status line, then a header without end.
    EndlessHeader,
    /// The connection is closed.
    Close,
}

/// A status without a body.
pub fn say(status: u16, headers: &[(&'static str, String)]) -> Reply {
    Reply::Say(status, headers.to_vec(), Vec::new())
}

type Twist = dyn Fn(&Seen, usize) -> Option<Reply> + Send + Sync;

/// The server; ends when dropped.
pub struct Hostile {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct State {
    twist: Box<Twist>,
    seen: Arc<Mutex<Vec<Seen>>>,
    stored: Mutex<HashMap<String, Vec<u8>>>,
}

impl Hostile {
    /// A registry whose `twist` sees each request, and how many of that step came before, and may answer instead of it.
    pub async fn start(twist: impl Fn(&Seen, usize) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1", None, twist).await
    }

    /// The same at another address of this machine, and with TLS if there is a certificate.
    pub async fn start_at(
        host: &str,
        tls: Option<TlsAcceptor>,
        twist: impl Fn(&Seen, usize) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let state = Arc::new(State {
            twist: Box::new(twist),
            seen: seen.clone(),
            stored: Mutex::default(),
        });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let (state, tls) = (state.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, state).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, state).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            seen,
            connections,
            task,
        }
    }

    /// A registry that plays by the rules.
    pub async fn honest() -> Self {
        Self::start(|_, _| None).await
    }

    /// Everything that came in so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The steps that came in so far.
    pub fn steps(&self) -> Vec<&'static str> {
        self.seen().iter().map(Seen::step).collect()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<State>) {
    let Some(seen) = read_request(&mut stream).await else {
        return;
    };
    let before = {
        let mut all = state.seen.lock().unwrap();
        all.push(seen.clone());
        all.iter().filter(|one| one.step() == seen.step()).count() - 1
    };
    let reply = (state.twist)(&seen, before).unwrap_or_else(|| honest_reply(&seen, &state.stored));
    let _ = write_reply(&mut stream, &seen, reply).await;
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    while bytes.len() < end + 4 + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    let body = bytes[end + 4..].to_vec();
    Some(Seen { line, headers, body })
}

fn honest_reply(seen: &Seen, stored: &Mutex<HashMap<String, Vec<u8>>>) -> Reply {
    let mut stored = stored.lock().unwrap();
    let (path, query) = seen.target().split_once('?').unwrap_or((seen.target(), ""));
    match seen.step() {
        "open" => say(202, &[("Location", format!("{path}session?_state=x"))]),
        "upload" => {
            let digest = query.rsplit_once("digest=").unwrap().1.replace("%3A", ":");
            let repository = path.split("/blobs/").next().unwrap();
            stored.insert(format!("{repository}/blobs/{digest}"), seen.body.clone());
            say(201, &[])
        }
        "manifest" => {
            let digest = Digest::of(&seen.body);
            let repository = path.split("/manifests/").next().unwrap();
            stored.insert(format!("{repository}/manifests/{digest}"), seen.body.clone());
            stored.insert(path.to_owned(), seen.body.clone());
            say(201, &[("Docker-Content-Digest", digest.to_string())])
        }
        _ => match stored.get(path) {
            Some(bytes) => Reply::Say(
                200,
                vec![("Docker-Content-Digest", Digest::of(bytes).to_string())],
                bytes.clone(),
            ),
            None => say(404, &[]),
        },
    }
}

async fn write_reply(
    stream: &mut (impl AsyncWrite + Unpin),
    seen: &Seen,
    reply: Reply,
) -> std::io::Result<()> {
    match reply {
        Reply::Say(status, headers, body) => {
            let mut head = format!(
                "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n",
                body.len()
            );
            head.extend(headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
            stream.write_all(format!("{head}\r\n").as_bytes()).await?;
            if seen.method() != "HEAD" {
                stream.write_all(&body).await?;
            }
            stream.shutdown().await
        }
        Reply::Hang => std::future::pending().await,
        Reply::Endless(status) => {
            stream
                .write_all(format!("HTTP/1.1 {status} X\r\n\r\n").as_bytes())
                .await?;
            loop {
                stream.write_all(&[b'x'; 8192]).await?;
            }
        }
        Reply::EndlessHeader => {
            stream.write_all(b"HTTP/1.1 200 X\r\nX: ").await?;
            loop {
                stream.write_all(&[b'x'; 8192]).await?;
            }
        }
        Reply::Close => Ok(()),
    }
}

/// Limits for tests that wait for one to be hit.
pub fn limits() -> TransportLimits {
    TransportLimits {
        // What is to succeed has it too, on a machine that does much else.
        call: Duration::from_secs(3),
        pause: Duration::from_millis(1),
        max_pause: Duration::from_millis(5),
        ..TransportLimits::default()
    }
}

/// The destination every test pushes to.
pub fn reference(address: SocketAddr) -> OciReference {
    format!("{address}/team-a/shop:1.0.0").parse().unwrap()
}

/// Some chart.
pub fn artifact(content: &str) -> Artifact {
    let meta = ChartDescription {
        name: "shop".into(),
        description: String::new(),
        version: "1.0.0".into(),
        app_version: String::new(),
    };
    Artifact::new(&meta, content.as_bytes().to_vec()).unwrap()
}

/// What a client needs to ask a hostile registry in plain HTTP for what is in [`reference()`].
pub fn plain_http(registry: &Hostile, access: TokenScope) -> (Transport, Authenticator) {
    let reference = reference(registry.address);
    let auth = Authenticator {
        origin: Origin::of_registry(&reference.host, true),
        repository: reference.repository,
        credential: Some(credential()),
        token_realm: None,
        access,
    };
    (Transport::new(tls::no_tls().unwrap(), limits()), auth)
}

/// The canary.
pub fn credential() -> BasicCredential {
    BasicCredential {
        username: "canary-user".into(),
        password: PASSWORD.into(),
    }
}

/// A client of the registry at `address`.
pub fn client(
    address: SocketAddr,
    credential: Option<BasicCredential>,
    limits: TransportLimits,
) -> RegistryClient {
    let reference = reference(address);
    let auth = Authenticator {
        origin: Origin::of_registry(&reference.host, true),
        repository: reference.repository,
        credential,
        token_realm: None,
        access: TokenScope::Push,
    };
    RegistryClient::new(Transport::new(tls::no_tls().unwrap(), limits), auth)
}

/// A server's side of TLS for the addresses of this machine that tests use, signed by the authority.
pub fn acceptor(authority: &Authority) -> TlsAcceptor {
    let addresses = ["127.0.0.1", "127.0.0.2"].map(|one| one.parse().unwrap());
    let pair = authority.server(&["registry.test"], &addresses).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
