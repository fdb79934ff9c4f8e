//! What is shared out to the keys that are worked on.

use std::sync::Arc;

/// What is worked on at the same time out of one measure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConcurrencyPool {
    /// What runs on the hub's own cluster.
    Here,
    /// What of one namespace runs there.
    Namespace(Arc<str>),
    /// What runs on all other clusters.
    Elsewhere,
    /// What runs on one cluster of the platform's.
    Cluster(Arc<str>),
    /// What runs on all clusters of one namespace's own.
    OwnClusters(Arc<str>),
    /// What of that holds much memory while it is worked on.
    Large(Box<ConcurrencyPool>),
}

impl ConcurrencyPool {
    /// The kind of pool, for a log.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Here => "Here",
            Self::Namespace(_) => "Namespace",
            Self::Elsewhere => "Elsewhere",
            Self::Cluster(_) => "Cluster",
            Self::OwnClusters(_) => "OwnClusters",
            Self::Large(_) => "Large",
        }
    }
}
