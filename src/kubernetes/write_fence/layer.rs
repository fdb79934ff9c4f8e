//! The fence on a client of the hub's own API server.

use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Request;
use tower_service::Service;

use super::body::FencedBody;
use super::fence::{BoxError, FenceClosed, WriteFence, only_reads};

/// A service whose requests go through the fence.
#[derive(Clone, Debug)]
pub struct FencedService<S> {
    pub(super) service: S,
    pub(super) fence: WriteFence,
}

impl<S, B> Service<Request<B>> for FencedService<S>
where
    S: Service<Request<FencedBody<B>>, Response: 'static, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let is_read = only_reads(&parts.method);
        let body = FencedBody::new(body, &parts.method, &self.fence);
        // A sender may act as soon as it has the request.
        if let Err(closed) = self.fence.admit()
            && !is_read
        {
            return async move { Err(closed.into()) }.boxed();
        }
        let sent = self.service.call(Request::from_parts(parts, body));
        if is_read {
            return sent.map(|answer| answer.map_err(Into::into)).boxed();
        }
        let gate = self.fence.clone();
        async move {
            let answer = gate.during(sent).await?;
            answer.map_err(Into::into)
        }
        .boxed()
    }
}

/// Whether a call failed because the fence was closed, or closed while the call was in flight.
#[must_use]
pub fn is_closed(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(cause) if cause.is::<FenceClosed>())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use http::Method;
    use http_body_util::Full;
    use hyper_util::client::legacy::Client as Sender;
    use hyper_util::rt::TokioExecutor;
    use kube::client::Body;
    use kube::{Client, Config};
    use tokio::sync::{Notify, watch};

    use super::super::client;
    use super::super::tests::with_claim;
    use super::*;
    use crate::kubernetes::tests::config_to_nowhere;

    /// A server that counts what reaches it, and answers when it is let.
    struct Server {
        url: String,
        client: Client,
        came: Arc<Mutex<Vec<String>>>,
        left: Arc<AtomicUsize>,
        answers: Arc<Notify>,
    }

    /// Counts a request whose caller cancelled it.
    struct Left(Arc<AtomicUsize>);

    impl Drop for Left {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn server(gate: &WriteFence) -> Server {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (came, left, answers) = <(Arc<Mutex<Vec<String>>>, Arc<AtomicUsize>, Arc<Notify>)>::default();
        let (seen, gone, may) = (Arc::clone(&came), Arc::clone(&left), Arc::clone(&answers));
        let answer = move |method: Method| async move {
            seen.lock().unwrap().push(method.to_string());
            let left = Left(gone);
            if method != Method::GET {
                may.notified().await;
            }
            std::mem::forget(left);
            "{}"
        };
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        let config = Config::new(url.parse().unwrap());
        let client = client(&config, gate).unwrap();
        Server {
            url,
            client,
            came,
            left,
            answers,
        }
    }

    fn request(method: &Method) -> Request<Vec<u8>> {
        let request = Request::builder().method(method).uri("/x");
        request.body(b"{}".to_vec()).unwrap()
    }

    const WRITES: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

    #[tokio::test]
    async fn without_the_lease_only_reads_reach_the_server() {
        let gate = WriteFence::default();
        let server = server(&gate).await;
        server.client.request_text(request(&Method::GET)).await.unwrap();
        for method in WRITES {
            let refused = server.client.request_text(request(&method)).await.unwrap_err();
            assert!(is_closed(&refused), "{method}: {refused:?}");
        }
        gate.open(super::super::fence::LeaseValidity::new(
            watch::channel(Instant::now() + Duration::from_secs(60)).1,
        ));
        for method in WRITES {
            server.answers.notify_one();
            server.client.request_text(request(&method)).await.unwrap();
        }
        let came = server.came.lock().unwrap().clone();
        assert_eq!(came, ["GET", "POST", "PUT", "PATCH", "DELETE"]);
    }

    #[tokio::test]
    async fn a_write_in_flight_is_cancelled_when_the_lease_ends_and_not_when_it_is_renewed() {
        let (gate, renewed) = with_claim();
        let server = server(&gate).await;
        let sent = tokio::spawn({
            let client = server.client.clone();
            async move { client.request_text(request(&Method::POST)).await }
        });
        while server.came.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        renewed.send_replace(Instant::now() + Duration::from_millis(200));
        tokio::time::sleep(Duration::from_millis(100)).await;
        renewed.send_replace(Instant::now() + Duration::from_millis(400));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!sent.is_finished(), "it was renewed");
        let refused = sent.await.unwrap().unwrap_err();
        assert!(is_closed(&refused), "{refused:?}");
        // The server sees the cancelled request.
        while server.left.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn what_a_connection_has_not_sent_when_the_process_is_paused_is_not_sent_when_it_wakes() {
        let (gate, renewed) = with_claim();
        let server = server(&gate).await;
        let sender = Sender::builder(TokioExecutor::new()).build_http();
        let mut gated = FencedService {
            service: sender,
            fence: gate,
        };
        let mut send = |method: &Method| {
            let request = Request::builder().method(method).uri(&server.url);
            gated.call(request.body(Full::new(bytes::Bytes::from_static(b"{}"))).unwrap())
        };
        // Now there is a connection.
        let warm = send(&Method::GET).await.unwrap();
        drop(http_body_util::BodyExt::collect(warm.into_body()).await.unwrap());
        tokio::task::yield_now().await;
        let mut held = send(&Method::POST);
        // The connection has it, and has not run yet; the pause comes here, and the caller is the last to wake.
        assert!(futures::poll!(&mut held).is_pending());
        renewed.send_replace(Instant::now());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(held.await.unwrap_err().is::<FenceClosed>());
        assert_eq!(*server.came.lock().unwrap(), ["GET"]);
    }

    #[tokio::test]
    async fn other_failures_are_not_taken_for_a_closed_fence() {
        let (gate, _renewed) = with_claim();
        let client = client(&config_to_nowhere(), &gate).unwrap();
        let failed = client.send(request(&Method::POST).map(Body::from)).await;
        assert!(!is_closed(&failed.unwrap_err()));
    }
}
