//! Calls of a remote client: sent with retries, and their responses read up to a limit.

use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use http::header::{self, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::Full;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::request::{AttemptError, INTERNAL, RemoteRequest, ResponseContent, ResponseMode};
use super::state::RemoteClient;
use super::watch_stream::{WatchEnd, WatchStream};
use crate::kubernetes::apply::{CallError, ResponseLimit, TransportStage};
use crate::kubernetes::write_fence::FencedBody;
use crate::remote::body;
use crate::remote::connection_pool::{RemoteRequestBody, RemoteResponse, RequestSender, SendFailure};
use crate::remote::headers::{headers, is_busy, retry_after, with_timeout};
use crate::remote::rate_limiter::RateLimiter;

/// Longest wait for a body of which only the status code is needed.
const ERROR_BODY_TIME: Duration = Duration::from_secs(2);

impl RemoteClient {
    /// Sends a request for one object, as [`RemoteClient::fetch`] does.
    ///
    /// # Errors
    /// As [`RemoteClient::fetch`].
    pub async fn send(
        &self,
        request: Request<Vec<u8>>,
        user: Option<&HeaderValue>,
    ) -> Result<Bytes, CallError> {
        self.fetch(request, user, ResponseLimit::Object).await
    }

    /// Sends a request without a host, as `user` where one is given, and reads the body of a success up to `extent`. It waits for
    /// a slot. Only a GET is retried, a few times, when the connection fails or the server is busy.
    ///
    /// # Errors
    /// Any [`CallError`]; [`CallError::Timeout`] at the deadline of the whole call, [`CallError::NoClaim`] when the write fence
    /// is closed before a write is sent or answered.
    pub async fn fetch(
        &self,
        request: Request<Vec<u8>>,
        user: Option<&HeaderValue>,
        extent: ResponseLimit,
    ) -> Result<Bytes, CallError> {
        self.send_reserved(request, user, None, extent).await.answer
    }

    /// Requests the version, which shows whether the server answers and accepts the credential. It waits for no slot.
    ///
    /// # Errors
    /// As [`RemoteClient::send`], with a shorter time.
    pub async fn probe(&self) -> Result<Bytes, CallError> {
        let request = Request::get("/version").body(Vec::new());
        let call = self.call(request.map_err(|_| INTERNAL)?, None)?;
        // Boxed: the caller's future lives as long as the connection, and must not keep space for a probe.
        let probing = Box::pin(async {
            let answer = self.exchange(&call, None).await?;
            let read = self.success(answer, ResponseLimit::Object).await;
            read.map_err(|failed| failed.error)
        });
        self.until(Instant::now() + self.0.limits.probe, probing).await
    }

    /// Opens a watch, and yields its lines until it ends: without an error when the server ends it, with a [`WatchEnd`] when
    /// the connection is lost. It has no deadline: over HTTP/2 pings detect a dead peer, and over HTTP/1.1 each watch request
    /// has a short timeout.
    ///
    /// # Errors
    /// As [`RemoteClient::send`], when the watch does not start.
    pub async fn watch(
        &self,
        request: Request<Vec<u8>>,
        user: Option<&HeaderValue>,
    ) -> Result<impl Stream<Item = Result<Bytes, WatchEnd>> + Send + Unpin + use<>, CallError> {
        let watching = self.open_watch(request, user).await?;
        let limits = &self.0.limits;
        let pace = RateLimiter::new(limits.event_rate, limits.event_burst);
        Ok(Box::pin(stream::unfold(Some((watching, pace)), async |state| {
            let (mut watching, pace) = state?;
            match watching.next(&pace).await {
                Ok(line) => line.map(|line| (Ok(line), Some((watching, pace)))),
                Err(end) => Some((Err(end), None)),
            }
        })))
    }

    pub(in crate::remote) async fn open_watch(
        &self,
        request: Request<Vec<u8>>,
        user: Option<&HeaderValue>,
    ) -> Result<WatchStream, CallError> {
        let call = self.call(request, user)?;
        match self.attempts(&call, ResponseMode::Lines).await? {
            ResponseContent::Lines(lines) => Ok(lines),
            ResponseContent::Body(_) => Err(INTERNAL),
        }
    }

    pub(super) async fn attempts(
        &self,
        call: &RemoteRequest,
        want: ResponseMode,
    ) -> Result<ResponseContent, CallError> {
        let deadline = Instant::now() + self.0.limits.total;
        let sent = self.send_with_retries(call, want, deadline);
        if call.method == Method::GET {
            return self.until(deadline, Box::pin(sent)).await;
        }
        // The fence also ends the wait for a slot and a connection; the connection checks it once more when it sends the body.
        let fenced = async { self.0.fence.during(sent).await.unwrap_or(Err(CallError::NoClaim)) };
        self.until(deadline, Box::pin(fenced)).await
    }

    /// Runs `work` until the deadline, or until the client is cut.
    async fn until<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let bounded = self.0.cut.run_until_cancelled(timeout_at(deadline, work));
        match bounded.await {
            None => Err(CallError::Transport(TransportStage::Canceled)),
            Some(done) => done.unwrap_or(Err(CallError::Timeout)),
        }
    }

    async fn send_with_retries(
        &self,
        call: &RemoteRequest,
        want: ResponseMode,
        deadline: Instant,
    ) -> Result<ResponseContent, CallError> {
        let limits = &self.0.limits;
        let mut attempt = 1;
        loop {
            let failed = {
                // The slot is released during the pause before a retry.
                let _slot = self.acquire(call).await?;
                Self::set_sent(call);
                match self.send_once(call, want).await {
                    Ok(done) => return Ok(done),
                    Err(failed) => failed,
                }
            };
            let own = limits.retry_pause * 2_u32.saturating_pow(attempt - 1);
            let pause = failed.asked.map_or(own, |asked| asked.min(limits.retry_after));
            let is_repeated = failed.is_passing && call.method == Method::GET && attempt < limits.attempts;
            if !is_repeated || Instant::now() + pause >= deadline {
                return Err(failed.error);
            }
            sleep(pause).await;
            attempt += 1;
        }
    }

    async fn send_once(
        &self,
        call: &RemoteRequest,
        want: ResponseMode,
    ) -> Result<ResponseContent, AttemptError> {
        let (short, extent) = match want {
            ResponseMode::Body(extent) => (None, extent),
            ResponseMode::Lines => (Some(self.0.limits.http1_watch), ResponseLimit::Status),
        };
        let answer = self.exchange(call, short).await?;
        if want == ResponseMode::Lines && answer.head.status().is_success() {
            return Ok(ResponseContent::Lines(WatchStream::new(self.clone(), answer)));
        }
        self.success(answer, extent).await.map(ResponseContent::Body)
    }

    /// Sends the request once. Only if no byte of it was sent it is repeated on another connection.
    async fn exchange(
        &self,
        call: &RemoteRequest,
        short: Option<Duration>,
    ) -> Result<RemoteResponse, CallError> {
        let mut returned = false;
        loop {
            let mut sender = self.0.pool.sender().await?;
            let seconds = short.filter(|_| matches!(sender, RequestSender::Http1(..)));
            match sender.send(self.request(call, seconds)?).await {
                Ok(head) => return Ok(RemoteResponse { head, sender }),
                Err(SendFailure::Returned) if !returned => returned = true,
                Err(SendFailure::Returned | SendFailure::Lost) => {
                    return Err(CallError::Transport(TransportStage::Send));
                }
                Err(SendFailure::Unmade) => return Err(INTERNAL),
            }
        }
    }

    /// The body of a success up to `extent`, or the error that the status means.
    async fn success(&self, answer: RemoteResponse, extent: ResponseLimit) -> Result<Bytes, AttemptError> {
        let limits = &self.0.limits;
        let status = answer.head.status();
        if !status.is_success() {
            let (is_passing, asked) = (is_busy(status), retry_after(answer.head.headers()));
            let reason = timeout(
                limits.idle.min(ERROR_BODY_TIME),
                body::reason(answer.head.into_body(), limits.idle, &self.0.memory_budget),
            );
            let (reason, is_whole) = reason.await.unwrap_or_default();
            self.release(answer.sender, is_whole);
            let error = CallError::of_status(status.as_u16(), if reason { "AlreadyExists" } else { "" });
            return Err(AttemptError {
                error,
                is_passing,
                asked,
            });
        }
        let max = match extent {
            ResponseLimit::Status => {
                let skipped = body::skip(answer.head.into_body(), limits.idle);
                let is_whole = timeout(limits.idle.min(ERROR_BODY_TIME), skipped).await;
                self.release(answer.sender, is_whole.unwrap_or_default());
                return Ok(Bytes::new());
            }
            ResponseLimit::Object => limits.answer,
            ResponseLimit::Page => limits.page,
        };
        let read = body::read(answer.head.into_body(), max, limits.idle, &self.0.memory_budget).await?;
        self.release(answer.sender, true);
        Ok(read)
    }

    fn release(&self, sender: RequestSender, is_whole: bool) {
        if let RequestSender::Http1(sender, in_flight) = sender
            && is_whole
        {
            self.0.pool.keep(sender, in_flight);
        }
    }

    pub(super) fn call(
        &self,
        request: Request<Vec<u8>>,
        user: Option<&HeaderValue>,
    ) -> Result<RemoteRequest, CallError> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let uri = Uri::try_from(format!("{}{path}", self.0.base)).map_err(|_| INTERNAL)?;
        Ok(RemoteRequest {
            headers: headers(&parts, user),
            method: parts.method,
            uri,
            body: body.into(),
            reservation: None,
            was_sent: AtomicBool::new(false),
        })
    }

    /// The request with the current token; `short` is the timeout of a watch.
    fn request(
        &self,
        call: &RemoteRequest,
        short: Option<Duration>,
    ) -> Result<Request<RemoteRequestBody>, CallError> {
        let uri = match short {
            Some(life) => with_timeout(&call.uri, life)?,
            None => call.uri.clone(),
        };
        let body = Full::new(call.body.clone());
        let mut request = Request::new(Box::new(FencedBody::new(body, &call.method, &self.0.fence)));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = call.headers.clone();
        let token = self
            .0
            .token
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(token) = token {
            request.headers_mut().insert(header::AUTHORIZATION, token);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;
    use secrecy::SecretString;

    use super::super::state::RemoteClientSettings;
    use super::*;
    use crate::api::names::HubId;
    use crate::remote::jobs::watch_jobs;
    use crate::remote::kubeconfig::{ApiServerHost, ClusterCredential, RemoteConfig};
    use crate::remote::limits::RemoteClientLimits;
    use crate::remote::memory_budget::MemoryBudget;
    use crate::remote::resolve::Resolver;
    use crate::remote::tls::RemoteClientError;

    fn is_send<T: Send>(_: &T) {}

    fn remote_client(limits: RemoteClientLimits) -> RemoteClient {
        let config = RemoteConfig {
            host: ApiServerHost::Address([192, 0, 2, 1].into()),
            port: 6443,
            tls_server_name: None,
            authorities: Vec::new(),
            login: ClusterCredential::Token(SecretString::from("canary-token")),
        };
        let settings = RemoteClientSettings {
            guard: Arc::default(),
            resolver: Resolver::with_servers(&[]).unwrap(),
            limits: Arc::new(limits),
            memory_budget: MemoryBudget::default(),
            fence: crate::kubernetes::write_fence::tests::open(),
        };
        RemoteClient::new(&config, &settings).unwrap()
    }

    #[tokio::test]
    async fn every_future_can_be_spawned_and_nothing_is_shown() {
        let client = remote_client(RemoteClientLimits::default());
        let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
        is_send(&client.send(Request::new(Vec::new()), None));
        is_send(&client.probe());
        is_send(&client.watch(Request::new(Vec::new()), None));
        is_send(&watch_jobs(&client, None, "render", &hub, async |_| ()));
        assert_eq!(format!("{client:?}"), "RemoteClient");
        let other = SecretString::from("a\nb");
        assert_eq!(client.set_token(&other), Err(RemoteClientError::Token));
    }

    #[test]
    fn only_permitted_headers_are_sent() {
        let client = remote_client(RemoteClientLimits::default());
        let request = Request::post("/api/v1/namespaces?x=1")
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .header("accept-encoding", "gzip")
            .header("authorization", "Bearer other")
            .header("impersonate-user", "somebody")
            .header("impersonate-group", "system:masters")
            .body(b"{}".to_vec())
            .unwrap();
        let user = HeaderValue::from_static("system:serviceaccount:team-a:deployer");
        let call = client.call(request, Some(&user)).unwrap();
        let sent = client.request(&call, Some(Duration::from_secs(45))).unwrap();
        assert_eq!(
            sent.uri(),
            "https://192.0.2.1:6443/api/v1/namespaces?x=1&timeoutSeconds=45"
        );
        let headers: std::collections::BTreeMap<_, _> = sent
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let expected = [
            ("accept", "application/json"),
            ("authorization", "Bearer canary-token"),
            ("content-type", "application/json"),
            ("impersonate-user", "system:serviceaccount:team-a:deployer"),
            ("user-agent", "renderhub"),
        ];
        assert_eq!(headers, expected.into());
        assert!(
            !format!("{sent:?}").contains("canary"),
            "the token is marked as sensitive"
        );
    }

    /// Holds: H3.
    #[test]
    fn how_long_to_wait_is_said_in_seconds_or_not_at_all() {
        let of = |value: &'static str| {
            retry_after(&HeaderMap::from_iter([(
                header::RETRY_AFTER,
                HeaderValue::from_static(value),
            )]))
        };
        assert_eq!(of("5"), Some(Duration::from_secs(5)));
        for odd in [
            "",
            "-1",
            "1e9",
            "Wed, 21 Oct 2015 07:28:00 GMT",
            "99999999999999999999",
        ] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }
}
