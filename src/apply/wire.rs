//! How a call gets to an API server: through kube's client to the hub's own, through a link of our own to all others.

use std::fmt;

use bytes::Bytes;
use futures::future::BoxFuture;
use kube::Client;

use crate::metrics::journey;

use super::error::{CallError, classify};

/// Carries requests to one API server, as one user.
pub trait Wire: fmt::Debug + Send + Sync {
    /// Sends a request whose path has no host; the body of an answer that is a success.
    fn send(&self, request: http::Request<Vec<u8>>) -> BoxFuture<'_, Result<Bytes, CallError>>;
}

/// The hub's own API server.
pub(super) struct Hub(pub(super) Client);

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hub")
    }
}

impl Wire for Hub {
    fn send(&self, request: http::Request<Vec<u8>>) -> BoxFuture<'_, Result<Bytes, CallError>> {
        Box::pin(async {
            journey::leaves();
            // As text, because kube logs the whole of an answer that it cannot decode, a Secret like anything else.
            let answer = self.0.request_text(request).await;
            answer.map(Bytes::from).map_err(|error| classify(&error))
        })
    }
}
