//! The connections of one client: one over HTTP/2 for all calls, or over HTTP/1.1 one for each call, of which one idle is kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::connect::RemoteConnector;
use super::limits::RemoteClientLimits;
use super::socket::ThrottledSocket;
use crate::kubernetes::apply::{CallError, TransportStage};
use crate::kubernetes::write_fence::{FencedBody, WriteFence, WritesInFlight};

/// Boxed, because a connection keeps space for 32 requests.
pub(super) type RemoteRequestBody = Box<FencedBody<Full<Bytes>>>;
type TlsIo = TokioIo<TlsStream<ThrottledSocket>>;

/// Bytes that a server may send on one stream before they are read.
const STREAM_WINDOW: u32 = 64 << 10;
/// The same for all streams: several watches that are not read for a while leave a part of the window to calls.
const CONNECTION_WINDOW: u32 = 192 << 10;
/// Bytes of the headers of an answer.
const HEADERS: u32 = 16 << 10;
/// Bytes of the header compression table. Each response has another audit ID, so that any table fills up; this size keeps the
/// other headers for a few responses.
const HEADER_TABLE: u32 = 1 << 10;
/// Headers of an answer over HTTP/1.1.
const HEADER_COUNT: usize = 64;
/// Bytes that are buffered over HTTP/1.1 at most.
const HTTP1_BUFFER: usize = 32 << 10;
/// Most streams, ended early by either side, that are remembered.
const RESET_STREAMS: usize = 16;
/// Broken frames of the server's after which the connection ends.
const BROKEN_FRAMES: usize = 64;

/// A connection that can send a request.
pub(super) enum RequestSender {
    /// A connection for one request, until its response is read.
    Http1(http1::SendRequest<RemoteRequestBody>, WritesInFlight),
    /// The connection that all requests share.
    Http2(http2::SendRequest<RemoteRequestBody>, WritesInFlight),
}

/// A response whose body is not read yet, and its connection.
pub(super) struct RemoteResponse {
    pub(super) head: Response<Incoming>,
    pub(super) sender: RequestSender,
}

pub(super) struct ConnectionPool {
    connector: RemoteConnector,
    limits: Arc<RemoteClientLimits>,
    fence: WriteFence,
    /// Locked while connecting, so that many calls make one connection.
    shared: Mutex<PoolState>,
    idle: StdMutex<Option<(http1::SendRequest<RemoteRequestBody>, WritesInFlight)>>,
    opened: AtomicU64,
    cut: CancellationToken,
}

#[derive(Default)]
struct PoolState {
    http2: Option<(http2::SendRequest<RemoteRequestBody>, WritesInFlight)>,
    /// The last failure to connect; a call that waited for this attempt fails with it.
    failed: Option<(Instant, CallError)>,
}

/// Why a request got no response.
pub(super) enum SendFailure {
    /// No byte of it was sent.
    Returned,
    /// It may have reached the server.
    Lost,
    /// It could not be built.
    Unmade,
}

impl ConnectionPool {
    pub(super) fn new(
        connector: RemoteConnector,
        limits: Arc<RemoteClientLimits>,
        fence: WriteFence,
        cut: CancellationToken,
    ) -> Self {
        Self {
            connector,
            limits,
            fence,
            shared: Mutex::default(),
            idle: StdMutex::default(),
            opened: AtomicU64::new(0),
            cut,
        }
    }

    /// Number of connections opened since the start.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// A connection that accepts requests: an open one, or a new one.
    ///
    /// # Errors
    /// As [`RemoteConnector::connect`].
    pub(super) async fn sender(&self) -> Result<RequestSender, CallError> {
        let began = Instant::now();
        let idle = self.idle().take();
        if let Some((mut idle, in_flight)) = idle
            && idle.ready().await.is_ok()
        {
            return Ok(RequestSender::Http1(idle, in_flight));
        }
        let mut shared = self.shared.lock().await;
        if let Some((http2, in_flight)) = shared.http2.as_ref().filter(|(sender, _)| !sender.is_closed()) {
            return Ok(RequestSender::Http2(http2.clone(), in_flight.clone()));
        }
        shared.http2 = None;
        if let Some((_, error)) = shared.failed.filter(|(at, _)| *at > began) {
            return Err(error);
        }
        // Boxed, or the future of each call and each watch would keep space for a handshake.
        let made = Box::pin(self.open()).await;
        match &made {
            Ok(RequestSender::Http2(http2, in_flight)) => {
                shared.http2 = Some((http2.clone(), in_flight.clone()));
            }
            Ok(RequestSender::Http1(..)) => {}
            Err(error) => shared.failed = Some((Instant::now(), *error)),
        }
        made
    }

    /// Keeps a connection whose response was read to its end; at most one.
    pub(super) fn keep(&self, sender: http1::SendRequest<RemoteRequestBody>, in_flight: WritesInFlight) {
        if !sender.is_closed() {
            *self.idle() = Some((sender, in_flight));
        }
    }

    fn idle(
        &self,
    ) -> std::sync::MutexGuard<'_, Option<(http1::SendRequest<RemoteRequestBody>, WritesInFlight)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self) -> Result<RequestSender, CallError> {
        let in_flight = WritesInFlight::new(self.fence.clone());
        let tls = self.connector.connect(&self.limits, in_flight.clone()).await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let socket = TokioIo::new(tls);
        let made = if is_http2 {
            self.http2(socket)
                .await
                .map(|sender| RequestSender::Http2(sender, in_flight))
        } else {
            self.http1(socket)
                .await
                .map(|sender| RequestSender::Http1(sender, in_flight))
        };
        made.map_err(|_| CallError::Transport(TransportStage::Send))
    }

    async fn http1(&self, socket: TlsIo) -> hyper::Result<http1::SendRequest<RemoteRequestBody>> {
        let (sender, connection) = http1::Builder::new()
            .max_headers(HEADER_COUNT)
            .max_buf_size(HTTP1_BUFFER)
            .handshake(socket)
            .await?;
        self.drive(connection);
        Ok(sender)
    }

    async fn http2(&self, socket: TlsIo) -> hyper::Result<http2::SendRequest<RemoteRequestBody>> {
        let (sender, connection) = http2::Builder::new(CancellableExecutor(self.cut.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADERS)
            .header_table_size(HEADER_TABLE)
            .max_concurrent_reset_streams(RESET_STREAMS)
            .max_pending_accept_reset_streams(RESET_STREAMS)
            .max_local_error_reset_streams(BROKEN_FRAMES)
            .keep_alive_interval(self.limits.ping)
            .keep_alive_timeout(self.limits.ping_timeout)
            .keep_alive_while_idle(true)
            .handshake(socket)
            .await?;
        self.drive(connection);
        Ok(sender)
    }

    /// Runs a connection until it ends, all its senders are dropped, or the client is cut.
    fn drive(&self, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        // The calls on the connection get its error.
        CancellableExecutor(self.cut.clone()).execute(async { _ = connection.await });
    }
}

/// Runs the tasks of a connection, of which HTTP/2 has several, until the client is cut.
#[derive(Clone)]
struct CancellableExecutor(CancellationToken);

impl<F> Executor<F> for CancellableExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, part: F) {
        let cut = self.0.clone();
        // Boxed: each future around it would reserve its size once more, for every connection.
        let part = Box::pin(part);
        tokio::spawn(async move { cut.run_until_cancelled_owned(part).await.is_some() });
    }
}

impl RequestSender {
    /// Sends a request with an absolute URI.
    pub(super) async fn send(
        &mut self,
        request: Request<RemoteRequestBody>,
    ) -> Result<Response<Incoming>, SendFailure> {
        let (Self::Http1(_, in_flight) | Self::Http2(_, in_flight)) = &*self;
        let request_in_flight = in_flight.begin(request.method());
        let answer = match self {
            Self::Http2(sender, _) => sender.try_send_request(request).await,
            Self::Http1(sender, _) => match with_host(request) {
                Ok(request) => sender.try_send_request(request).await,
                Err(_) => return Err(SendFailure::Unmade),
            },
        };
        request_in_flight.over();
        answer.map_err(unsent)
    }
}

/// An error has its request only if no byte of it was sent.
#[allow(clippy::needless_pass_by_value, reason = "the error is not needed after this")]
fn unsent(failed: TrySendError<Request<RemoteRequestBody>>) -> SendFailure {
    if failed.message().is_some() {
        SendFailure::Returned
    } else {
        SendFailure::Lost
    }
}

/// HTTP/1.1 has the path in the request, and the host in a header.
fn with_host(mut request: Request<RemoteRequestBody>) -> http::Result<Request<RemoteRequestBody>> {
    if let Some(authority) = request.uri().authority() {
        let host = header::HeaderValue::from_str(authority.as_str())?;
        request.headers_mut().insert(header::HOST, host);
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() =
        path.map_or_else(|| Ok(Uri::from_static("/")), |path| Uri::try_from(path.as_str()))?;
    Ok(request)
}
