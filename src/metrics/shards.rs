//! What is counted of instances that divide the namespaces of one hub.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// One of several shards.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ShardLabel {
    /// Its number.
    pub shard: u16,
}

/// Metrics of one who divides.
#[derive(Clone, Debug, Default)]
pub struct ShardMetrics {
    shard: Family<ShardLabel, Gauge>,
    members: Gauge,
    handovers: Counter,
    last: Gauge<f64, AtomicU64>,
}

impl ShardMetrics {
    /// Shows which shard this instance is.
    pub fn is(&self, shard: u16) {
        self.shard.get_or_create(&ShardLabel { shard }).set(1);
    }

    /// Counts that the namespaces are divided anew among so many.
    pub fn divided(&self, members: usize, took: Duration) {
        self.members.set(i64::try_from(members).unwrap_or(i64::MAX));
        self.handovers.inc();
        self.last.set(took.as_secs_f64());
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("shard", "Which shard the instance is", self.shard.clone());
        registry.register(
            "shard_members",
            "Instances that divide the namespaces",
            self.members.clone(),
        );
        registry.register(
            "shard_handovers",
            "Times that the namespaces were divided anew",
            self.handovers.clone(),
        );
        registry.register_with_unit(
            "shard_last_handover",
            "How long dividing them took last",
            Unit::Seconds,
            self.last.clone(),
        );
    }
}
