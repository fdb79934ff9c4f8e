//! The lines of an open watch, until it ends.

use std::future;

use bytes::Bytes;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep_until};

use super::state::RemoteClient;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::watch::LineDecoder;
use crate::remote::body;
use crate::remote::connection_pool::{RemoteResponse, RequestSender};
use crate::remote::memory_budget::MemoryShare;
use crate::remote::rate_limiter::RateLimiter;

/// Why a watch ended. It holds no text of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// The connection is lost, or the watch ends as soon as it is opened.
    #[error("the connection to the API server is lost")]
    Lost,
    /// The server refused the request, or did not answer.
    #[error("the API server refused the list or the watch: {0}")]
    Call(CallError),
    /// A line is longer than the limit.
    #[error("the API server sent an event that is too large")]
    TooLong,
    /// There are more Jobs than the limit, or the memory budget of all clusters is used up.
    #[error("the API server shows more Jobs than the limit, or the memory budget is used up")]
    TooMuch,
    /// The server sent something that is no watch event.
    #[error("the API server sent what is no event")]
    Unreadable,
    /// The server forgets each resource version before it can be used.
    #[error("the API server forgets each version that it gave")]
    Expired,
}

/// The lines of one watch. It holds its client, and so keeps the connection open.
pub(in crate::remote) struct WatchStream {
    client: RemoteClient,
    body: Incoming,
    lines: LineDecoder,
    /// Share of the memory budget for an incomplete line.
    share: MemoryShare,
    /// Units of the parts that arrived and were not yet taken from the rate limiter.
    unpaid_units: u32,
    /// Over HTTP/1.1, which has no pings, the deadline by which the server must have ended the watch.
    end: Option<Instant>,
    /// Over HTTP/1.1 its drop closes the connection of the watch.
    _sender: RequestSender,
}

impl WatchStream {
    pub(super) fn new(client: RemoteClient, answer: RemoteResponse) -> Self {
        let (limits, share) = (client.limits(), client.memory_budget().share());
        let end = matches!(answer.sender, RequestSender::Http1(..))
            .then(|| Instant::now() + limits.http1_watch + limits.http1_grace);
        Self {
            client,
            body: answer.head.into_body(),
            lines: LineDecoder::default(),
            share,
            unpaid_units: 0,
            end,
            _sender: answer.sender,
        }
    }

    /// The next line, `None` after the last. A part that arrived waits for `pace` before it is decoded, so that a server is
    /// read no faster than that, whatever it sends. The future is cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost, or a line is too long.
    pub(in crate::remote) async fn next(&mut self, pace: &RateLimiter) -> Result<Option<Bytes>, WatchEnd> {
        loop {
            if self.unpaid_units > 0 {
                pace.acquire_many(self.unpaid_units).await;
                self.unpaid_units = 0;
            }
            let line = self.lines.next(self.client.limits().line);
            let line = line.map_err(|_| WatchEnd::TooLong)?;
            if !self.share.hold(self.lines.held()) {
                return Err(WatchEnd::TooMuch);
            }
            if let Some(line) = line {
                return Ok(Some(line));
            }
            let end = self.end;
            let part = tokio::select! {
                part = body::part(&mut self.body) => part.map_err(|_| WatchEnd::Lost)?,
                () = until(end) => return Err(WatchEnd::Lost),
            };
            let Some(part) = part else {
                return Ok(None);
            };
            self.unpaid_units = price(part.len());
            self.lines.push(part);
        }
    }
}

/// Rate limiter units that a part or a line of a watch costs: one, and one more for each 4 KiB.
pub(in crate::remote) fn price(len: usize) -> u32 {
    u32::try_from(len >> 12).unwrap_or(u32::MAX).saturating_add(1)
}

/// Waits until then, or for ever.
pub(in crate::remote) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => future::pending().await,
    }
}
