//! The task that renews the Lease, from the moment at which the hub holds it.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::error::AppError;
use crate::kubernetes::lease::LeaseHolder;
use crate::plan::lease::LeaseExit;

/// Longest wait for the release of the Lease at the end.
pub(super) const LAST_WRITE: Duration = Duration::from_secs(5);

/// The task that renews the Lease. It ends after all others, because a hub that stops may still write.
pub(super) struct LeaseKeeperTask {
    release: CancellationToken,
    task: JoinHandle<LeaseExit>,
}

impl LeaseKeeperTask {
    pub(super) fn start(lease: LeaseHolder) -> Self {
        let release = CancellationToken::new();
        let task = tokio::spawn(lease.keep(release.clone()));
        Self::of(release, task)
    }

    pub(super) const fn of(release: CancellationToken, task: JoinHandle<LeaseExit>) -> Self {
        Self { release, task }
    }

    /// Waits for an end that was not asked for; returns its cause.
    pub(super) async fn lost(&mut self) -> AppError {
        match (&mut self.task).await {
            Ok(error) => AppError::Lease(error),
            Err(_) => AppError::LoopEnded,
        }
    }

    /// Goes on with `work` while the Lease is renewed; `None` where a signal stops the hub meanwhile. Without the work there is no use
    /// for the Lease, which is released then.
    ///
    /// # Errors
    /// The work failed, or the Lease was lost.
    pub(super) async fn during<T, E: Into<AppError>>(
        mut self,
        work: impl Future<Output = Result<T, E>>,
        stop: &CancellationToken,
    ) -> Result<Option<(T, Self)>, AppError> {
        let failure = tokio::select! {
            done = work => match done {
                Ok(done) => return Ok(Some((done, self))),
                Err(error) => Some(error.into()),
            },
            error = self.lost() => return Err(error),
            () = stop.cancelled() => None,
        };
        let released = self.release().await;
        failure.map_or(released.map(|()| None), Err)
    }

    /// Releases the Lease.
    ///
    /// # Errors
    /// The Lease was lost before.
    pub(super) async fn release(mut self) -> Result<(), AppError> {
        self.release.cancel();
        match tokio::time::timeout(LAST_WRITE, self.lost()).await {
            Ok(AppError::Lease(LeaseExit::Stopped)) => Ok(()),
            Ok(error) => Err(error),
            Err(_) => {
                tracing::warn!("the hub's Lease was not released; another instance waits until it is over");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Lease that is renewed until it is released, and whether it was.
    fn kept() -> (LeaseKeeperTask, CancellationToken) {
        let release = CancellationToken::new();
        let released = release.clone();
        let task = tokio::spawn(async move {
            released.cancelled().await;
            LeaseExit::Stopped
        });
        (LeaseKeeperTask::of(release.clone(), task), release)
    }

    #[tokio::test]
    async fn a_lease_is_kept_over_work_and_released_where_that_fails_or_the_hub_stops() {
        let stop = CancellationToken::new();
        let (keeper, released) = kept();
        let done = keeper.during(async { Ok::<_, AppError>(7) }, &stop).await;
        assert!(matches!(done, Ok(Some((7, _)))) && !released.is_cancelled());
        let (keeper, released) = kept();
        let failed = keeper
            .during(async { Err::<(), _>(AppError::LoopEnded) }, &stop)
            .await;
        assert!(matches!(failed, Err(AppError::LoopEnded)) && released.is_cancelled());
        stop.cancel();
        let (keeper, released) = kept();
        let work = std::future::pending::<Result<(), AppError>>();
        let stopped = keeper.during(work, &stop).await;
        assert!(matches!(stopped, Ok(None)) && released.is_cancelled());
    }

    #[tokio::test]
    async fn a_lease_that_is_lost_meanwhile_ends_the_work() {
        let task = tokio::spawn(async { LeaseExit::Lost });
        let keeper = LeaseKeeperTask::of(CancellationToken::new(), task);
        let work = std::future::pending::<Result<(), AppError>>();
        let lost = keeper.during(work, &CancellationToken::new()).await;
        assert!(matches!(lost, Err(AppError::Lease(LeaseExit::Lost))));
    }
}
