//! The hub as a program: its flags, its start and preflight, its loops, its admin server and its end.
//!
//! Builds everything once, supervises the loops, and drains them in order; nothing below imports it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::config::Settings;
use crate::base::metrics::{Metrics, StateLabel};
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::lease::InstanceState;

pub mod admin;
mod clusters;
pub mod config;
mod error;
mod hub_parts;
mod lease_keeper;
mod loops;
mod preflight_loop;
pub mod probe;
mod program;
mod pull_secrets;
mod signals;
mod start;
pub mod stop;
pub mod telemetry;
mod unserved_namespaces;

pub use error::AppError;
use hub_parts::HubParts;
use lease_keeper::LeaseKeeperTask;
use loops::DrainedTasks;
use program::Program;
pub use pull_secrets::pull_secrets;
use signals::LAST_EVENTS;
pub use start::{preflight, probe_network, stop_hub};

/// Runs the hub until SIGTERM or SIGINT: it listens, finds out whether it may start, works, drains.
///
/// # Errors
/// What keeps it from starting, or that one of its loops ended.
pub async fn run(settings: Settings) -> Result<(), AppError> {
    let clients = start::clients(WriteFence::default()).await?;
    let Program {
        mut loops,
        stop,
        metrics,
        ready,
        state,
    } = Program::start(settings.admin.admin_address, InstanceState::Starting).await?;
    loops.spawn(publish_state(state.subscribe(), metrics.clone()));
    let Some(started) = start::start_up(&clients, &settings, &metrics, &stop, state).await? else {
        return Ok(());
    };
    let grace_period = settings.grace_period;
    let hub = HubParts {
        client: clients.hub,
        anonymous: clients.anonymous,
        hub_client: started.hub_client,
        fence: clients.fence,
        metrics,
        settings,
        stop: stop.clone(),
    };
    let tasks = loops::start(&mut loops, hub, started.key, ready, started.namespaces)?;
    supervise(loops, started.lease, tasks, &stop, grace_period).await
}

/// Publishes the state of the instance as a metric.
async fn publish_state(mut state: watch::Receiver<InstanceState>, metrics: Metrics) {
    loop {
        let now = *state.borrow_and_update();
        for state in InstanceState::ALL {
            let label = StateLabel {
                state: state.as_str(),
            };
            let is_current = i64::from(state == now);
            metrics.instance_state.get_or_create(&label).set(is_current);
        }
        if state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits for the end, asked for or not, and drains the tasks.
async fn supervise(
    mut loops: JoinSet<()>,
    mut lease: LeaseKeeperTask,
    tasks: DrainedTasks,
    stop: &CancellationToken,
    grace_period: Duration,
) -> Result<(), AppError> {
    let DrainedTasks {
        events,
        mut controllers,
    } = tasks;
    tokio::select! {
        // First, because loops end by it too.
        biased;
        () = stop.cancelled() => {}
        error = lease.lost() => return Err(error),
        _ = loops.join_next() => return Err(AppError::LoopEnded),
        _ = controllers.join_next() => return Err(AppError::LoopEnded),
    }
    tracing::info!("stopping; work under way is finished");
    let ends = async { while controllers.join_next().await.is_some() {} };
    let is_drained = tokio::select! {
        drained = tokio::time::timeout(grace_period, ends) => drained.is_ok(),
        error = lease.lost() => return Err(error),
    };
    // It ends once it has sent the last event of the controllers; without the Lease it could send none.
    if tokio::time::timeout(LAST_EVENTS, events).await.is_err() {
        tracing::warn!("the hub stops before it has sent all its events");
    }
    if is_drained {
        // A lost Lease ends a controller too, which may be seen first.
        lease.release().await?;
    } else {
        // A write in flight must not meet a successor, so the Lease is left to expire.
        tracing::warn!("work was still under way after the grace period; the next start goes on with it");
    }
    loops.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};

    use super::lease_keeper::LAST_WRITE;
    use super::*;
    use crate::plan::lease::LeaseExit;

    /// How long a hub that stops waits for work under way.
    const GRACE: Duration = Duration::from_secs(60);

    /// Supervises a hub that is stopping and has nothing in flight, with an event to send and a Lease that ends so when it is
    /// released.
    async fn ending(
        event: impl Future<Output = ()> + Send + 'static,
        end: impl Future<Output = LeaseExit> + Send + 'static,
    ) -> Result<(), AppError> {
        ending_with([Duration::ZERO; 2], event, end).await
    }

    /// The same with controllers whose work under way takes so long.
    async fn ending_with(
        works: [Duration; 2],
        event: impl Future<Output = ()> + Send + 'static,
        end: impl Future<Output = LeaseExit> + Send + 'static,
    ) -> Result<(), AppError> {
        let release = CancellationToken::new();
        let released = release.clone();
        let task = tokio::spawn(async move {
            released.cancelled().await;
            end.await
        });
        let stop = CancellationToken::new();
        stop.cancel();
        let tasks = DrainedTasks {
            events: tokio::spawn(event),
            controllers: works.map(sleep).into_iter().collect(),
        };
        let keeper = LeaseKeeperTask::of(release, task);
        supervise(JoinSet::new(), keeper, tasks, &stop, GRACE).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_released_once_no_controller_writes_any_more_and_left_where_one_still_does() {
        let second = Duration::from_secs(1);
        let cases = [
            ([second * 2, second], Some(second * 2)),
            ([second, second * 2], Some(second * 2)),
            ([second, GRACE * 2], None),
            ([GRACE * 2, second], None),
        ];
        for (works, released) in cases {
            let begin = Instant::now();
            let (sender, mut reported) = oneshot::channel();
            let end = async move {
                _ = sender.send(begin.elapsed());
                LeaseExit::Stopped
            };
            ending_with(works, async {}, end).await.unwrap();
            assert_eq!(reported.try_recv().ok(), released, "{works:?}");
        }
    }

    /// Holds: M5.
    #[tokio::test]
    async fn a_loss_that_ended_the_last_of_the_work_is_still_reported() {
        let lost = ending(async {}, async { LeaseExit::Lost }).await;
        assert!(matches!(lost, Err(AppError::Lease(LeaseExit::Lost))), "{lost:?}");
        ending(async {}, async { LeaseExit::Stopped }).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_has_a_moment_at_the_end_and_the_lease_is_released_whether_it_was_sent_or_not() {
        // How long the event takes, and when the Lease is released.
        for (takes, released) in [(LAST_EVENTS / 2, LAST_EVENTS / 2), (2 * LAST_EVENTS, LAST_EVENTS)] {
            let begin = Instant::now();
            let (sender, reported) = oneshot::channel();
            let end = async move {
                _ = sender.send(begin.elapsed());
                LeaseExit::Stopped
            };
            ending(sleep(takes), end).await.unwrap();
            assert_eq!(
                (reported.await.unwrap(), begin.elapsed()),
                (released, released),
                "{takes:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_cannot_be_released_keeps_no_process_from_its_end() {
        for (takes, waits) in [(LAST_WRITE / 2, LAST_WRITE / 2), (2 * LAST_WRITE, LAST_WRITE)] {
            let begin = Instant::now();
            let end = async move {
                sleep(takes).await;
                LeaseExit::Stopped
            };
            // It is no failure: the successor waits until the Lease is over.
            ending(async {}, end).await.unwrap();
            assert_eq!(begin.elapsed(), waits, "{takes:?}");
        }
    }
}
