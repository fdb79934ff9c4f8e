//! Events for people, best effort: few, bounded in rate, and never a reason to wait.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use crate::api::conditions::Reason;
use crate::api::labels::{GROUP, VERSION};
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::plan::task::TaskId;

/// Events that may wait to be sent; more are dropped, because a burst of tasks matters more than the tale of it.
const BACKLOG: usize = 64;
/// Events a second in the long run; the API server has about 40 task's worth of writes a second.
const RATE: f64 = 5.0;
/// Events at once after a quiet time.
const BURST: f64 = 25.0;
/// Longest an event may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Something to tell about a task.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The task.
    pub task: TaskId,
    /// Whether somebody should look.
    pub is_warning: bool,
    /// Why.
    pub reason: Reason,
    /// The same for people.
    pub note: String,
}

/// Where notices are handed in.
#[derive(Clone, Debug)]
pub struct Events {
    out: mpsc::Sender<Notice>,
    metrics: Metrics,
}

impl Events {
    /// Events, and the loop that sends them, when the gate is open, until every handle is dropped.
    pub fn new(
        (client, gate): (Client, Gate),
        hub: String,
        metrics: Metrics,
    ) -> (Self, impl Future<Output = ()>) {
        let (out, inbox) = mpsc::channel(BACKLOG);
        let reporter = Reporter {
            controller: "renderhub.dev/hub".to_owned(),
            instance: Some(hub),
        };
        let sender = send_all(Recorder::new(client, reporter), gate, inbox, metrics.clone());
        (Self { out, metrics }, sender)
    }

    /// Hands a notice in; it is dropped when too many wait.
    pub fn tell(&self, notice: Notice) {
        if self.out.try_send(notice).is_err() {
            self.metrics.events_dropped.inc();
        }
    }
}

async fn send_all(recorder: Recorder, gate: Gate, mut inbox: mpsc::Receiver<Notice>, metrics: Metrics) {
    let mut bucket = Bucket {
        tokens: BURST,
        filled: Instant::now(),
    };
    while let Some(notice) = inbox.recv().await {
        if !bucket.take(Instant::now()) {
            metrics.events_dropped.inc();
            continue;
        }
        gate.opened().await;
        let (event, reference) = (event(&notice), reference(&notice.task));
        let sent = tokio::time::timeout(DEADLINE, recorder.publish(&event, &reference)).await;
        let code = if matches!(sent, Ok(Ok(()))) { 201 } else { 0 };
        metrics.call("create", "events", code);
    }
}

fn event(notice: &Notice) -> Event {
    Event {
        type_: if notice.is_warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: notice.reason.as_str().to_owned(),
        note: Some(notice.note.clone()),
        action: "Render".to_owned(),
        secondary: None,
    }
}

fn reference(task: &TaskId) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{GROUP}/{VERSION}")),
        kind: Some(task.kind.as_str().to_owned()),
        name: Some(task.name.clone()),
        namespace: (!task.namespace.is_empty()).then(|| task.namespace.clone()),
        uid: Some(task.uid.as_str().to_owned()),
        ..ObjectReference::default()
    }
}

/// A token bucket.
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.filled).as_secs_f64() * RATE;
        self.tokens = (self.tokens + earned).min(BURST);
        self.filled = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_bounds_a_burst_and_the_long_run() {
        let start = Instant::now();
        let mut bucket = Bucket {
            tokens: BURST,
            filled: start,
        };
        assert_eq!((0..100).filter(|_| bucket.take(start)).count(), 25);
        let later = start + Duration::from_secs(2);
        assert_eq!((0..100).filter(|_| bucket.take(later)).count(), 10);
    }
}
