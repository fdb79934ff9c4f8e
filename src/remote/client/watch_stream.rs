//! A watch that was opened: its lines, until it ends.

use std::future;

use bytes::Bytes;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep_until};

use super::state::RemoteClient;
use crate::kubernetes::apply::CallError;
use crate::remote::body;
use crate::remote::connection_pool::{RemoteResponse, RequestSender};
use crate::remote::line_decoder::LineDecoder;
use crate::remote::memory_budget::MemoryShare;
use crate::remote::rate_limiter::RateLimiter;

/// Why a watch ended. Holds no text of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// The connection is lost, or the watch ends as soon as it is opened.
    #[error("the connection to the API server is lost")]
    Lost,
    /// The server refused, or did not answer.
    #[error("the API server refused the list or the watch: {0}")]
    Call(CallError),
    /// A line is longer than is read.
    #[error("the API server sent an event that is too large")]
    TooLong,
    /// There are more Jobs than are remembered, or all clusters together leave no room for what it says.
    #[error("the API server shows more Jobs than are remembered, or there is no room for what it says")]
    TooMuch,
    /// What came is no event of a watch.
    #[error("the API server sent what is no event")]
    Unreadable,
    /// Each version of the list is too old as soon as it is used.
    #[error("the API server forgets each version that it gave")]
    Expired,
}

/// The lines of one watch. It keeps its link, and so its connection.
pub(in crate::remote) struct WatchStream {
    link: RemoteClient,
    body: Incoming,
    lines: LineDecoder,
    /// Room for a line that is not whole.
    share: MemoryShare,
    /// What the parts cost that came and are not paid for.
    debt: u32,
    /// Over HTTP/1.1, which has no pings, the time at which it must have ended by itself.
    end: Option<Instant>,
    /// Ends the connection of its own with the watch.
    _sender: RequestSender,
}

impl WatchStream {
    pub(super) fn new(link: RemoteClient, answer: RemoteResponse) -> Self {
        let (limits, share) = (link.limits(), link.room().share());
        let end = matches!(answer.sender, RequestSender::Http1(..))
            .then(|| Instant::now() + limits.http1_watch + limits.http1_grace);
        Self {
            link,
            body: answer.head.into_body(),
            lines: LineDecoder::default(),
            share,
            debt: 0,
            end,
            _sender: answer.sender,
        }
    }

    /// The next line, `None` after the last. What came is paid for before it is looked at, so that a server is read no
    /// faster than `pace` allows, whatever it sends. Whoever stops waiting loses nothing.
    ///
    /// # Errors
    /// If the connection is lost, or a line is too long.
    pub(in crate::remote) async fn next(&mut self, pace: &RateLimiter) -> Result<Option<Bytes>, WatchEnd> {
        loop {
            if self.debt > 0 {
                pace.acquire_many(self.debt).await;
                self.debt = 0;
            }
            let line = self.lines.next(self.link.limits().line);
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
            self.debt = price(part.len());
            self.lines.push(part);
        }
    }
}

/// Units that a part of a watch, or a line of it, costs: one, and one more for each 4 KiB.
pub(in crate::remote) fn price(len: usize) -> u32 {
    u32::try_from(len >> 12).unwrap_or(u32::MAX).saturating_add(1)
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => future::pending().await,
    }
}
