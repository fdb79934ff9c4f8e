//! How a call gets to an API server: through kube's client to the hub's own, through a link of our own to all others.

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

use crate::base::metrics::event_latency;

use crate::plan::task::admission_rejection;

use super::error::{CallError, CreateError, classify};
use super::transport_stage::TransportStage;

/// Bytes of one object of the hub's own API server: twice of what its database takes for one, 1.5 MiB.
pub const OBJECT_MAX: usize = 3 << 20;
/// Bytes of a page of a list of the hub's own API server, which is of metadata, or of the pods of one task.
const PAGE_MAX: usize = 16 << 20;
/// Bytes of an error of the hub's own API server; of a longer one only the status counts.
const ERROR_MAX: usize = 64 << 10;

/// How much of an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseLimit {
    /// Nothing but its status.
    Status,
    /// One object.
    Object,
    /// One page of a list.
    Page,
}

/// Carries requests to one API server, as one user.
pub trait ApiTransport: Send + Sync {
    /// Sends a request whose path has no host; the body of an answer that is a success, as far as it is wanted.
    fn send(
        &self,
        request: http::Request<Vec<u8>>,
        extent: ResponseLimit,
    ) -> BoxFuture<'_, Result<Bytes, CallError>>;

    /// The same for an object that is to be made, with what a server that is trusted names as the cause of a refusal.
    fn submit(&self, request: http::Request<Vec<u8>>) -> BoxFuture<'_, Result<Bytes, CreateError>> {
        let sent = self.send(request, ResponseLimit::Object);
        Box::pin(async move { sent.await.map_err(CreateError::from) })
    }
}

/// Says at `debug` what became of a call; of one that failed also how, and where on its way.
pub fn log_call(verb: &'static str, resource: &'static str, code: u16, error: Option<CallError>) {
    tracing::debug!(
        verb,
        resource,
        code,
        kind = error.map(CallError::kind),
        stage = error.and_then(CallError::stage),
        "a call to an API server"
    );
}

/// The hub's own API server.
pub(super) struct HubTransport(pub(super) Client);

impl ApiTransport for HubTransport {
    fn send(
        &self,
        request: http::Request<Vec<u8>>,
        extent: ResponseLimit,
    ) -> BoxFuture<'_, Result<Bytes, CallError>> {
        let max = match extent {
            ResponseLimit::Status => 0,
            ResponseLimit::Object => OBJECT_MAX,
            ResponseLimit::Page => PAGE_MAX,
        };
        Box::pin(fetch(&self.0, request, max))
    }

    fn submit(&self, request: http::Request<Vec<u8>>) -> BoxFuture<'_, Result<Bytes, CreateError>> {
        Box::pin(exchange(&self.0, request, OBJECT_MAX))
    }
}

/// Sends a request to the hub's own API server; the body of an answer that is a success, of at most so many bytes. With none,
/// the body is passed over. Nothing of it is logged, a Secret like anything else.
///
/// # Errors
/// What an answer that is no success means; [`CallError::TooLarge`] as soon as the body is known to be.
pub async fn fetch(client: &Client, request: http::Request<Vec<u8>>, max: usize) -> Result<Bytes, CallError> {
    let answer = exchange(client, request, max).await;
    answer.map_err(|declined| declined.error)
}

/// The same, with what is named as the cause of a refusal.
async fn exchange(
    client: &Client,
    request: http::Request<Vec<u8>>,
    max: usize,
) -> Result<Bytes, CreateError> {
    event_latency::mark_sent();
    let answer = client.send(request.map(Body::from)).await;
    let (head, mut body) = answer.map_err(|error| classify(&error))?.into_parts();
    if !head.status.is_success() {
        let said = read(&mut body, ERROR_MAX).await.unwrap_or_default();
        return Err(CreateError {
            error: CallError::of_status(head.status.as_u16(), reason(&said)),
            rejection: admission_rejection::read(&said),
        });
    }
    if max == 0 {
        // To its end where that is near, so that the connection can be used again.
        _ = read(&mut body, ERROR_MAX).await;
        return Ok(Bytes::new());
    }
    Ok(read(&mut body, max).await?)
}

async fn read(body: &mut Body, max: usize) -> Result<Bytes, CallError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| CallError::Transport(TransportStage::Body))?;
        // Trailers are of no interest.
        let Ok(part) = frame.into_data() else { continue };
        if whole.len() + part.len() > max {
            return Err(CallError::TooLarge);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// The reason in an error, where the hub knows it.
fn reason(said: &[u8]) -> &'static str {
    #[derive(Deserialize)]
    struct StatusReason<'a> {
        #[serde(borrow)]
        reason: Option<&'a str>,
    }
    let said: Option<StatusReason<'_>> = serde_json::from_slice(said).ok();
    match said.and_then(|said| said.reason) {
        Some("AlreadyExists") => "AlreadyExists",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::routing::get;

    use super::*;

    /// A server whose answer has as many bytes as the path says.
    async fn server() -> HubTransport {
        let whole = |path: axum::extract::Path<usize>| async move { "x".repeat(path.0) };
        let error = |path: axum::extract::Path<usize>| async move {
            let said = format!(
                r#"{{"reason":"AlreadyExists","message":"{}"}}"#,
                "x".repeat(path.0)
            );
            (StatusCode::CONFLICT, said)
        };
        let router = axum::Router::new()
            .route("/whole/{bytes}", get(whole))
            .route("/error/{bytes}", get(error));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        HubTransport(Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap())
    }

    async fn ask(hub: &HubTransport, path: String, extent: ResponseLimit) -> Result<usize, CallError> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        hub.send(request, extent).await.map(|body| body.len())
    }

    #[tokio::test]
    async fn an_answer_is_read_up_to_its_bound_and_an_error_up_to_its_own() {
        let hub = server().await;
        for (extent, most) in [
            (ResponseLimit::Object, OBJECT_MAX),
            (ResponseLimit::Page, PAGE_MAX),
        ] {
            assert_eq!(ask(&hub, format!("/whole/{most}"), extent).await, Ok(most));
            let more = ask(&hub, format!("/whole/{}", most + 1), extent).await;
            assert_eq!(more, Err(CallError::TooLarge), "{extent:?}");
        }
        assert_eq!(
            ask(&hub, "/whole/10".to_owned(), ResponseLimit::Status).await,
            Ok(0)
        );
        let error = ask(&hub, "/error/10".to_owned(), ResponseLimit::Object).await;
        assert_eq!(error, Err(CallError::AlreadyExists));
        let error = ask(&hub, format!("/error/{ERROR_MAX}"), ResponseLimit::Object).await;
        assert_eq!(error, Err(CallError::Conflict), "its status alone");
    }
}
