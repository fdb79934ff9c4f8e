//! The fence on the socket that carries what may change something: the last look before bytes leave the process.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::fence::{BoxError, WriteFence};
use super::resolver::HubConnector;

/// Connects sockets that write only while the fence is open.
#[derive(Clone, Debug)]
pub(super) struct FencedConnector {
    http: HubConnector,
    fence: WriteFence,
}

impl FencedConnector {
    pub(super) fn new(http: HubConnector, gate: WriteFence) -> Self {
        Self { http, fence: gate }
    }
}

impl Service<Uri> for FencedConnector {
    type Response = FencedSocket;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<FencedSocket, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, gate) = (self.http.call(to), self.fence.clone());
        async move {
            let socket = connecting.await?;
            Ok(FencedSocket { socket, gate })
        }
        .boxed()
    }
}

/// A socket that breaks when it is written to without the Lease.
#[derive(Debug)]
pub(super) struct FencedSocket {
    socket: TokioIo<TcpStream>,
    gate: WriteFence,
}

impl Connection for FencedSocket {
    fn connected(&self) -> Connected {
        self.socket.connected()
    }
}

impl Read for FencedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl Write for FencedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.gate.admit().map_err(io::Error::other)?;
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.gate.admit().map_err(io::Error::other)?;
        Pin::new(&mut self.socket).poll_write_vectored(context, parts)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use hyper::rt::Write as _;
    use tokio::io::AsyncReadExt as _;

    use super::super::resolver::connector;
    use super::super::tests::with_claim;
    use super::*;

    #[tokio::test]
    async fn nothing_at_all_is_written_without_the_lease() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (gate, renewed) = with_claim();
        let mut connector = FencedConnector::new(connector(), gate);
        let to = format!("http://{}", listener.local_addr().unwrap());
        let mut socket = connector.call(to.parse().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut context = Context::from_waker(std::task::Waker::noop());
        let parts = [io::IoSlice::new(b"one"), io::IoSlice::new(b"two")];
        let one = Pin::new(&mut socket).poll_write(&mut context, b"one");
        assert!(matches!(one, Poll::Ready(Ok(3))), "{one:?}");
        renewed.send_replace(Instant::now());
        let late = Pin::new(&mut socket).poll_write(&mut context, b"two");
        assert!(matches!(late, Poll::Ready(Err(_))), "{late:?}");
        let late = Pin::new(&mut socket).poll_write_vectored(&mut context, &parts);
        assert!(matches!(late, Poll::Ready(Err(_))), "{late:?}");
        drop(socket);
        let mut came = Vec::new();
        peer.read_to_end(&mut came).await.unwrap();
        assert_eq!(came, b"one");
    }
}
