//! A client that only reads, for many watches: they share connections over HTTP/2, where HTTP/1.1 takes one for each.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::Either;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Client as Sender, Error, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower_layer::Layer as _;
use tower_service::Service;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Time between two questions whether the other end of a connection is alive, and the longest wait for an answer: a watch of a dead
/// API server is opened anew after both.
const PING: Duration = Duration::from_secs(5);
/// Bytes that the API server may send on a watch before they are read.
const STREAM_WINDOW: u32 = 64 << 10;
/// The same for all watches of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// A client whose connections are its own, and that sends no write.
///
/// # Errors
/// If the configuration is none that a client can be made of.
pub fn watch_client(config: &Config) -> kube::Result<Client> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(http);
    let sender = Sender::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build(https);
    let service = config.extra_headers_layer()?.layer(ReadsOnly(sender));
    let (address, namespace) = (config.base_uri_layer(), config.default_namespace.clone());
    Ok(match config.auth_layer()? {
        Some(auth) => ClientBuilder::new(address.layer(auth.layer(service)), namespace).build(),
        None => ClientBuilder::new(address.layer(service), namespace).build(),
    })
}

/// A request that would change something came to a client that only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this client only reads")]
pub struct WriteRefused;

/// What a sender or this client fails with.
type BoxedSendError = Box<dyn std::error::Error + Send + Sync>;

/// Sends reads, and refuses all else.
#[derive(Clone)]
struct ReadsOnly<C>(Sender<C, Body>);

impl<C: Connect + Clone + Send + Sync + 'static> Service<Request<Body>> for ReadsOnly<C> {
    type Response = Response<Incoming>;
    type Error = BoxedSendError;
    type Future = Either<
        futures::future::MapErr<ResponseFuture, fn(Error) -> BoxedSendError>,
        futures::future::Ready<Result<Response<Incoming>, BoxedSendError>>,
    >;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxedSendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        use futures::TryFutureExt as _;
        if request.method() != Method::GET {
            return Either::Right(futures::future::ready(Err(WriteRefused.into())));
        }
        let boxed: fn(Error) -> BoxedSendError = |error| error.into();
        Either::Left(self.0.request(request).map_err(boxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::tests::config_to_nowhere;

    #[tokio::test]
    async fn a_write_is_not_sent() {
        let client = watch_client(&config_to_nowhere()).unwrap();
        let sent = async |method: Method| {
            let request = Request::builder()
                .method(method)
                .uri("/api")
                .body(Vec::new())
                .unwrap();
            client.request_text(request).await.unwrap_err()
        };
        let refused = |error: &kube::Error| match error {
            kube::Error::Service(cause) => cause.is::<WriteRefused>(),
            _ => false,
        };
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let error = sent(method.clone()).await;
            assert!(refused(&error), "{method}: {error:?}");
        }
        let error = sent(Method::GET).await;
        assert!(!refused(&error), "{error:?}");
    }
}
