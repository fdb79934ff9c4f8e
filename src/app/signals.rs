//! The signals that ask a program to end.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::error::AppError;

/// Longest wait for events at the end; a successor waits as long.
pub(super) const LAST_EVENTS: Duration = Duration::from_millis(500);

/// Cancels the token on the first signal that asks the hub to end, and then waits for ever, as every loop does.
pub(super) fn cancel_on_signal(
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + use<>, AppError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(AppError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(AppError::Signals)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
        std::future::pending::<()>().await;
    })
}
