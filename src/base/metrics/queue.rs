//! What is counted of the queue: of all namespaces together, or by namespace for so many at most.
//!
//! The port of the metrics asks for no credential, so namespaces are named only where the platform wants it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Namespaces that are shown by name at most: half of them the deepest, the others those that wait longest.
pub const NAMED: usize = 50;
/// All other namespaces together; no namespace can have the name.
pub const OTHERS: &str = "_others";
/// The platform's own tasks, which are in no namespace.
pub const PLATFORM: &str = "_platform";

/// A namespace of the queue.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NamespaceLabel {
    namespace: String,
}

/// Tasks of one namespace that wait.
#[derive(Clone, Copy, Debug)]
pub struct QueueSample<'a> {
    /// Its name; empty for the platform's own tasks.
    pub namespace: &'a str,
    /// How many wait.
    pub tasks: usize,
    /// Age of the oldest of them.
    pub oldest: Duration,
}

/// A gauge of the queue: one figure without a label, or one for each namespace.
#[derive(Clone, Debug, Default)]
struct QueueGauge<G> {
    all: G,
    each: Family<NamespaceLabel, G>,
    by_namespace: Arc<AtomicBool>,
}

impl<G: EncodeMetric + Clone + Default + fmt::Debug> EncodeMetric for QueueGauge<G>
where
    Family<NamespaceLabel, G>: EncodeMetric,
{
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        if self.by_namespace.load(Ordering::Relaxed) {
            self.each.encode(encoder)
        } else {
            self.all.encode(encoder)
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

/// What is counted of the queue. Clones count together.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    depth: QueueGauge<Gauge>,
    oldest: QueueGauge<Gauge<f64, AtomicU64>>,
    wait: Histogram,
    /// Whether namespaces are shown by name.
    by_namespace: Arc<AtomicBool>,
    /// The labels that have series.
    shown: Arc<Mutex<BTreeSet<String>>>,
}

impl Default for QueueMetrics {
    fn default() -> Self {
        let by_namespace = Arc::new(AtomicBool::default());
        Self {
            depth: QueueGauge {
                by_namespace: Arc::clone(&by_namespace),
                ..QueueGauge::default()
            },
            oldest: QueueGauge {
                by_namespace: Arc::clone(&by_namespace),
                ..QueueGauge::default()
            },
            wait: Histogram::new(exponential_buckets(0.01, 4.0, 10)),
            by_namespace,
            shown: Arc::default(),
        }
    }
}

impl QueueMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "queue_depth",
            "Tasks that wait for a slot; by namespace where that is on",
            self.depth.clone(),
        );
        registry.register_with_unit(
            "queue_oldest_age",
            "Age of the oldest task that waits for a slot; by namespace where that is on",
            Unit::Seconds,
            self.oldest.clone(),
        );
        registry.register_with_unit(
            "queue_wait",
            "Wait of a task for a slot",
            Unit::Seconds,
            self.wait.clone(),
        );
    }

    /// Whether namespaces are shown by name; they are not unless this says so.
    pub fn by_namespace(&self, is_wanted: bool) {
        self.by_namespace.store(is_wanted, Ordering::Relaxed);
    }

    /// Shows all tasks that wait, and by name, where that is wanted, the namespaces they wait in and no others any more.
    pub fn set_samples<'a>(&self, rows: impl Iterator<Item = QueueSample<'a>>) {
        let mut rows: Vec<_> = rows.collect();
        let all = together(&rows);
        self.depth.all.set(count(all.tasks));
        self.oldest.all.set(all.oldest.as_secs_f64());
        if !self.by_namespace.load(Ordering::Relaxed) {
            return;
        }
        let named = named(&mut rows);
        let others = rows.split_off(named);
        let shown: BTreeSet<String> = rows
            .iter()
            .map(|row| self.set(label(row.namespace), *row))
            .collect();
        let rest = (!others.is_empty()).then(|| self.set(OTHERS, together(&others)));
        let shown: BTreeSet<String> = shown.into_iter().chain(rest).collect();
        let mut known = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for namespace in known.difference(&shown) {
            let label = NamespaceLabel {
                namespace: namespace.clone(),
            };
            self.depth.each.remove(&label);
            self.oldest.each.remove(&label);
        }
        *known = shown;
    }

    /// Counts how long a task waited.
    pub fn waited(&self, wait: Duration) {
        self.wait.observe(wait.as_secs_f64());
    }

    fn set(&self, namespace: &str, row: QueueSample<'_>) -> String {
        let label = NamespaceLabel {
            namespace: namespace.to_owned(),
        };
        self.depth.each.get_or_create(&label).set(count(row.tasks));
        let oldest = row.oldest.as_secs_f64();
        self.oldest.each.get_or_create(&label).set(oldest);
        label.namespace
    }
}

fn count(tasks: usize) -> i64 {
    i64::try_from(tasks).unwrap_or(i64::MAX)
}

/// Several namespaces as one: the sum of their tasks, and the largest age.
fn together(rows: &[QueueSample<'_>]) -> QueueSample<'static> {
    QueueSample {
        namespace: OTHERS,
        tasks: rows.iter().map(|row| row.tasks).sum(),
        oldest: rows.iter().map(|row| row.oldest).max().unwrap_or_default(),
    }
}

/// Puts those that are shown by name first; how many they are.
fn named(rows: &mut [QueueSample<'_>]) -> usize {
    if rows.len() > NAMED {
        rows.sort_unstable_by(|a, b| b.tasks.cmp(&a.tasks).then(a.namespace.cmp(b.namespace)));
        rows[NAMED / 2..].sort_unstable_by(|a, b| b.oldest.cmp(&a.oldest).then(a.namespace.cmp(b.namespace)));
    }
    rows.len().min(NAMED)
}

fn label(namespace: &str) -> &str {
    if namespace.is_empty() { PLATFORM } else { namespace }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use crate::base::metrics::Metrics;

    use super::*;

    /// The samples of the queue by namespace, after the namespaces were shown.
    fn samples(metrics: &Metrics, registry: &Registry, rows: &[(String, usize, u64)]) -> Vec<String> {
        metrics
            .queue
            .set_samples(rows.iter().map(|(namespace, tasks, age)| QueueSample {
                namespace,
                tasks: *tasks,
                oldest: Duration::from_secs(*age),
            }));
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let is_row = |line: &&str| {
            line.starts_with("renderhub_queue_depth") || line.starts_with("renderhub_queue_oldest")
        };
        text.lines().filter(is_row).map(str::to_owned).collect()
    }

    /// Holds: B14.
    #[test]
    fn no_namespace_is_named_unless_that_is_wanted() {
        let (metrics, registry) = Metrics::new();
        let none = [
            "renderhub_queue_depth 0",
            "renderhub_queue_oldest_age_seconds 0.0",
        ];
        assert_eq!(samples(&metrics, &registry, &[]), none);
        let mut rows: Vec<_> = (0..100).map(|n| (format!("ns-{n}"), 2, n)).collect();
        rows.push((String::new(), 1, 7));
        let all = [
            "renderhub_queue_depth 201",
            "renderhub_queue_oldest_age_seconds 99.0",
        ];
        assert_eq!(samples(&metrics, &registry, &rows), all);
        assert_eq!(samples(&metrics, &registry, &[]), none);
        metrics.queue.by_namespace(true);
        assert_eq!(samples(&metrics, &registry, &[]), [""; 0]);
        assert_eq!(samples(&metrics, &registry, &rows[..1]).len(), 2);
    }

    #[test]
    fn a_namespace_is_shown_while_tasks_wait_in_it() {
        let (metrics, registry) = Metrics::new();
        metrics.queue.by_namespace(true);
        let rows = [("team-a".to_owned(), 3, 7), (String::new(), 1, 2)];
        let mut shown = samples(&metrics, &registry, &rows);
        shown.sort();
        let expected = [
            r#"renderhub_queue_depth{namespace="_platform"} 1"#,
            r#"renderhub_queue_depth{namespace="team-a"} 3"#,
            r#"renderhub_queue_oldest_age_seconds{namespace="_platform"} 2.0"#,
            r#"renderhub_queue_oldest_age_seconds{namespace="team-a"} 7.0"#,
        ];
        assert_eq!(shown, expected);
        assert_eq!(samples(&metrics, &registry, &rows[..1]).len(), 2);
        assert!(samples(&metrics, &registry, &[]).is_empty());
    }

    #[test]
    fn however_many_namespaces_there_are_the_series_are_bounded_and_none_is_left_out() {
        let (metrics, registry) = Metrics::new();
        metrics.queue.by_namespace(true);
        for round in 0..3 {
            // Others are the deepest in each round.
            let mut rows: Vec<_> = (0..1000).map(|n| (format!("ns-{round}-{n}"), n + 1, 5)).collect();
            rows[1].2 = 9_000;
            let shown = samples(&metrics, &registry, &rows);
            assert_eq!(shown.len(), 2 * (NAMED + 1));
            let has = |sample: &str| shown.iter().any(|line| line == sample);
            let deepest = format!("renderhub_queue_depth{{namespace=\"ns-{round}-999\"}} 1000");
            let longest = format!("renderhub_queue_oldest_age_seconds{{namespace=\"ns-{round}-1\"}} 9000.0");
            assert!(has(&deepest) && has(&longest), "{shown:?}");
            let depths = shown
                .iter()
                .filter(|line| line.starts_with("renderhub_queue_depth"));
            let total: usize = depths
                .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
                .sum();
            assert_eq!(total, 1000 * 1001 / 2, "the others are summed");
        }
    }
}
