//! Waiting on a condition, with a deadline and a failure text that says what was missing.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Repeats `look` until it returns `Ok(Some(value))`.
///
/// `Ok(None)` and errors mean "not yet"; the last error is part of the failure text, so a wait that fails says why.
/// `what` completes the sentence "timed out waiting for …".
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// let three = renderhub_harness::wait_for("a number", Duration::from_secs(1), async || Ok(Some(3))).await?;
/// assert_eq!(three, 3);
/// # anyhow::Ok(()) }).unwrap();
/// ```
///
/// # Errors
/// If the deadline passes first.
pub async fn wait_for<T, F, Fut>(what: &str, limit: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let begin = Instant::now();
    let mut last = String::from("nothing there");
    loop {
        let left = limit.saturating_sub(begin.elapsed());
        match tokio::time::timeout(left, look()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => last.push_str("; the last look did not return"),
        }
        if begin.elapsed() >= limit {
            bail!("timed out after {limit:?} waiting for {what} ({last})");
        }
        tokio::time::sleep(PAUSE.min(limit)).await;
    }
}
