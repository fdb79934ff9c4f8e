//! The validity of the Lease, and the fence that is open while it is valid.

use std::future::{self, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::Method;
use tokio::sync::watch;
use tokio::time::sleep_until;

/// Longer than a process runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Until when a hub may take itself for the holder.
#[derive(Clone, Debug)]
pub struct LeaseValidity(watch::Receiver<Instant>);

impl LeaseValidity {
    /// A validity that ends at the sender's time.
    #[must_use]
    pub fn new(until: watch::Receiver<Instant>) -> Self {
        Self(until)
    }

    /// Whether the Lease is still valid; it needs no request to know.
    #[must_use]
    pub fn is_current(&self) -> bool {
        Instant::now() < *self.0.borrow()
    }

    /// Waits until it is over, however often the Lease is renewed before.
    async fn ended(mut self) {
        loop {
            let until = *self.0.borrow_and_update();
            if until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = sleep_until(until.into()) => {}
                // Without a sender there is no renewal.
                Ok(()) = self.0.changed() => {}
            }
        }
    }

    /// Waits until it may.
    async fn begun(mut self) {
        while *self.0.borrow_and_update() <= Instant::now() {
            if self.0.changed().await.is_err() {
                future::pending::<()>().await;
            }
        }
    }
}

/// A fence that is closed until the hub holds its Lease, and whenever that is over. Clones are one fence.
#[derive(Clone, Debug, Default)]
pub struct WriteFence(Arc<watch::Sender<Option<LeaseValidity>>>);

/// What bodies and services fail with.
pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a write was not sent, or was cancelled in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub has no current claim on its Lease")]
pub struct FenceClosed;

impl WriteFence {
    /// A fence that stays open, for a program that needs no Lease: each of its writes names the object that it is meant for.
    #[must_use]
    pub fn without_lease() -> Self {
        let fence = Self::default();
        fence.open(LeaseValidity::new(
            watch::Sender::new(Instant::now() + FOREVER).subscribe(),
        ));
        fence
    }

    /// Opens the fence while the Lease is valid. The first validity counts; a process takes no other.
    pub fn open(&self, claim: LeaseValidity) {
        self.0.send_if_modified(|held| {
            let is_first = held.is_none();
            if is_first {
                *held = Some(claim);
            }
            is_first
        });
    }

    /// Whether writes go through now.
    ///
    /// # Errors
    /// [`FenceClosed`] when they do not.
    pub fn admit(&self) -> Result<(), FenceClosed> {
        let is_open = self.0.borrow().as_ref().is_some_and(LeaseValidity::is_current);
        if is_open { Ok(()) } else { Err(FenceClosed) }
    }

    /// Waits until writes do not go through any more; a renewal in time prolongs that.
    pub async fn closed(&self) {
        let claim = self.0.borrow().clone();
        if let Some(claim) = claim {
            claim.ended().await;
        }
    }

    /// Waits until writes go through.
    pub async fn opened(&self) {
        let mut claims = self.0.subscribe();
        let claim = claims
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|c| c.clone());
        match claim {
            Some(claim) => claim.begun().await,
            // The sender is the fence itself.
            None => future::pending().await,
        }
    }

    /// Does something as long as writes go through, and gives it up when they do not any more.
    ///
    /// # Errors
    /// [`FenceClosed`] when it was not begun, or was given up; what it had done by then is done.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, FenceClosed> {
        let (mut work, mut closed) = (pin!(work), pin!(self.closed()));
        poll_fn(|context| {
            // By the clock, and first: a process that was paused may be woken by anything before its timers are.
            if self.admit().is_err() || closed.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(FenceClosed));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }
}

/// Whether a request of this method changes nothing.
pub(super) fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Logs each time the fence closes and opens again, for as long as it is polled.
pub async fn log_transitions(gate: WriteFence) {
    gate.opened().await;
    loop {
        gate.closed().await;
        tracing::warn!("the Lease was not renewed in time; nothing is written until it is");
        gate.opened().await;
        tracing::info!("the Lease was renewed; work goes on");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// A fence that stays open.
    pub(crate) fn open() -> WriteFence {
        with_claim().0
    }

    /// An open fence, and what says until when.
    pub(crate) fn with_claim() -> (WriteFence, watch::Sender<Instant>) {
        let (renewed, until) = watch::channel(Instant::now() + LONG);
        let gate = WriteFence::default();
        gate.open(LeaseValidity::new(until));
        (gate, renewed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_of_a_program_without_a_lease_is_open_and_stays_so() {
        let fence = WriteFence::without_lease();
        fence.opened().await;
        assert_eq!(fence.admit(), Ok(()));
        let closed = tokio::time::timeout(24 * LONG, fence.closed()).await;
        assert!(closed.is_err(), "a day later it is open");
    }

    #[test]
    fn writes_go_through_while_the_lease_is_held_and_no_longer() {
        assert_eq!(
            WriteFence::default().admit(),
            Err(FenceClosed),
            "no instance claimed anything yet"
        );
        let (gate, renewed) = with_claim();
        assert_eq!(gate.admit(), Ok(()));
        // No renewal comes, and its time is over.
        renewed.send_replace(Instant::now());
        assert_eq!(gate.admit(), Err(FenceClosed));
        renewed.send_replace(Instant::now() + LONG);
        assert_eq!(gate.admit(), Ok(()));
    }

    #[test]
    fn a_process_takes_no_second_lease() {
        let (gate, renewed) = with_claim();
        renewed.send_replace(Instant::now());
        gate.open(LeaseValidity::new(watch::channel(Instant::now() + LONG).1));
        assert_eq!(gate.admit(), Err(FenceClosed));
    }

    #[tokio::test]
    async fn its_end_is_waited_for_however_often_it_is_renewed() {
        let (gate, renewed) = with_claim();
        let soon = || Instant::now() + Duration::from_secs(2);
        let begin = Instant::now();
        renewed.send_replace(soon());
        let renewals = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                renewed.send_replace(soon());
            }
        };
        tokio::join!(gate.closed(), renewals);
        assert!(
            begin.elapsed() >= Duration::from_millis(2_250),
            "it ended with an old claim"
        );
        assert_eq!(gate.admit(), Err(FenceClosed));
        // It opens again, and so do all its clones.
        let again = tokio::spawn({
            let gate = gate.clone();
            async move { gate.opened().await }
        });
        tokio::task::yield_now().await;
        assert!(!again.is_finished());
        renewed.send_replace(Instant::now() + LONG);
        again.await.unwrap();
        // Without a renewal it expires by itself all the same.
        renewed.send_replace(soon());
        drop(renewed);
        gate.closed().await;
    }

    #[tokio::test]
    async fn a_wait_for_the_first_lease_ends_with_it() {
        let gate = WriteFence::default();
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.opened().await }
        });
        tokio::task::yield_now().await;
        gate.open(LeaseValidity::new(watch::channel(Instant::now() + LONG).1));
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn work_starts_and_goes_on_only_while_the_lease_is_held() {
        assert_eq!(WriteFence::default().during(async { 1 }).await, Err(FenceClosed));
        let (gate, renewed) = with_claim();
        assert_eq!(gate.during(async { 1 }).await, Ok(1));
        renewed.send_replace(Instant::now() + Duration::from_millis(50));
        assert_eq!(gate.during(future::pending::<()>()).await, Err(FenceClosed));
    }

    #[tokio::test]
    async fn work_that_is_woken_after_a_pause_does_not_take_another_step() {
        let (gate, renewed) = with_claim();
        renewed.send_replace(Instant::now() + Duration::from_millis(50));
        let mut steps = 0;
        let work = poll_fn(|context| {
            steps += 1;
            // As a process that is stopped: no timer runs, and the work is woken at once when it goes on.
            std::thread::sleep(Duration::from_millis(100));
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(gate.during(work).await, Err(FenceClosed));
        assert_eq!(steps, 1);
    }
}
