//! Response bodies, bounded in bytes and in the pauses between their parts.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::Deserialize;
use tokio::time::timeout;

use super::memory_budget::{MemoryBudget, MemoryShare};
use crate::kubernetes::apply::{CallError, TransportStage};

/// Most bytes of the body of an error that are read.
const ERROR_BODY: usize = 64 << 10;
/// Most bytes that are allocated before a body arrives.
const FIRST_CAPACITY: u64 = 64 << 10;

/// The next part of a body, `None` after the last.
///
/// # Errors
/// [`CallError::Transport`] when the connection ended.
pub(super) async fn part(body: &mut Incoming) -> Result<Option<Bytes>, CallError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| CallError::Transport(TransportStage::Body))?;
        // Trailers are skipped.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// A body of at most `max` bytes. Until its drop it holds twice its bytes of the memory budget: once for itself, and once for
/// the buffer that it grew out of, or for its decoded form.
///
/// # Errors
/// As [`part`]; [`CallError::Timeout`] after a pause longer than `idle`, [`CallError::TooLarge`] as soon as that is known,
/// [`CallError::Crowded`] where the memory budget is used up.
pub(super) async fn read(
    mut body: Incoming,
    max: usize,
    idle: Duration,
    budget: &MemoryBudget,
) -> Result<Bytes, CallError> {
    let announced = body.size_hint().lower();
    if announced > max as u64 {
        return Err(CallError::TooLarge);
    }
    let mut share = budget.share();
    let mut whole =
        BytesMut::with_capacity(usize::try_from(announced.min(FIRST_CAPACITY)).unwrap_or_default());
    loop {
        let part = timeout(idle, part(&mut body)).await;
        let Some(part) = part.map_err(|_| CallError::Timeout)?? else {
            return Ok(Bytes::from_owner(BudgetedBody(whole, share)));
        };
        let len = whole.len() + part.len();
        if len > max {
            return Err(CallError::TooLarge);
        }
        if !share.hold(2 * len) {
            return Err(CallError::Crowded);
        }
        whole.extend_from_slice(&part);
    }
}

/// A body with its share of the memory budget.
struct BudgetedBody(
    BytesMut,
    #[expect(dead_code, reason = "it is given back with the body")] MemoryShare,
);

impl AsRef<[u8]> for BudgetedBody {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Skips a body; returns whether it ended, so that its connection can be used again.
pub(super) async fn skip(mut body: Incoming, idle: Duration) -> bool {
    let mut len = 0;
    loop {
        match timeout(idle, part(&mut body)).await {
            Ok(Ok(None)) => return true,
            Ok(Ok(Some(part))) if len + part.len() <= ERROR_BODY => len += part.len(),
            _ => return false,
        }
    }
}

/// Whether the reason of an error is `AlreadyExists`, and whether its body was read to the end.
pub(super) async fn reason(body: Incoming, idle: Duration, budget: &MemoryBudget) -> (bool, bool) {
    #[derive(Deserialize)]
    struct ErrorStatus<'a> {
        #[serde(borrow)]
        reason: Option<&'a str>,
    }
    let Ok(bytes) = read(body, ERROR_BODY, idle, budget).await else {
        return (false, false);
    };
    let status: Option<ErrorStatus<'_>> = serde_json::from_slice(&bytes).ok();
    let is_taken = status.is_some_and(|status| status.reason == Some("AlreadyExists"));
    (is_taken, true)
}
