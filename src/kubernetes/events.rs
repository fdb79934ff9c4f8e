//! Kubernetes events for people, best effort: few, bounded in rate, and never waited for.
//!
//! Namespaces are served in turn, so that one with many events displaces none with few. Warnings about a deletion, which nothing
//! else shows once the task is gone, have a buffer and a rate of their own.

mod message;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::mpsc;
use tokio::time::Instant;

use message::event;

pub use message::{EventMessage, EventSubject};

use crate::api::conditions::Reason;
use crate::base::metrics::Metrics;
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::queue::backoff::BackoffPolicy;
use crate::plan::queue::fair_buffer::{FairBuffer, FairBufferLimits};

/// Events that may wait to be sent, of a namespace and of all; more are dropped, because a burst of tasks matters more than the
/// tale of it. A namespace's wait three seconds when it is alone.
const WAITING: FairBufferLimits = FairBufferLimits {
    of_namespace: 16,
    total: 256,
};
/// Warnings about deletions that may wait to be sent, of a namespace and of all, each up to 1 KiB: they go out however long it
/// takes, so what bounds them is 4 MiB of memory.
const WAITING_WARNINGS: FairBufferLimits = FairBufferLimits {
    of_namespace: 1_024,
    total: 4_096,
};
/// Events a second in the long run, and at once after a quiet time; the API server has about 40 task's worth of writes a second.
const PACE: EventRate = EventRate {
    rate: 5.0,
    burst: 25.0,
};
/// The rate of warnings about deletions, in addition to the others.
const WARNING_PACE: EventRate = EventRate {
    rate: 2.0,
    burst: 10.0,
};
/// Longest an event may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Times that a warning about a deletion is sent, which nothing else shows; any other event is sent once.
const TRIES: u32 = 5;
/// Pauses between them.
const RETRY: BackoffPolicy = BackoffPolicy {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(8),
};
/// Where messages are handed in.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    waiting: Arc<Mutex<EventBuffer>>,
    /// Rings when something was handed in; it is closed with the last handle.
    wake: mpsc::Sender<()>,
    metrics: Metrics,
}

impl EventRecorder {
    /// Events, and the loop that sends them, when the fence is open, until every handle is dropped.
    pub fn new(
        client: Client,
        fence: WriteFence,
        hub: String,
        metrics: Metrics,
    ) -> (Self, impl Future<Output = ()>) {
        let (events, inbox) = Self::channel(metrics.clone());
        let sender = Arc::new(EventSender {
            client,
            hub,
            fence,
            metrics,
        });
        let sender = send_all(inbox, move |message| publish(Arc::clone(&sender), message));
        (events, sender)
    }

    fn channel(metrics: Metrics) -> (Self, EventReceiver) {
        let waiting = Arc::new(Mutex::new(EventBuffer::new(Instant::now())));
        let (bell, rings) = mpsc::channel(1);
        let inbox = EventReceiver {
            waiting: Arc::clone(&waiting),
            rings,
            metrics: metrics.clone(),
        };
        let events = Self {
            waiting,
            wake: bell,
            metrics,
        };
        (events, inbox)
    }

    /// Hands a message in. Where too many wait, it is dropped, or one of a namespace of which more wait.
    pub fn record(&self, message: EventMessage) {
        if lock(&self.waiting).put(message).is_some() {
            self.metrics.events_dropped.inc();
        }
        // A full channel has woken the sender already.
        _ = self.wake.try_send(());
    }
}

/// Where messages come out.
struct EventReceiver {
    waiting: Arc<Mutex<EventBuffer>>,
    rings: mpsc::Receiver<()>,
    metrics: Metrics,
}

fn lock(waiting: &Mutex<EventBuffer>) -> MutexGuard<'_, EventBuffer> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What sends events.
struct EventSender {
    client: Client,
    /// Id of the hub that reports.
    hub: String,
    fence: WriteFence,
    metrics: Metrics,
}

/// What became of an event that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventResult {
    Recorded,
    /// The API server does not take it, today or tomorrow.
    Refused,
    /// It may take it the next time.
    Failed,
}

async fn publish(sender: Arc<EventSender>, message: EventMessage) {
    let event = Arc::new(event(&message, &sender.hub));
    let send = || send_once(Arc::clone(&sender), Arc::clone(&event));
    if !is_recorded(&message, send).await {
        sender.metrics.events_dropped.inc();
    }
}

/// Repeated events are not counted in one, for which the hub would need a right to change events.
async fn send_once(sender: Arc<EventSender>, event: Arc<Event>) -> EventResult {
    sender.fence.opened().await;
    let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
    let api: Api<Event> = Api::namespaced(sender.client.clone(), namespace);
    let sent = tokio::time::timeout(DEADLINE, api.create(&PostParams::default(), &event)).await;
    let result = sent.map_or(EventResult::Failed, |sent| result(&sent));
    let code = if result == EventResult::Recorded { 201 } else { 0 };
    sender.metrics.call("create", "events", code);
    result
}

fn result(sent: &kube::Result<Event>) -> EventResult {
    match sent {
        Ok(_) => EventResult::Recorded,
        Err(kube::Error::Api(status)) => match status.code {
            // The answer of an earlier try was lost.
            409 => EventResult::Recorded,
            403 | 404 | 422 => EventResult::Refused,
            _ => EventResult::Failed,
        },
        Err(_) => EventResult::Failed,
    }
}

/// Sends a message as often as it is worth it.
async fn is_recorded<F: Future<Output = EventResult>>(message: &EventMessage, send: impl Fn() -> F) -> bool {
    let tries = if tells_of_deletion(message.reason) {
        TRIES
    } else {
        1
    };
    for failures in 1..=tries {
        match send().await {
            EventResult::Recorded => return true,
            EventResult::Refused => return false,
            EventResult::Failed if failures == tries => {}
            EventResult::Failed => tokio::time::sleep(RETRY.longest_wait(failures)).await,
        }
    }
    false
}

/// Sends what is handed in, each at its time. Once every handle is dropped, the warnings that still wait are sent at once, and of
/// the others those whose time has come.
async fn send_all<F: Future<Output = ()>>(mut inbox: EventReceiver, send: impl Fn(EventMessage) -> F) {
    let mut is_closed = false;
    loop {
        let upcoming = lock(&inbox.waiting).next(Instant::now(), is_closed);
        match upcoming {
            NextSend::Send(message) => send(message).await,
            NextSend::At(_) if is_closed => break,
            NextSend::At(Some(time)) => {
                tokio::select! {
                    () = tokio::time::sleep_until(time) => {}
                    ring = inbox.rings.recv() => is_closed = ring.is_none(),
                }
            }
            NextSend::At(None) => is_closed = inbox.rings.recv().await.is_none(),
        }
    }
    let dropped = lock(&inbox.waiting).others.bag.len();
    inbox
        .metrics
        .events_dropped
        .inc_by(u64::try_from(dropped).unwrap_or(u64::MAX));
}

/// What is to be done next.
enum NextSend {
    Send(EventMessage),
    /// Nothing before this time; without one, before something is handed in.
    At(Option<Instant>),
}

/// What waits to be sent.
#[derive(Debug)]
struct EventBuffer {
    warnings: EventClassBuffer,
    others: EventClassBuffer,
}

impl EventBuffer {
    fn new(now: Instant) -> Self {
        Self {
            warnings: EventClassBuffer::new(WAITING_WARNINGS, WARNING_PACE, now),
            others: EventClassBuffer::new(WAITING, PACE, now),
        }
    }

    /// Puts a message in line; what finds no room comes back.
    fn put(&mut self, message: EventMessage) -> Option<EventMessage> {
        let queue = if tells_of_deletion(message.reason) {
            &mut self.warnings
        } else {
            &mut self.others
        };
        let namespace = message.subject.namespace().to_owned();
        queue.bag.put(&namespace, message)
    }

    fn next(&mut self, now: Instant, is_last: bool) -> NextSend {
        let due = |queue: &EventClassBuffer| (!queue.bag.is_empty()).then(|| queue.bucket.due(now));
        let dues = [due(&self.warnings), due(&self.others)];
        let [of_warnings, of_others] = dues.map(|due| due.is_some_and(|due| due <= now));
        let message = if of_warnings || is_last && dues[0].is_some() {
            self.warnings.take(now)
        } else if of_others {
            self.others.take(now)
        } else {
            None
        };
        message.map_or_else(|| NextSend::At(dues.into_iter().flatten().min()), NextSend::Send)
    }
}

/// What of one kind waits, and how often one of it is sent.
#[derive(Debug)]
struct EventClassBuffer {
    bag: FairBuffer<EventMessage>,
    bucket: EventTokenBucket,
}

impl EventClassBuffer {
    fn new(limits: FairBufferLimits, rhythm: EventRate, now: Instant) -> Self {
        Self {
            bag: FairBuffer::new(limits),
            bucket: EventTokenBucket {
                rhythm,
                tokens: rhythm.burst,
                filled: now,
            },
        }
    }

    fn take(&mut self, now: Instant) -> Option<EventMessage> {
        self.bucket.take(now);
        self.bag.take()
    }
}

/// Whether nothing else tells of it once the object is gone.
const fn tells_of_deletion(reason: Reason) -> bool {
    matches!(reason, Reason::TeardownForced | Reason::PruneGivenUp)
}

/// How often something is sent.
#[derive(Clone, Copy, Debug)]
struct EventRate {
    /// Times a second.
    rate: f64,
    /// At once after a quiet time.
    burst: f64,
}

/// A token bucket.
#[derive(Debug)]
struct EventTokenBucket {
    rhythm: EventRate,
    tokens: f64,
    filled: Instant,
}

impl EventTokenBucket {
    fn tokens(&self, now: Instant) -> f64 {
        let earned = now.saturating_duration_since(self.filled).as_secs_f64() * self.rhythm.rate;
        (self.tokens + earned).min(self.rhythm.burst)
    }

    /// When there is a token.
    fn due(&self, now: Instant) -> Instant {
        let missing = (1.0 - self.tokens(now)).max(0.0);
        now + Duration::from_secs_f64(missing / self.rhythm.rate)
    }

    fn take(&mut self, now: Instant) {
        self.tokens = (self.tokens(now) - 1.0).max(0.0);
        self.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::message::tests::message;
    use super::*;

    /// Events, and what is sent of them with the seconds since the start.
    fn sent() -> (EventRecorder, impl Future<Output = Vec<(u64, EventMessage)>>) {
        let (events, inbox) = EventRecorder::channel(Metrics::new().0);
        let begin = Instant::now();
        let all = async move {
            let sent = RefCell::new(Vec::new());
            let deliver = |message| {
                sent.borrow_mut().push((begin.elapsed().as_secs(), message));
                std::future::ready(())
            };
            send_all(inbox, deliver).await;
            sent.into_inner()
        };
        (events, all)
    }

    fn of<'a>(
        sent: &'a [(u64, EventMessage)],
        namespace: &str,
        reason: Reason,
    ) -> Vec<&'a (u64, EventMessage)> {
        let is_one = |(_, message): &&(u64, EventMessage)| {
            message.subject.namespace() == namespace && message.reason == reason
        };
        sent.iter().filter(is_one).collect()
    }

    /// Holds: B19.
    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_namespace_silences_no_other_and_is_bounded_in_rate() {
        let (events, all) = sent();
        let flood = async move {
            for second in 0..60 {
                for n in 0..100 {
                    events.record(message("loud", second * 100 + n, Reason::JobFailed));
                }
                events.record(message("quiet", second, Reason::JobFailed));
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            events.metrics.events_dropped.get()
        };
        let (all, dropped) = tokio::join!(all, flood);
        let quiet = of(&all, "quiet", Reason::JobFailed);
        assert_eq!(quiet.len(), 60, "each of them");
        for (second, message) in quiet {
            let EventSubject::Task(task) = &message.subject else {
                continue;
            };
            let reported = task.name.trim_start_matches("task-").parse::<u64>().unwrap();
            assert!(second - reported <= 1, "recorded in {reported}, sent in {second}");
        }
        let loud = of(&all, "loud", Reason::JobFailed).len();
        assert!((25 + 59 * 5 - 70..=25 + 60 * 5).contains(&(loud + 60)), "{loud}");
        assert!(usize::try_from(dropped).unwrap() + loud > 5_900);
    }

    /// Holds: B19.
    #[tokio::test(start_paused = true)]
    async fn each_warning_about_a_deletion_goes_out_despite_other_events() {
        let (events, all) = sent();
        let flood = async move {
            for n in 0..1_000 {
                events.record(message("loud", n, Reason::TeardownForced));
                events.record(message("loud", n, Reason::JobFailed));
            }
            for n in 0..5 {
                events.record(message("quiet", n, Reason::TeardownForced));
            }
            tokio::time::sleep(Duration::from_secs(600)).await;
        };
        let (all, ()) = tokio::join!(all, flood);
        let quiet = of(&all, "quiet", Reason::TeardownForced);
        assert_eq!(
            (quiet.len(), quiet.iter().all(|(second, _)| *second <= 1)),
            (5, true),
            "{quiet:?}"
        );
        assert_eq!(of(&all, "loud", Reason::TeardownForced).len(), 1_000);
        let early = all.iter().filter(|(second, _)| *second < 10).count();
        assert!(early <= 25 + 10 + 10 * 7, "{early}");
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_end_the_warnings_go_out_at_once_and_the_rest_is_dropped() {
        let (events, all) = sent();
        let metrics = events.metrics.clone();
        for n in 0..200 {
            events.record(message(&format!("team-{n}"), n, Reason::JobFailed));
            events.record(message("team", n, Reason::TeardownForced));
        }
        drop(events);
        let all = all.await;
        assert_eq!(of(&all, "team", Reason::TeardownForced).len(), 200);
        assert_eq!((all.len(), metrics.events_dropped.get()), (225, 175));
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_about_a_deletion_is_sent_again_where_a_call_failed() {
        use EventResult::{Failed, Recorded, Refused};
        for (reason, answers, is_there, calls) in [
            (Reason::TeardownForced, vec![Failed, Failed, Recorded], true, 3),
            (Reason::TeardownForced, vec![Failed; 9], false, TRIES),
            (Reason::TeardownForced, vec![Refused, Recorded], false, 1),
            (Reason::JobFailed, vec![Failed, Recorded], false, 1),
        ] {
            let calls_made = RefCell::new(0_u32);
            let send = || {
                let mut made = calls_made.borrow_mut();
                *made += 1;
                std::future::ready(answers[usize::try_from(*made).unwrap() - 1])
            };
            let is_recorded = is_recorded(&message("team", 0, reason), send).await;
            assert_eq!(
                (is_recorded, *calls_made.borrow()),
                (is_there, calls),
                "{reason:?} {answers:?}"
            );
        }
    }

    #[test]
    fn the_bucket_bounds_a_burst_and_the_long_run() {
        let start = Instant::now();
        let mut bucket = EventTokenBucket {
            rhythm: PACE,
            tokens: PACE.burst,
            filled: start,
        };
        let mut taken = |now| {
            let mut count = 0;
            while bucket.due(now) <= now {
                bucket.take(now);
                count += 1;
            }
            count
        };
        assert_eq!(taken(start), 25);
        assert_eq!(taken(start + Duration::from_secs(2)), 10);
    }
}
