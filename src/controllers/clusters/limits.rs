//! Bounds of the cluster controller.

use std::time::Duration;

use crate::plan::queue::backoff::BackoffPolicy;

/// Intervals, deadlines and counts; the default is for production.
#[derive(Clone, Copy, Debug)]
pub struct ClusterControllerLimits {
    /// Time to decode a kubeconfig.
    pub budget: Duration,
    /// Waits before a tenant's kubeconfig that could not be read is read again.
    pub read_retry: BackoffPolicy,
    /// Longest that a tenant's kubeconfig is watched before the hub checks that the account may still read it.
    pub watch: Duration,
    /// Time after which a tenant's cluster that no task uses is disconnected.
    pub idle: Duration,
    /// Tenants' clusters of one namespace.
    pub own_each: usize,
    /// Tenants' clusters of all namespaces.
    pub own_all: usize,
    /// Tenants' clusters of one namespace that are connected to at once.
    pub connecting: usize,
    /// Secrets of the platform that are read at once.
    pub reads: usize,
    /// Statuses that are written at once.
    pub writes: usize,
}

impl Default for ClusterControllerLimits {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(1),
            read_retry: BackoffPolicy {
                base: Duration::from_secs(5),
                cap: Duration::from_secs(300),
            },
            watch: Duration::from_secs(40),
            idle: Duration::from_secs(60),
            own_each: 5,
            own_all: 256,
            connecting: 2,
            reads: 16,
            writes: 16,
        }
    }
}
