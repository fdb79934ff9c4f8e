//! The name of the hub's own API server, looked up as the machine does.
//!
//! Where there is no address, the error is a type of this module: what the system's resolver says of it differs from what a
//! socket says by its text alone.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{MapErr, TryFutureExt as _};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiFuture, GaiResolver, Name};
use tower_service::Service;

/// The name of the API server has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of the API server has no address")]
pub struct NameResolutionError;

/// The system's resolver.
#[derive(Clone, Debug)]
pub(super) struct SystemResolver(GaiResolver);

/// Connects sockets to names and addresses.
pub(super) type HubConnector = HttpConnector<SystemResolver>;

/// Pause of a connection after which its peer is asked whether it is there, and until it is asked again. A watch only receives, so nothing
/// else shows that an API server went away without a word.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Questions without an answer after which a connection is broken.
const KEEPALIVES: u32 = 3;

/// A connector that knows by the type of its errors whether there was an address.
pub(super) fn connector() -> HubConnector {
    let mut connector = HttpConnector::new_with_resolver(SystemResolver(GaiResolver::new()));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(KEEPALIVES));
    connector
}

fn unresolved(_: io::Error) -> NameResolutionError {
    NameResolutionError
}

impl Service<Name> for SystemResolver {
    type Response = GaiAddrs;
    type Error = NameResolutionError;
    type Future = MapErr<GaiFuture, fn(io::Error) -> NameResolutionError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), NameResolutionError>> {
        self.0.poll_ready(context).map_err(unresolved)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let unresolved: fn(io::Error) -> NameResolutionError = unresolved;
        self.0.call(name).map_err(unresolved)
    }
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use rustix::net::sockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_silent_is_asked_whether_its_peer_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server: Uri = format!("http://{}/", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let stream = connector().call(server).await.unwrap();
        // The socket itself is asked: its port, in the system's table of sockets, may be that of a connection to elsewhere too.
        let socket = stream.inner();
        assert!(sockopt::socket_keepalive(socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(socket).unwrap(), KEEPALIVE);
        assert_eq!(sockopt::tcp_keepintvl(socket).unwrap(), KEEPALIVE);
        assert_eq!(sockopt::tcp_keepcnt(socket).unwrap(), KEEPALIVES);
    }
}
