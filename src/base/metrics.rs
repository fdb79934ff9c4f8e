//! What `/metrics` shows. Labels are closed lists, or names of clusters and namespaces of which there are so many at most: never a
//! task's name, a URL or an error's text.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Registers metrics, each with its name and what it counts.
macro_rules! register {
    ($registry:ident, $($metric:expr => $name:literal, $help:literal;)+) => {
        $($registry.register($name, $help, $metric.clone());)+
    };
}

pub mod clusters;
pub mod event_latency;
mod queue;

use clusters::ClusterMetrics;
use event_latency::EventLatencyMetrics;
use queue::QueueMetrics;
pub use queue::QueueSample;

/// Labels of an API call.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct CallLabels {
    /// The verb as RBAC knows it.
    pub verb: &'static str,
    /// The resource, plural; a subresource after a slash.
    pub resource: &'static str,
    /// HTTP status, 0 where none came.
    pub code: u16,
}

/// A label with a closed set of values.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct KindLabel {
    /// The value.
    pub kind: &'static str,
}

/// Why a reconcile failed.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ErrorLabels {
    /// The enumerated error.
    pub kind: &'static str,
    /// How far the failed call came; empty where that is not known.
    pub stage: &'static str,
}

/// The result of an operation.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ResultLabel {
    /// The value.
    pub result: &'static str,
}

/// The phase of a task.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct PhaseLabel {
    /// The phase.
    pub phase: &'static str,
}

/// What an instance does.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct StateLabel {
    /// `starting`, `standby` or `active`.
    pub state: &'static str,
}

/// How strict a hub runs.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ModeLabels {
    /// `multi-tenant` or `single-tenant`.
    pub mode: &'static str,
    /// `token` or `impersonate`.
    pub tenant_identity: &'static str,
}

/// A setting that is less strict than the default.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct SettingLabel {
    /// Its name.
    pub setting: &'static str,
}

/// The result of a check.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct FindingLabels {
    /// The check.
    pub check: &'static str,
    /// `ok`, `refused`, `warning` or `skipped`.
    pub result: &'static str,
}

/// Seconds of one reconcile of a task, from a millisecond to eight seconds.
#[derive(Clone, Debug)]
pub struct ReconcileSeconds(Histogram);

impl Default for ReconcileSeconds {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(0.001, 2.0, 14)))
    }
}

/// Every metric of the hub. Cheap to clone; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Seconds of one reconcile of a task.
    pub reconcile_seconds: ReconcileSeconds,
    /// Passes that failed, by the enumerated error and how far its call came.
    pub reconcile_errors: Family<ErrorLabels, Counter>,
    /// Tasks in line for a reconcile.
    pub work_queue_depth: Gauge,
    /// Tasks that wait for a slot.
    pub waiting_tasks: Gauge,
    /// Tasks by phase.
    pub tasks: Family<PhaseLabel, Gauge>,
    /// Calls to the API server.
    pub api_calls: Family<CallLabels, Counter>,
    /// Watches that broke and were opened again.
    pub watch_errors: Family<KindLabel, Counter>,
    /// Events that were not sent because too many were.
    pub events_dropped: Counter,
    /// Objects that a sweep removed because their task was gone.
    pub orphans_removed: Counter,
    /// Jobs of other hubs of the cluster that the hub made its own.
    pub adopted_jobs: Counter,
    /// Namespaces that no hub serves any more.
    pub unowned_namespaces: Gauge,
    /// Statuses seen that the hub did not write.
    pub forged_statuses: Counter,
    /// Verifications of charts in registries, by result.
    pub verifications: Family<ResultLabel, Counter>,
    /// Charts that were to be deleted from registries, by result.
    pub prunes: Family<ResultLabel, Counter>,
    /// 1 for the way the hub runs.
    pub mode: Family<ModeLabels, Gauge>,
    /// 1 for each setting that is less strict than the default.
    pub relaxed_settings: Family<SettingLabel, Gauge>,
    /// 1 for what the instance does, 0 for what it does not.
    pub instance_state: Family<StateLabel, Gauge>,
    /// 1 for what came last of each check.
    pub preflight: Family<FindingLabels, Gauge>,
    /// What is counted of each connection to another cluster.
    pub clusters: ClusterMetrics,
    /// What is counted of the queue by namespace.
    pub queue: QueueMetrics,
    /// What is counted of events.
    pub event_latency: EventLatencyMetrics,
}

impl Metrics {
    /// Metrics, and the registry that shows them.
    #[must_use]
    pub fn new() -> (Self, Arc<Registry>) {
        let metrics = Self::default();
        let mut registry = Registry::with_prefix("renderhub");
        metrics.register(&mut registry);
        (metrics, Arc::new(registry))
    }

    fn register(&self, registry: &mut Registry) {
        let seconds = self.reconcile_seconds.0.clone();
        registry.register_with_unit(
            "reconcile_duration",
            "One pass over one task",
            Unit::Seconds,
            seconds,
        );
        register! { registry,
            self.reconcile_errors => "reconcile_errors", "Passes that failed";
            self.work_queue_depth => "work_queue_depth", "Tasks in line for a pass";
            self.waiting_tasks => "waiting_tasks", "Tasks that wait for a slot";
            self.tasks => "tasks", "Tasks by phase";
            self.api_calls => "api_calls", "Calls to the API server";
            self.watch_errors => "watch_errors", "Watches that broke";
            self.events_dropped => "events_dropped", "Events beyond the rate limit";
            self.orphans_removed => "orphans_removed", "Objects removed by a sweep";
            self.adopted_jobs => "adopted_jobs", "Jobs of other hubs made this hub's own";
            self.unowned_namespaces => "unowned_namespaces", "Namespaces that no hub serves any more";
            self.forged_statuses => "forged_statuses", "Statuses seen that the hub did not write";
            self.verifications => "verifications", "Questions to registries whether they hold a chart";
            self.prunes => "prunes", "Charts to be deleted from registries";
            self.mode => "mode", "How the hub runs";
            self.relaxed_settings => "relaxed_settings", "Settings that are less strict than the default";
            self.instance_state => "instance_state", "What the instance does";
            self.preflight => "preflight_findings", "What came last of each check";
        }
        self.clusters.register(registry);
        self.queue.register(registry);
        self.event_latency.register(registry);
    }

    /// Counts a call.
    pub fn call(&self, verb: &'static str, resource: &'static str, code: u16) {
        self.api_calls
            .get_or_create(&CallLabels { verb, resource, code })
            .inc();
    }

    /// Replaces the result of a check.
    pub fn set_check_result(&self, check: &'static str, result: &'static str) {
        for other in ["ok", "refused", "warning", "skipped"] {
            if other != result {
                let before = FindingLabels { check, result: other };
                self.preflight.remove(&before);
            }
        }
        let labels = FindingLabels { check, result };
        self.preflight.get_or_create(&labels).set(1);
    }

    /// Counts the time of a reconcile.
    pub fn pass(&self, took: Duration) {
        self.reconcile_seconds.0.observe(took.as_secs_f64());
    }
}
