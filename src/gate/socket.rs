//! The gate on the socket that carries what may change something: the last look before bytes leave the process.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::{BoxError, Gate};

/// Connects sockets that write only while the gate is open.
#[derive(Clone, Debug)]
pub(super) struct GatedConnector {
    http: HttpConnector,
    gate: Gate,
}

impl GatedConnector {
    pub(super) fn new(http: HttpConnector, gate: Gate) -> Self {
        Self { http, gate }
    }
}

impl Service<Uri> for GatedConnector {
    type Response = GatedSocket;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<GatedSocket, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, gate) = (self.http.call(to), self.gate.clone());
        async move {
            let socket = connecting.await?;
            Ok(GatedSocket { socket, gate })
        }
        .boxed()
    }
}

/// A socket that breaks when it is written to without a claim.
#[derive(Debug)]
pub(super) struct GatedSocket {
    socket: TokioIo<TcpStream>,
    gate: Gate,
}

impl Connection for GatedSocket {
    fn connected(&self) -> Connected {
        self.socket.connected()
    }
}

impl Read for GatedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl Write for GatedSocket {
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
