//! HTTP calls with a deadline, a body limit and a few retries. No redirects, no proxies, no cookies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{PushError, PushStep};
use super::lookup::{AddressLookup, RegistryResolver};

const AGENT: &str = concat!("renderhub-renderer/", env!("CARGO_PKG_VERSION"));

/// How long things may take and how large they may be.
#[derive(Clone, Copy, Debug)]
pub struct TransportLimits {
    /// All calls of a push together, waiting included.
    pub total: Duration,
    /// One call, body included.
    pub call: Duration,
    /// Opening a connection, TLS not included.
    pub connect: Duration,
    /// Attempts per call where the registry says it is busy or the connection breaks.
    pub attempts: u32,
    /// Pause before the second attempt; doubles from there.
    pub pause: Duration,
    /// Longest pause a registry may ask for.
    pub max_pause: Duration,
    /// Largest body in bytes that is read.
    pub body: usize,
}

impl Default for TransportLimits {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(300),
            call: Duration::from_secs(60),
            connect: Duration::from_secs(10),
            attempts: 4,
            pause: Duration::from_millis(500),
            max_pause: Duration::from_secs(60),
            body: 1024 * 1024,
        }
    }
}

/// A request that can be sent again.
#[derive(Clone, Debug)]
pub struct RegistryRequest {
    /// What it is for.
    pub step: PushStep,
    /// HTTP method.
    pub method: Method,
    /// Absolute address.
    pub uri: Uri,
    /// Headers; credentials are marked sensitive.
    pub headers: HeaderMap,
    /// Body, empty for none.
    pub body: Bytes,
    /// Whether the body of a successful answer is wanted; all others are dropped unread.
    pub read: bool,
}

/// What came back.
#[derive(Debug)]
pub struct RegistryResponse {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, where it was wanted.
    pub body: Bytes,
}

/// The way to one registry, for one push.
#[derive(Debug)]
pub struct Transport {
    client: Client<HttpsConnector<HttpConnector<RegistryResolver>>, Full<Bytes>>,
    limits: TransportLimits,
    deadline: Instant,
}

impl RegistryRequest {
    /// A call without headers and body.
    #[must_use]
    pub fn new(step: PushStep, method: Method, uri: Uri) -> Self {
        Self {
            step,
            method,
            uri,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            read: false,
        }
    }
}

impl Transport {
    /// A transport whose total time starts now.
    #[must_use]
    pub fn new(tls: ClientConfig, limits: TransportLimits) -> Self {
        Self::with_lookup(tls, limits, None)
    }

    /// The same with names looked up by something else than the system. A host that is an address is not looked up.
    #[must_use]
    pub fn with_lookup(
        tls: ClientConfig,
        limits: TransportLimits,
        lookup: Option<Arc<dyn AddressLookup>>,
    ) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(RegistryResolver::new(lookup));
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(limits.connect));
        tcp.set_nodelay(true);
        // The scheme of every call was decided before it gets here, so both are possible.
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1();
        let client = Client::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp));
        Self {
            client,
            limits,
            deadline: Instant::now() + limits.total,
        }
    }

    /// Sends a call, again after a pause where the registry is busy or the connection breaks.
    ///
    /// # Errors
    /// When the registry cannot be reached, a deadline passes, or a wanted body is too large.
    pub async fn send(&self, call: &RegistryRequest) -> Result<RegistryResponse, PushError> {
        let mut pause = self.limits.pause;
        for attempt in 1.. {
            let outcome = self.attempt(call).await;
            let wait = match &outcome {
                Ok(answer) if is_busy(answer.status) => retry_after(&answer.headers).unwrap_or(pause),
                Err(PushError::Unreachable) => pause,
                _ => return outcome,
            };
            let wait = wait.min(self.limits.max_pause);
            if attempt >= self.limits.attempts || Instant::now() + wait >= self.deadline {
                return outcome;
            }
            sleep(wait).await;
            pause *= 2;
        }
        Err(PushError::Unreachable)
    }

    async fn attempt(&self, call: &RegistryRequest) -> Result<RegistryResponse, PushError> {
        let deadline = self.deadline.min(Instant::now() + self.limits.call);
        match timeout_at(deadline, self.exchange(call)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(PushError::Deadline),
        }
    }

    async fn exchange(&self, call: &RegistryRequest) -> Result<RegistryResponse, PushError> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = call.uri.clone();
        *request.headers_mut() = call.headers.clone();
        request
            .headers_mut()
            .insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let response = self
            .client
            .request(request)
            .await
            .map_err(|_| PushError::Unreachable)?;
        let (parts, body) = response.into_parts();
        let body = if call.read && parts.status.is_success() {
            let limited = Limited::new(body, self.limits.body).collect().await;
            limited.map_err(|_| PushError::Protocol(call.step))?.to_bytes()
        } else {
            Bytes::new()
        };
        Ok(RegistryResponse {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }
}

fn is_busy(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// The pause a registry asks for in seconds; dates are not understood.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_number_of_seconds() {
        let pause = |text: &'static str| {
            retry_after(&HeaderMap::from_iter([(
                RETRY_AFTER,
                HeaderValue::from_static(text),
            )]))
        };
        assert_eq!(pause("7"), Some(Duration::from_secs(7)));
        assert_eq!(
            pause("86400"),
            Some(Duration::from_secs(86400)),
            "capped by the caller"
        );
        for text in [
            "",
            "-1",
            "1.5",
            "Wed, 21 Oct 2026 07:28:00 GMT",
            "99999999999999999999",
        ] {
            assert_eq!(pause(text), None, "{text}");
        }
    }
}
