//! A token bucket with a queue: callers are served in order, and a cancelled caller takes no token.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// Limits calls to a rate per second, with a burst after a pause.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// Per second in the upper half, burst in the lower, so that both change at once.
    rates: AtomicU64,
    /// Held while waiting: the queue is that of the mutex, which is first in, first out.
    bucket: Mutex<TokenBucket>,
    /// Tokens that were given back; the next caller that holds the bucket adds them.
    returned: AtomicU32,
}

#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    filled: Instant,
}

impl RateLimiter {
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        Self {
            rates: AtomicU64::new(packed(per_second, burst)),
            bucket: Mutex::new(TokenBucket {
                tokens: f64::from(burst.max(1)),
                filled: Instant::now(),
            }),
            returned: AtomicU32::new(0),
        }
    }

    pub(super) fn set(&self, per_second: u32, burst: u32) {
        self.rates.store(packed(per_second, burst), Ordering::Relaxed);
    }

    /// Waits for a token. A cancelled wait takes none.
    pub(super) async fn acquire(&self) {
        self.acquire_many(1).await;
    }

    /// Waits for so many tokens at once; for more than the burst it waits only until the bucket is full.
    pub(super) async fn acquire_many(&self, count: u32) {
        let mut bucket = self.bucket.lock().await;
        loop {
            match self.take(&mut bucket, count) {
                Ok(_) => return,
                Err(pause) => sleep(pause).await,
            }
        }
    }

    /// Takes so many tokens without waiting, at most the burst, and returns how many it took.
    ///
    /// # Errors
    /// How long to wait before they may be there at the earliest; callers that wait already come first.
    pub(super) fn try_acquire_many(&self, count: u32) -> Result<u32, Duration> {
        match self.bucket.try_lock() {
            Ok(mut bucket) => self.take(&mut bucket, count),
            Err(_) => Err(pause(f64::from(count) / self.rates().0)),
        }
    }

    /// Gives back tokens that were taken and not used.
    pub(super) fn give_back(&self, count: u32) {
        self.returned.fetch_add(count, Ordering::Relaxed);
    }

    fn take(&self, bucket: &mut TokenBucket, count: u32) -> Result<u32, Duration> {
        let (per_second, burst) = self.rates();
        let now = Instant::now();
        let gained = (now - bucket.filled).as_secs_f64() * per_second;
        let returned = f64::from(self.returned.swap(0, Ordering::Relaxed));
        bucket.tokens = (bucket.tokens + gained + returned).min(burst);
        bucket.filled = now;
        let needed = (0..count)
            .take_while(|n| f64::from(*n) < burst)
            .fold(0, |needed, _| needed + 1);
        if bucket.tokens >= f64::from(needed) {
            bucket.tokens -= f64::from(needed);
            return Ok(needed);
        }
        Err(pause((f64::from(needed) - bucket.tokens) / per_second))
    }

    /// Whether less than half of the burst is left, as after a flood.
    pub(super) fn is_below_half(&self) -> bool {
        let Ok(bucket) = self.bucket.try_lock() else {
            return true;
        };
        let (per_second, burst) = self.rates();
        bucket.tokens + bucket.filled.elapsed().as_secs_f64() * per_second < burst / 2.0
    }

    fn rates(&self) -> (f64, f64) {
        let rates = self.rates.load(Ordering::Relaxed);
        let half = |bits: u64| f64::from(u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(1).max(1));
        (half(rates >> 32), half(rates))
    }
}

/// At most a second, so that a new rate soon applies to callers that wait.
fn pause(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.001, 1.0))
}

fn packed(per_second: u32, burst: u32) -> u64 {
    u64::from(per_second) << 32 | u64::from(burst)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let pace = RateLimiter::new(20, 30);
        let begin = Instant::now();
        for _ in 0..30 {
            pace.acquire().await;
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for _ in 0..40 {
            pace.acquire().await;
        }
        let took = begin.elapsed();
        assert!(
            took >= Duration::from_millis(1_990) && took < Duration::from_millis(2_200),
            "{took:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_served_in_order_and_a_cancelled_one_takes_no_token() {
        let pace = Arc::new(RateLimiter::new(1, 1));
        pace.acquire().await;
        let begin = Instant::now();
        let gone = tokio::time::timeout(Duration::from_millis(500), pace.acquire()).await;
        assert!(gone.is_err());
        let mut order = Vec::new();
        let (first, second) = (pace.acquire(), pace.acquire());
        tokio::pin!(first, second);
        while order.len() < 2 {
            tokio::select! {
                biased;
                () = &mut first, if !order.contains(&1) => order.push(1),
                () = &mut second, if !order.contains(&2) => order.push(2),
            }
        }
        assert_eq!(order, [1, 2]);
        let took = begin.elapsed();
        assert!(
            took < Duration::from_millis(2_100),
            "the cancelled caller took a token: {took:?}"
        );
    }

    /// Holds: B2.
    #[tokio::test(start_paused = true)]
    async fn reserved_calls_never_wait_and_unused_ones_are_given_back() {
        let pace = Arc::new(RateLimiter::new(1, 6));
        assert_eq!(pace.try_acquire_many(4), Ok(4));
        assert_eq!(
            pace.try_acquire_many(4),
            Err(Duration::from_secs(1)),
            "two are left"
        );
        pace.give_back(3);
        assert_eq!(pace.try_acquire_many(4), Ok(4));
        assert_eq!(pace.try_acquire_many(1), Ok(1));
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(pace.try_acquire_many(1), Err(Duration::from_millis(500)));
        // A caller that waits comes first.
        let waits = tokio::spawn({
            let pace = Arc::clone(&pace);
            async move { pace.acquire().await }
        });
        tokio::task::yield_now().await;
        pace.give_back(6);
        assert!(pace.try_acquire_many(4).is_err());
        waits.await.unwrap();
        assert_eq!(
            RateLimiter::new(1, 2).try_acquire_many(4),
            Ok(2),
            "no more than the burst"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_rate_applies_to_callers_that_wait() {
        let pace = RateLimiter::new(1, 1);
        pace.acquire_many(1).await;
        let begin = Instant::now();
        pace.set(1_000, 1);
        for _ in 0..100 {
            pace.acquire().await;
        }
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        pace.set(0, 0);
        pace.acquire().await;
    }
}
