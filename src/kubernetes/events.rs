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
/// Pause of all warnings after one of them failed.
const RETRY: Duration = Duration::from_secs(1);

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
        let is_lost = lock(&self.waiting).put(message);
        self.metrics.events_dropped.inc_by(u64::from(is_lost));
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

/// Repeated events are not counted in one, for which the hub would need a right to change events.
async fn publish(sender: Arc<EventSender>, message: EventMessage) -> EventResult {
    let event = event(&message, &sender.hub);
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
            403 | 404 | 422 => EventResult::Refused,
            _ => EventResult::Failed,
        },
        Err(_) => EventResult::Failed,
    }
}

/// Sends what is handed in, each at its time. Once every handle is dropped, the warnings that still wait are sent at once, and of
/// the others those whose time has come.
async fn send_all<F: Future<Output = EventResult>>(
    mut inbox: EventReceiver,
    send: impl Fn(EventMessage) -> F,
) {
    let mut is_closed = false;
    loop {
        let upcoming = lock(&inbox.waiting).next(Instant::now(), is_closed);
        match upcoming {
            NextSend::Send(message, failures) => {
                let is_worth_it = tells_of_deletion(message.reason) && !is_closed && failures + 1 < TRIES;
                let again = is_worth_it.then(|| message.clone());
                let result = send(message).await;
                let again = again.filter(|_| result == EventResult::Failed);
                let is_lost = match again {
                    Some(again) => lock(&inbox.waiting).put_back(again, failures + 1, Instant::now()),
                    None => result != EventResult::Recorded,
                };
                inbox.metrics.events_dropped.inc_by(u64::from(is_lost));
            }
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
    /// This, which failed so often before.
    Send(EventMessage, u32),
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

    /// Puts a message in line; whether one found no room.
    fn put(&mut self, message: EventMessage) -> bool {
        let queue = if tells_of_deletion(message.reason) {
            &mut self.warnings
        } else {
            &mut self.others
        };
        queue.put(message, 0)
    }

    /// Puts a warning in line once more; the others wait no longer for it.
    fn put_back(&mut self, message: EventMessage, failures: u32, now: Instant) -> bool {
        self.warnings.held = Some(now + RETRY);
        self.warnings.put(message, failures)
    }

    fn next(&mut self, now: Instant, is_last: bool) -> NextSend {
        let due = |queue: &EventClassBuffer| (!queue.bag.is_empty()).then(|| queue.due(now));
        let dues = [due(&self.warnings), due(&self.others)];
        let [of_warnings, of_others] = dues.map(|due| due.is_some_and(|due| due <= now));
        let message = if of_warnings || is_last && dues[0].is_some() {
            self.warnings.take(now)
        } else if of_others {
            self.others.take(now)
        } else {
            None
        };
        match message {
            Some((message, failures)) => NextSend::Send(message, failures),
            None => NextSend::At(dues.into_iter().flatten().min()),
        }
    }
}

/// What of one kind waits, and how often one of it is sent.
#[derive(Debug)]
struct EventClassBuffer {
    /// What waits, each with how often it failed.
    bag: FairBuffer<(EventMessage, u32)>,
    bucket: EventTokenBucket,
    /// Until when nothing of it is sent, because a call failed.
    held: Option<Instant>,
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
            held: None,
        }
    }

    /// Puts a message in line; whether one found no room.
    fn put(&mut self, message: EventMessage, failures: u32) -> bool {
        let namespace = message.subject.namespace().to_owned();
        self.bag.put(&namespace, (message, failures)).is_some()
    }

    fn due(&self, now: Instant) -> Instant {
        let due = self.bucket.due(now);
        self.held.map_or(due, |held| held.max(due))
    }

    fn take(&mut self, now: Instant) -> Option<(EventMessage, u32)> {
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
                std::future::ready(EventResult::Recorded)
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

    /// Sends these messages where each call of the namespace `broken` has this result; how often each namespace was tried, how many
    /// messages were lost, and in which second the last one of another namespace went out.
    async fn tried(messages: Vec<EventMessage>, broken: EventResult) -> (usize, usize, u64, u64) {
        let (events, inbox) = EventRecorder::channel(Metrics::new().0);
        let (begin, metrics) = (Instant::now(), events.metrics.clone());
        let all = RefCell::new(Vec::new());
        let deliver = |message: EventMessage| {
            let is_broken = message.subject.namespace() == "broken";
            all.borrow_mut().push((begin.elapsed().as_secs(), is_broken));
            std::future::ready(if is_broken { broken } else { EventResult::Recorded })
        };
        let record = async move {
            for message in messages {
                events.record(message);
            }
            tokio::time::sleep(Duration::from_secs(600)).await;
        };
        tokio::join!(send_all(inbox, deliver), record);
        let all = all.into_inner();
        let others = all.iter().filter(|(_, is_broken)| !is_broken);
        let last = others
            .clone()
            .map(|(second, _)| *second)
            .max()
            .unwrap_or_default();
        let others = others.count();
        (all.len() - others, others, metrics.events_dropped.get(), last)
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_about_a_deletion_is_sent_again_where_a_call_failed_and_nothing_else_waits_for_it() {
        use EventResult::{Failed, Recorded, Refused};
        let tries = usize::try_from(TRIES).unwrap();
        for (reason, broken, calls, lost) in [
            (Reason::TeardownForced, Recorded, 10, 0),
            (Reason::TeardownForced, Failed, 10 * tries, 10),
            (Reason::TeardownForced, Refused, 10, 10),
            (Reason::JobFailed, Failed, 10, 10),
        ] {
            let of_broken = (0..10).map(|n| message("broken", n, reason));
            let others = (0..20).map(|n| message("quiet", n, Reason::JobFailed));
            let (of_broken, of_quiet, dropped, last) = tried(of_broken.chain(others).collect(), broken).await;
            // A namespace has sixteen events in line.
            assert_eq!(
                (of_broken, of_quiet, dropped),
                (calls, 16, lost + 4),
                "{reason:?} {broken:?}"
            );
            assert!(last <= 1, "{last}");
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
