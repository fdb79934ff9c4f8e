//! What is counted of each connection to another cluster; its series end with it.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A cluster by the name that an operator gave it.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ClusterLabel {
    /// Its name.
    pub cluster: String,
}

/// One kind of outcome at one cluster.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// Its name.
    pub cluster: String,
    /// One of a closed list.
    pub result: &'static str,
}

/// The results of a probe.
pub const PROBED: [&str; 4] = ["answered", "missed", "unauthorized", "forbidden"];
/// Classes of the codes of answers; `none` where none came.
pub const CLASSES: [&str; 6] = ["2xx", "3xx", "4xx", "429", "5xx", "none"];

/// Metrics of all clusters.
#[derive(Clone, Debug, Default)]
pub struct ClusterMetrics {
    /// 1 while the connection is up and the hub has the rights that it needs there.
    pub connected: Family<ClusterLabel, Gauge>,
    /// Attempts to connect.
    pub attempts: Family<ClusterLabel, Counter>,
    /// Connections that took the place of one before.
    pub reconnects: Family<ClusterLabel, Counter>,
    /// Probes by result.
    pub probes: Family<OutcomeLabels, Counter>,
    /// When each of the platform's clusters answered last, in seconds since 1970; to within some minutes.
    pub last_probe: Family<ClusterLabel, Gauge>,
    /// Requests of the hub's work by the class of the answer's code.
    pub requests: Family<OutcomeLabels, Counter>,
}

impl ClusterMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        register! { registry,
            self.attempts => "cluster_connection_attempts", "Attempts to connect to a cluster";
            self.reconnects => "cluster_reconnects", "Connections in the place of one before";
            self.probes => "cluster_probes", "Probes of a cluster";
            self.requests => "cluster_requests", "Requests to a cluster";
            self.last_probe => "cluster_last_probe_timestamp_seconds", "When a cluster answered last";
            self.connected => "cluster_connected", "1 while a cluster is connected and the hub may list and watch Jobs there";
        }
    }

    /// Counts a request by the code of its answer, 0 where none came.
    pub fn request(&self, cluster: &str, code: u16) {
        let result = match code {
            200..=299 => "2xx",
            300..=399 => "3xx",
            429 => "429",
            400..=499 => "4xx",
            500..=599 => "5xx",
            _ => "none",
        };
        self.requests.get_or_create(&outcome(cluster, result)).inc();
    }

    /// Counts a probe by one of [`PROBED`].
    pub fn probe(&self, cluster: &str, result: &'static str) {
        self.probes.get_or_create(&outcome(cluster, result)).inc();
    }

    /// Ends every series of a cluster.
    pub fn forget(&self, cluster: &str) {
        let label = label(cluster);
        self.connected.remove(&label);
        self.attempts.remove(&label);
        self.reconnects.remove(&label);
        for result in PROBED {
            self.probes.remove(&outcome(cluster, result));
        }
        for result in CLASSES {
            self.requests.remove(&outcome(cluster, result));
        }
    }
}

/// The label of a cluster.
#[must_use]
pub fn label(cluster: &str) -> ClusterLabel {
    ClusterLabel {
        cluster: cluster.to_owned(),
    }
}

fn outcome(cluster: &str, result: &'static str) -> OutcomeLabels {
    OutcomeLabels {
        cluster: cluster.to_owned(),
        result,
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::base::metrics::Metrics;

    #[test]
    fn nothing_of_a_cluster_is_shown_after_its_end() {
        let (metrics, registry) = Metrics::new();
        let clusters = &metrics.clusters;
        for name in ["west", "east"] {
            clusters.connected.get_or_create(&label(name)).set(1);
            clusters.attempts.get_or_create(&label(name)).inc();
            clusters.reconnects.get_or_create(&label(name)).inc();
            for result in PROBED {
                clusters.probe(name, result);
            }
            for code in [0, 200, 302, 404, 429, 503] {
                clusters.request(name, code);
            }
        }
        let shown = |cluster: &str| {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text.matches(&format!("cluster=\"{cluster}\"")).count()
        };
        assert_eq!((shown("west"), shown("east")), (13, 13));
        clusters.forget("west");
        assert_eq!((shown("west"), shown("east")), (0, 13));
    }
}
