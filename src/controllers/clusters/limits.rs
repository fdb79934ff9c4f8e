//! What bounds the connections to clusters.

use std::time::Duration;

/// How long things take, and how many there may be; the default is what a hub runs with.
#[derive(Clone, Copy, Debug)]
pub struct ClusterControllerLimits {
    /// Time to decode a kubeconfig.
    pub budget: Duration,
    /// First wait before a tenant's kubeconfig that could not be read is looked at again; doubled each time.
    pub first_pause: Duration,
    /// Longest such wait.
    pub last_pause: Duration,
    /// Longest that a tenant's kubeconfig is watched before it is asked whether it may still be read.
    pub watch: Duration,
    /// Time after which a tenant's cluster is let go that no task is for.
    pub idle: Duration,
    /// Tenants' clusters of one namespace.
    pub own_each: usize,
    /// Tenants' clusters of all namespaces.
    pub own_all: usize,
    /// Tenants' clusters of one namespace that are connected to at once.
    pub turns: usize,
    /// Secrets of the platform's that are read at once.
    pub reads: usize,
    /// Statuses that are written at once.
    pub writes: usize,
}

impl Default for ClusterControllerLimits {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(1),
            first_pause: Duration::from_secs(5),
            last_pause: Duration::from_secs(300),
            watch: Duration::from_secs(40),
            idle: Duration::from_secs(60),
            own_each: 5,
            own_all: 256,
            turns: 2,
            reads: 16,
            writes: 16,
        }
    }
}
