//! The headers of a request, and the headers of a response that the hub reads.

use std::time::Duration;

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode, Uri, request};
use secrecy::{ExposeSecret, SecretString};

use super::tls::RemoteClientError;
use crate::kubernetes::apply::{CallError, TransportStage};
use crate::remote::kubeconfig::{ApiServerHost, RemoteConfig};

/// The user agent of each request.
const USER_AGENT: HeaderValue = HeaderValue::from_static("renderhub");
/// Header with the user that the hub impersonates.
const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

/// The scheme and the host of every request.
pub(super) fn base(config: &RemoteConfig) -> String {
    match &config.host {
        ApiServerHost::Address(address) if address.is_ipv6() => {
            format!("https://[{}]:{}", config.host, config.port)
        }
        ApiServerHost::Address(_) | ApiServerHost::Name(_) => {
            format!("https://{}:{}", config.host, config.port)
        }
    }
}

pub(super) fn bearer(token: &SecretString) -> Result<HeaderValue, RemoteClientError> {
    let mut value = HeaderValue::from_str(&["Bearer ", token.expose_secret()].concat())
        .map_err(|_| RemoteClientError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Copies only the headers that a call may set: the credential and the user are set by the client alone.
pub(super) fn headers(parts: &request::Parts, user: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in [header::ACCEPT, header::CONTENT_TYPE] {
        if let Some(value) = parts.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers.insert(header::USER_AGENT, USER_AGENT);
    if let Some(user) = user {
        headers.insert(IMPERSONATE_USER, user.clone());
    }
    headers
}

pub(super) fn with_timeout(uri: &Uri, life: Duration) -> Result<Uri, CallError> {
    let mark = if uri.query().is_some() { '&' } else { '?' };
    let seconds = life.as_secs().max(1);
    Uri::try_from(format!("{uri}{mark}timeoutSeconds={seconds}"))
        .map_err(|_| CallError::Transport(TransportStage::Internal))
}

pub(super) fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

/// Only whole seconds are understood, as Kubernetes sends them.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}
