//! The addresses of a registry's name: as the system finds them, or as the program that uses this client does.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

/// Finds the addresses that may be connected to.
pub trait AddressLookup: fmt::Debug + Send + Sync {
    /// The addresses of a name; none where there are none, or one of them may not be connected to.
    fn addresses<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Vec<IpAddr>>;
}

/// Finds addresses for a connection.
#[derive(Clone, Debug)]
pub(super) enum RegistryResolver {
    System(GaiResolver),
    Own(Arc<dyn AddressLookup>),
}

impl RegistryResolver {
    /// The system's, where there is no other.
    pub(super) fn new(own: Option<Arc<dyn AddressLookup>>) -> Self {
        own.map_or_else(|| Self::System(GaiResolver::new()), Self::Own)
    }
}

impl Service<Name> for RegistryResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::System(resolver) => resolver.poll_ready(context),
            Self::Own(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, name: Name) -> Self::Future {
        match self {
            Self::System(resolver) => {
                let found = resolver.call(name);
                async { Ok(found.await?.collect::<Vec<_>>().into_iter()) }.boxed()
            }
            Self::Own(lookup) => {
                let lookup = Arc::clone(lookup);
                let found = async move {
                    let found = lookup.addresses(name.as_str()).await;
                    // The port is that of the request.
                    let found: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
                    if found.is_empty() {
                        return Err(io::Error::from(io::ErrorKind::NotFound));
                    }
                    Ok(found.into_iter())
                };
                found.boxed()
            }
        }
    }
}
