//! Bodies of answers, bounded in bytes and in the pauses between their parts.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::Deserialize;
use tokio::time::timeout;

use crate::apply::CallError;

/// Bytes of the body of an error that are looked at.
const ERROR_BODY: usize = 64 << 10;
/// Room that a body is given before it came.
const FIRST_ROOM: u64 = 64 << 10;

/// The next part of a body, `None` after the last.
///
/// # Errors
/// [`CallError::Transport`] when the connection ended.
pub(super) async fn part(body: &mut Incoming) -> Result<Option<Bytes>, CallError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| CallError::Transport)?;
        // Trailers are nothing anybody waits for.
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// A body of at most `max` bytes.
///
/// # Errors
/// As [`part`]; [`CallError::Timeout`] after a pause longer than `idle`, [`CallError::TooLarge`] as soon as it is known.
pub(super) async fn read(mut body: Incoming, max: usize, idle: Duration) -> Result<Bytes, CallError> {
    let told = body.size_hint().lower();
    if told > max as u64 {
        return Err(CallError::TooLarge);
    }
    let mut whole = BytesMut::with_capacity(usize::try_from(told.min(FIRST_ROOM)).unwrap_or_default());
    loop {
        let part = timeout(idle, part(&mut body)).await;
        let Some(part) = part.map_err(|_| CallError::Timeout)?? else {
            return Ok(whole.freeze());
        };
        if whole.len() + part.len() > max {
            return Err(CallError::TooLarge);
        }
        whole.extend_from_slice(&part);
    }
}

/// Whether an error says that the name is taken, and whether its body was read to the end.
pub(super) async fn reason(body: Incoming, idle: Duration) -> (bool, bool) {
    #[derive(Deserialize)]
    struct Status<'a> {
        #[serde(borrow)]
        reason: Option<&'a str>,
    }
    let Ok(bytes) = read(body, ERROR_BODY, idle).await else {
        return (false, false);
    };
    let said: Option<Status<'_>> = serde_json::from_slice(&bytes).ok();
    let is_taken = said.is_some_and(|said| said.reason == Some("AlreadyExists"));
    (is_taken, true)
}
