//! A plain-HTTP proxy between a hub and its API server that can stop one write on its way, there or back, or answer itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use kube::Client;
use renderhub_harness::rundir;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, watch};
use tokio::task::JoinHandle;

use super::api::PLATFORM_KINDS;

/// Parts of the paths of writes that belong to no task, besides those to platform objects of any test of the plane: events,
/// registries of tenants, questions about rights, the hub's Lease.
const UNCOUNTED: [&str; 5] = [
    "/events",
    "/registries/",
    "/authorization.k8s.io/",
    "/authentication.k8s.io/",
    "/leases",
];

/// Where a write is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The API server never gets it.
    Before,
    /// The API server has done it; the hub gets no answer.
    After,
    /// The API server has done it; the hub gets an error.
    Lost,
}

/// A write that the hub sent.
#[derive(Clone, Debug)]
pub struct Write {
    /// Method.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Body, null if it is no JSON.
    pub body: Value,
}

impl Write {
    /// Whether it creates an object of this resource, such as `jobs`.
    #[must_use]
    pub fn creates(&self, resource: &str) -> bool {
        self.method == "POST" && self.path.rsplit('/').next() == Some(resource)
    }

    /// The status that it sends, which is whole: a patch has it after the UID that the object must have, and a PUT in the object.
    #[must_use]
    pub fn status(&self) -> &Value {
        if self.method == "PUT" {
            &self.body["status"]
        } else {
            &self.body[1]["value"]
        }
    }
}

/// The proxy; it ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// Answers a request instead of the API server, by its method and its path with query.
type Liar = dyn Fn(&Method, &str) -> Option<(u16, Vec<u8>)> + Send + Sync;

/// Whether a write is the one to stop, by its number from 1 and itself.
type Choice = dyn Fn(usize, &Write) -> bool + Send + Sync;

/// Whether a request hangs, by its method and its path.
type Hangs = dyn Fn(&Method, &str) -> bool + Send + Sync;

struct Shared {
    upstream: Client,
    liar: Mutex<Option<Arc<Liar>>>,
    writes: Mutex<Vec<Write>>,
    /// Which write is stopped, once, and where.
    stop: Mutex<Option<(Box<Choice>, Stop)>>,
    /// The write that is stopped.
    stopped: watch::Sender<Option<Write>>,
    is_released: watch::Sender<bool>,
    /// Part of a path, and where those who create something there meet.
    meeting: Mutex<Option<(&'static str, Arc<Barrier>)>>,
    /// Whether what watches of Jobs say from now on is kept here.
    holds_jobs: watch::Sender<bool>,
    /// Which requests hang.
    hangs: Mutex<Option<Arc<Hangs>>>,
    hanging: AtomicUsize,
    given_up: AtomicUsize,
}

/// A request that hangs; the hub gives it up by closing its connection, which drops this.
struct Hanging<'a>(&'a Shared);

impl<'a> Hanging<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.hanging.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.hanging.fetch_sub(1, Ordering::SeqCst);
        self.0.given_up.fetch_add(1, Ordering::SeqCst);
    }
}

impl Proxy {
    /// A proxy that passes everything on as `upstream`.
    pub async fn start(upstream: Client) -> Result<Self> {
        Self::start_at("127.0.0.1:0".parse()?, upstream).await
    }

    /// The same at an address of this machine.
    pub async fn start_at(address: SocketAddr, upstream: Client) -> Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            liar: Mutex::default(),
            writes: Mutex::default(),
            stop: Mutex::default(),
            stopped: watch::Sender::new(None),
            is_released: watch::Sender::new(false),
            meeting: Mutex::default(),
            holds_jobs: watch::Sender::new(false),
            hangs: Mutex::default(),
            hanging: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
        });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { _ = axum::serve(listener, router).await });
        Ok(Self {
            address,
            shared,
            server,
        })
    }

    /// A kubeconfig that leads here; the proxy has the identity, so it holds none.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        kubeconfig(self.address)
    }

    /// From now on, a status and a body from here are the answer to a request; those without one go through.
    pub fn lie(&self, liar: impl Fn(&Method, &str) -> Option<(u16, Vec<u8>)> + Send + Sync + 'static) {
        *lock(&self.shared.liar) = Some(Arc::new(liar));
    }

    /// Stops the write of this number, counted from 1.
    pub fn stop_at(&self, number: usize, stop: Stop) {
        self.stop_when(stop, move |at, _| at == number);
    }

    /// Stops the first write that is chosen, by its number and itself.
    pub fn stop_when(&self, stop: Stop, is_it: impl Fn(usize, &Write) -> bool + Send + Sync + 'static) {
        *lock(&self.shared.stop) = Some((Box::new(is_it), stop));
    }

    /// Holds the answers to creations whose path has this part until there are two.
    pub fn meet_at(&self, part: &'static str) {
        *lock(&self.shared.meeting) = Some((part, Arc::new(Barrier::new(2))));
    }

    /// Keeps what watches of Jobs say, or lets all of it through.
    pub fn hold_jobs(&self, is_held: bool) {
        self.shared.holds_jobs.send_replace(is_held);
    }

    /// From now on, requests of this method and path reach the API server never, and get no answer.
    pub fn hang(&self, hangs: impl Fn(&Method, &str) -> bool + Send + Sync + 'static) {
        *lock(&self.shared.hangs) = Some(Arc::new(hangs));
    }

    /// How many requests hang now, and how many the hub has given up.
    pub fn hanging(&self) -> (usize, usize) {
        let count = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
        (count(&self.shared.hanging), count(&self.shared.given_up))
    }

    /// Waits until that write is stopped; a hub that never sends it is an error of the test after a minute.
    pub async fn stopped(&self) -> Result<()> {
        self.stopped_within(super::LIMIT).await.map(drop)
    }

    /// The same with another limit; returns the write.
    pub async fn stopped_within(&self, limit: Duration) -> Result<Write> {
        let mut stopped = self.shared.stopped.subscribe();
        let waited = tokio::time::timeout(limit, stopped.wait_for(Option::is_some)).await;
        let all: Vec<_> = self
            .writes()
            .into_iter()
            .map(|w| format!("{} {}", w.method, w.path))
            .collect();
        let write = waited.map_err(|_| anyhow::anyhow!("the write was never sent, only {all:#?}"))??;
        write.clone().context("it was waited for")
    }

    /// Lets the stopped write go on.
    pub fn release(&self) {
        self.shared.is_released.send_replace(true);
    }

    /// The writes so far that belong to a task.
    pub fn writes(&self) -> Vec<Write> {
        lock(&self.shared.writes).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    /// Records a write; returns where to stop it, if it is the one.
    fn note(&self, write: &Write) -> Option<Stop> {
        let mut writes = lock(&self.writes);
        writes.push(write.clone());
        let number = writes.len();
        let chosen = lock(&self.stop).take_if(|(is_it, _)| is_it(number, write));
        chosen.map(|(_, stop)| stop)
    }

    async fn hold(&self, write: &Write) {
        self.stopped.send_replace(Some(write.clone()));
        let mut released = self.is_released.subscribe();
        _ = released.wait_for(|is| *is).await;
    }
}

/// A kubeconfig without credentials for a server with plain HTTP.
pub fn kubeconfig(address: SocketAddr) -> Result<PathBuf> {
    let path = rundir::fresh("proxy")?.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
        "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{}", address)}}],
        "users": [{"name": "proxy", "user": {}}],
        "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
    });
    rundir::write_private(&path, config.to_string().as_bytes())?;
    Ok(path)
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let hangs = lock(&shared.hangs).clone();
    if hangs.is_some_and(|hangs| hangs(request.method(), request.uri().path())) {
        let _hanging = Hanging::new(&shared);
        return std::future::pending().await;
    }
    match try_pass(&shared, request).await {
        Ok(response) => response,
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// Whether a request is a write that belongs to a task. A dry run, with which the hub tries the Job of a class, belongs to none.
fn is_counted(method: &Method, uri: &http::Uri) -> bool {
    let path = uri.path();
    let is_of_platform = |kind: &String| path.contains(&format!("/{kind}/"));
    let is_dry_run = uri.query().is_some_and(|query| query.contains("dryRun="));
    method != Method::GET
        && !is_dry_run
        && !UNCOUNTED.iter().any(|part| path.contains(part))
        && !PLATFORM_KINDS.iter().any(is_of_platform)
}

async fn try_pass(shared: &Shared, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await?;
    let liar = lock(&shared.liar).clone();
    let whole = parts.uri.path_and_query().map_or("", |path| path.as_str());
    if let Some((status, body)) = liar.and_then(|liar| liar(&parts.method, whole)) {
        return Ok((StatusCode::from_u16(status)?, body).into_response());
    }
    let path = parts.uri.path().to_owned();
    let meeting = lock(&shared.meeting).clone();
    let meeting = meeting.filter(|(part, _)| parts.method == Method::POST && path.contains(part));
    let write = is_counted(&parts.method, &parts.uri).then(|| Write {
        method: parts.method.to_string(),
        path,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    });
    let stopped = write.and_then(|write| Some((shared.note(&write)?, write)));
    if let Some((Stop::Before, write)) = &stopped {
        shared.hold(write).await;
    }
    let response = forward(shared, parts, body).await?;
    if let Some((_, barrier)) = meeting {
        barrier.wait().await;
    }
    match &stopped {
        Some((Stop::Lost, write)) => {
            shared.stopped.send_replace(Some(write.clone()));
            Ok(StatusCode::BAD_GATEWAY.into_response())
        }
        Some((Stop::After, write)) => {
            let (parts, body) = response.into_parts();
            let whole = to_bytes(body, usize::MAX).await?;
            shared.hold(write).await;
            Ok(Response::from_parts(parts, Body::from(whole)))
        }
        _ => Ok(response),
    }
}

async fn forward(shared: &Shared, mut parts: http::request::Parts, body: Bytes) -> Result<Response> {
    for name in [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    let is_watch = watches_jobs(request.uri());
    let (mut parts, body) = shared.upstream.send(request).await?.into_parts();
    for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let body = Body::new(body);
    let body = if is_watch { held(shared, body) } else { body };
    Ok(Response::from_parts(parts, body))
}

fn watches_jobs(uri: &http::Uri) -> bool {
    let is_watch = |query: &str| {
        query
            .split('&')
            .any(|part| matches!(part, "watch=true" | "watch=1"))
    };
    uri.path().ends_with("/jobs") && uri.query().is_some_and(is_watch)
}

/// A body of which nothing passes while events of Jobs are held.
fn held(shared: &Shared, body: Body) -> Body {
    let holds = shared.holds_jobs.subscribe();
    Body::from_stream(body.into_data_stream().then(move |chunk| {
        let mut holds = holds.clone();
        async move {
            _ = holds.wait_for(|is_held| !is_held).await;
            chunk
        }
    }))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
