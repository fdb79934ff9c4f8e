//! How long an event is with the hub: from its arrival to the first request that leaves for it, and what it waited for.
//!
//! What an API server takes to answer is no part of it, so it says of the hub what a time from end to end cannot.

use std::cell::Cell;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Where the first bucket of the histograms ends, in seconds.
const FIRST: f64 = 0.000_1;
/// How much further each of the fine buckets ends: a fifth, so that a percentile is known to a few per cent.
const STEP: f64 = 1.2;
/// Fine buckets; the last of them ends at a good second.
const FINE: u16 = 52;
/// Ends of the coarse buckets above them, in seconds.
const COARSE: [f64; 6] = [2.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// What an event can wait for in the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// One of the workers that all share.
    Worker,
    /// One of those that its namespace may have.
    Namespace,
    /// One of those that its cluster may have.
    Cluster,
    /// A slot for its Job.
    Turn,
    /// The pace at which its cluster may be asked.
    Pace,
    /// The hub's Lease.
    Lease,
    /// The running reconcile of its own task.
    Pass,
}

impl WaitReason {
    /// Everything that can be waited for.
    pub const ALL: [Self; 7] = [
        Self::Worker,
        Self::Namespace,
        Self::Cluster,
        Self::Turn,
        Self::Pace,
        Self::Lease,
        Self::Pass,
    ];

    /// As a label says it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Namespace => "namespace",
            Self::Cluster => "cluster",
            Self::Turn => "turn",
            Self::Pace => "pace",
            Self::Lease => "lease",
            Self::Pass => "pass",
        }
    }
}

/// Where the task of an event runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskLocation {
    /// On the hub's own cluster.
    Here,
    /// On another one.
    Elsewhere,
}

impl TaskLocation {
    /// As a label says it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// What took the larger part of the time, where that is no wait.
const WORK: &str = "work";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EventShareLabels {
    runs: &'static str,
    mostly: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EventWaitLabels {
    runs: &'static str,
    wait: &'static str,
}

/// What is counted of events. Clones count together.
#[derive(Clone, Debug)]
pub struct EventLatencyMetrics {
    share: Family<EventShareLabels, Histogram, fn() -> Histogram>,
    waits: Family<EventWaitLabels, Histogram, fn() -> Histogram>,
}

impl Default for EventLatencyMetrics {
    fn default() -> Self {
        Self {
            share: Family::new_with_constructor(histogram),
            waits: Family::new_with_constructor(histogram),
        }
    }
}

impl EventLatencyMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "event_to_request",
            "From the arrival of an event at the hub to the first request that leaves for it",
            Unit::Seconds,
            self.share.clone(),
        );
        registry.register_with_unit(
            "event_wait",
            "Of that, what was waited for",
            Unit::Seconds,
            self.waits.clone(),
        );
    }

    /// Counts an event for which a request left then.
    pub fn count(&self, latency: &EventLatency, at: Instant) {
        let (runs, took) = (
            latency.runs.label(),
            at.saturating_duration_since(latency.arrived),
        );
        for (wait, waited) in WaitReason::ALL.into_iter().zip(latency.waits) {
            if !waited.is_zero() {
                let wait = wait.label();
                let labels = EventWaitLabels { runs, wait };
                self.waits.get_or_create(&labels).observe(waited.as_secs_f64());
            }
        }
        let mostly = latency.mostly(took);
        let labels = EventShareLabels { runs, mostly };
        self.share.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

fn histogram() -> Histogram {
    let fine = (0..FINE).map(|n| FIRST * STEP.powi(n.into()));
    Histogram::new(fine.chain(COARSE))
}

/// An event on its way through the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLatency {
    arrived: Instant,
    runs: TaskLocation,
    /// In the order of [`WaitReason::ALL`].
    waits: [Duration; WaitReason::ALL.len()],
}

impl EventLatency {
    /// One whose event arrived then.
    #[must_use]
    pub const fn new(arrived: Instant) -> Self {
        Self {
            arrived,
            runs: TaskLocation::Here,
            waits: [Duration::ZERO; WaitReason::ALL.len()],
        }
    }

    /// Says where its task runs.
    pub fn set_runs(&mut self, runs: TaskLocation) {
        self.runs = runs;
    }

    /// Adds what it waited.
    pub fn waited(&mut self, wait: WaitReason, time: Duration) {
        for (slot, waited) in WaitReason::ALL.into_iter().zip(&mut self.waits) {
            if slot == wait {
                *waited += time;
            }
        }
    }

    fn mostly(&self, took: Duration) -> &'static str {
        let longest = WaitReason::ALL
            .into_iter()
            .zip(self.waits)
            .max_by_key(|(_, waited)| *waited);
        longest
            .filter(|(_, waited)| *waited > took / 2)
            .map_or(WORK, |(wait, _)| wait.label())
    }
}

/// The latency that a reconcile is on, until its first request leaves.
struct CurrentEventLatency {
    metrics: EventLatencyMetrics,
    latency: Cell<Option<EventLatency>>,
}

tokio::task_local! {
    static UNDER_WAY: CurrentEventLatency;
}

/// Does the work of a reconcile. The first request in it ends the latency; one that sends none gives the latency back.
pub async fn measure<T>(
    metrics: &EventLatencyMetrics,
    latency: Option<EventLatency>,
    work: impl Future<Output = T>,
) -> (T, Option<EventLatency>) {
    let under_way = CurrentEventLatency {
        metrics: metrics.clone(),
        latency: Cell::new(latency),
    };
    // In memory of its own, or each future around it would keep room for it once more.
    let work = Box::pin(work);
    let work = async {
        let done = work.await;
        (done, UNDER_WAY.with(|under_way| under_way.latency.take()))
    };
    UNDER_WAY.scope(under_way, work).await
}

/// A request leaves the hub now.
pub fn mark_sent() {
    // What is no reconcile has no latency.
    _ = UNDER_WAY.try_with(|under_way| {
        if let Some(latency) = under_way.latency.take() {
            under_way.metrics.count(&latency, Instant::now());
        }
    });
}

/// A request that has not left yet waited for the pace of its cluster.
pub fn paced(time: Duration) {
    _ = UNDER_WAY.try_with(|under_way| {
        let mut latency = under_way.latency.take();
        if let Some(latency) = &mut latency {
            latency.waited(WaitReason::Pace, time);
        }
        under_way.latency.set(latency);
    });
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::base::metrics::Metrics;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    /// Holds: B24.
    #[tokio::test]
    async fn the_first_request_of_a_pass_ends_the_journey_of_its_event() {
        let (metrics, registry) = Metrics::new();
        let ago = |millis| Instant::now().checked_sub(Duration::from_millis(millis)).unwrap();
        mark_sent();
        let mut latency = EventLatency::new(ago(100));
        latency.set_runs(TaskLocation::Elsewhere);
        latency.waited(WaitReason::Turn, Duration::from_millis(10));
        let pass = async {
            paced(Duration::from_millis(80));
            mark_sent();
            paced(Duration::from_millis(80));
            mark_sent();
        };
        let ((), left) = measure(&metrics.event_latency, Some(latency), pass).await;
        assert!(left.is_none());
        let ((), left) = measure(&metrics.event_latency, Some(EventLatency::new(ago(7))), async {}).await;
        assert!(left.is_some(), "nothing was sent");
        let ((), left) = measure(&metrics.event_latency, left, async { mark_sent() }).await;
        assert!(left.is_none());
        let text = text(&registry);
        for sample in [
            r#"renderhub_event_to_request_seconds_count{runs="elsewhere",mostly="pace"} 1"#,
            r#"renderhub_event_to_request_seconds_count{runs="here",mostly="work"} 1"#,
            r#"renderhub_event_wait_seconds_count{runs="elsewhere",wait="turn"} 1"#,
            r#"renderhub_event_wait_seconds_sum{runs="elsewhere",wait="pace"} 0.08"#,
        ] {
            assert!(text.contains(sample), "{sample} is not in\n{text}");
        }
        assert_eq!(text.matches("event_wait_seconds_count{").count(), 2);
    }

    #[test]
    fn the_buckets_tell_a_tenth_apart_and_go_on_to_minutes() {
        let (metrics, registry) = Metrics::new();
        let arrived = Instant::now();
        metrics.event_latency.count(&EventLatency::new(arrived), arrived);
        let text = text(&registry);
        let ends: Vec<f64> = text
            .lines()
            .filter(|line| line.starts_with("renderhub_event_to_request"))
            .filter_map(|line| line.split_once("le=\"")?.1.split_once('"')?.0.parse().ok())
            .filter(|end: &f64| end.is_finite())
            .collect();
        let fine = ends.windows(2).filter(|pair| pair[1] < 1.2);
        assert!(fine.clone().all(|pair| pair[1] / pair[0] < 1.21), "{ends:?}");
        assert!(fine.count() > 40 && ends.last() == Some(&300.0));
    }
}
