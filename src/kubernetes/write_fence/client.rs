//! A client of the hub's own API server with the fence at its very bottom.

use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{Client as Sender, Error, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower_layer::Layer as _;
use tower_service::Service;

use super::body::FencedBody;
use super::fence::{WriteFence, only_reads};
use super::layer::FencedService;
use super::resolver::connector;
use super::socket::FencedConnector;

type HubRequestBody = FencedBody<Body>;

/// A client whose requests that may change something go through the fence, on connections of their own. Its stack is that of
/// kube, without its log and its repetitions: there the fence could only be put around all of it, above a connection that may
/// keep a request for a while.
///
/// # Errors
/// If the configuration is none that a client can be made of.
pub fn client(config: &Config, gate: &WriteFence) -> kube::Result<Client> {
    let mut http = connector();
    http.enforce_http(false);
    let mut reads = TimeoutConnector::new(config.rustls_https_connector_with_connector(http.clone())?);
    let gated = FencedConnector::new(http, gate.clone());
    let mut writes = TimeoutConnector::new(config.rustls_https_connector_with_connector(gated)?);
    reads.set_connect_timeout(config.connect_timeout);
    reads.set_read_timeout(config.read_timeout);
    reads.set_write_timeout(config.write_timeout);
    reads.set_reset_reader_on_write(config.reset_reader_on_write);
    writes.set_connect_timeout(config.connect_timeout);
    writes.set_read_timeout(config.read_timeout);
    writes.set_write_timeout(config.write_timeout);
    writes.set_reset_reader_on_write(config.reset_reader_on_write);
    let senders = SplitSender {
        reads: Sender::builder(TokioExecutor::new()).build(reads),
        writes: Sender::builder(TokioExecutor::new()).build(writes),
    };
    let gated = FencedService {
        service: senders,
        fence: gate.clone(),
    };
    let service = config.extra_headers_layer()?.layer(gated);
    let (address, namespace) = (config.base_uri_layer(), config.default_namespace.clone());
    Ok(match config.auth_layer()? {
        Some(auth) => ClientBuilder::new(address.layer(auth.layer(service)), namespace).build(),
        None => ClientBuilder::new(address.layer(service), namespace).build(),
    })
}

/// What questions are sent by, and what all else is.
#[derive(Clone)]
struct SplitSender<R, W> {
    reads: Sender<R, HubRequestBody>,
    writes: Sender<W, HubRequestBody>,
}

impl<R, W> Service<Request<HubRequestBody>> for SplitSender<R, W>
where
    R: Connect + Clone + Send + Sync + 'static,
    W: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<HubRequestBody>) -> ResponseFuture {
        if only_reads(request.method()) {
            self.reads.request(request)
        } else {
            self.writes.request(request)
        }
    }
}
