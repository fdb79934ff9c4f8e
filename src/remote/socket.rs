//! A socket that is read at a bounded rate, and sends no byte of a write while the write fence is closed.
//!
//! A server that sends empty frames or empty TLS records costs CPU time that no bound on lines and bodies counts, so the bytes
//! are bounded here.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::kubernetes::write_fence::WritesInFlight;

/// Bytes that a wait lasts for, so that a throttled connection does not wake for each packet.
const STEP: f64 = 16_384.0;

pub(super) struct ThrottledSocket {
    tcp: TcpStream,
    rate: f64,
    burst: f64,
    /// Bytes that may be read now.
    left: f64,
    filled: Instant,
    /// Set while nothing may be read.
    pause: Option<Pin<Box<Sleep>>>,
    in_flight: WritesInFlight,
}

impl ThrottledSocket {
    pub(super) fn new(tcp: TcpStream, rate: u32, burst: u32, in_flight: WritesInFlight) -> Self {
        Self {
            tcp,
            rate: f64::from(rate.max(1)),
            burst: f64::from(burst.max(1)),
            left: f64::from(burst.max(1)),
            filled: Instant::now(),
            pause: None,
            in_flight,
        }
    }

    fn poll_allowance(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            let now = Instant::now();
            self.left = (self.left + (now - self.filled).as_secs_f64() * self.rate).min(self.burst);
            self.filled = now;
            if self.left > 0.0 {
                return Poll::Ready(());
            }
            let missing = (STEP.min(self.burst) - self.left) / self.rate;
            self.pause = Some(Box::pin(sleep(Duration::from_secs_f64(missing))));
        }
    }
}

impl AsyncRead for ThrottledSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_allowance(context));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.tcp).poll_read(context, buffer))?;
        let read = u32::try_from(buffer.filled().len() - before).unwrap_or(u32::MAX);
        this.left -= f64::from(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ThrottledSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.in_flight.admit().map_err(io::Error::other)?;
        Pin::new(&mut self.get_mut().tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.in_flight.admit().map_err(io::Error::other)?;
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(context)
    }
}
