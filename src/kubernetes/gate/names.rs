//! The name of the hub's own API server, looked up as the machine does.
//!
//! Where there is no address, the error is a type of this module: what the system's resolver says of it differs from what a
//! socket says by its text alone.

use std::io;
use std::task::{Context, Poll};

use futures::future::{MapErr, TryFutureExt as _};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiFuture, GaiResolver, Name};
use tower_service::Service;

/// The name of the API server has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of the API server has no address")]
pub struct Unresolved;

/// The system's resolver.
#[derive(Clone, Debug)]
pub(super) struct Names(GaiResolver);

/// Connects sockets to names and addresses.
pub(super) type Connector = HttpConnector<Names>;

/// A connector that knows by the type of its errors whether there was an address.
pub(super) fn connector() -> Connector {
    HttpConnector::new_with_resolver(Names(GaiResolver::new()))
}

fn unresolved(_: io::Error) -> Unresolved {
    Unresolved
}

impl Service<Name> for Names {
    type Response = GaiAddrs;
    type Error = Unresolved;
    type Future = MapErr<GaiFuture, fn(io::Error) -> Unresolved>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        self.0.poll_ready(context).map_err(unresolved)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let unresolved: fn(io::Error) -> Unresolved = unresolved;
        self.0.call(name).map_err(unresolved)
    }
}
