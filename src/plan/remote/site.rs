//! A site: a namespace of another cluster where Jobs run, reached as one user.

#![warn(clippy::wildcard_enum_match_arm)]

use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::Reason;

use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::read_identity::ReadIdentity;

/// The source of the kubeconfig of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterName {
    /// The `RenderCluster` with this name.
    Platform(String),
    /// A Secret of a tenant.
    Own(TenantKubeconfig),
}

/// A kubeconfig in a Secret of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantKubeconfig {
    /// The identity as which the Secret is read.
    pub identity: ReadIdentity,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in the Secret; else `value`, then `value.yaml`.
    pub key: Option<String>,
    /// Whether the namespace differs from the task's: then no message shows what is in it.
    pub crosses: bool,
}

impl TenantKubeconfig {
    /// The namespace that the cluster counts for: that of the identity, also where the Secret is in another.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.identity.namespace().unwrap_or(&self.namespace)
    }
}

/// A namespace of another cluster where Jobs run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The cluster.
    pub cluster: ClusterName,
    /// Namespace there.
    pub namespace: String,
}

impl Site {
    /// The user that each request there impersonates: on a tenant's cluster the ServiceAccount of the task.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        match &self.cluster {
            ClusterName::Platform(_) => None,
            ClusterName::Own(own) => own.identity.user(),
        }
    }
}

impl fmt::Display for ClusterName {
    /// For a log and for `status.jobRef.cluster`: the name of the `RenderCluster`, or of the tenant's Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Platform(name) => f.write_str(name),
            Self::Own(own) => f.write_str(&own.name),
        }
    }
}

/// The other cluster that a spec names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RemoteTarget {
    /// The `RenderCluster` with this name.
    Platform(String),
    /// A cluster of the tenant's own.
    Own(Site),
}

impl RemoteTarget {
    /// The name of the platform's cluster, if it is one.
    #[must_use]
    pub fn platform(&self) -> Option<&str> {
        match self {
            Self::Platform(name) => Some(name),
            Self::Own(_) => None,
        }
    }

    /// Whether an object at the site can be of a task with this target.
    #[must_use]
    pub fn is_at(&self, site: &Site) -> bool {
        match self {
            Self::Platform(name) => site.cluster == ClusterName::Platform(name.clone()),
            Self::Own(own) => own == site,
        }
    }
}

/// State of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteState {
    /// It is connected, and the initial list of the hub's Jobs there is complete.
    Up,
    /// The platform operator has disconnected it: that is no loss, and no timeout runs.
    Disconnected,
    /// It is not connected.
    Down {
        /// Why.
        reason: Reason,
        /// Time since which the cluster answers probes and no call, over its connections: the loss counts from then.
        unanswered_since: Option<Timestamp>,
    },
    /// Its kubeconfig cannot be read as the tenant, who sees this refusal; that is a loss too.
    Refused(Refusal),
}

impl SiteState {
    /// It is not connected, for this reason.
    #[must_use]
    pub const fn down(reason: Reason) -> Self {
        Self::Down {
            reason,
            unanswered_since: None,
        }
    }

    /// Name of the state, for a log.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Disconnected => "disconnected",
            Self::Down { .. } => "down",
            Self::Refused(_) => "refused",
        }
    }

    /// Time since which the cluster answers no call; `None` where it is not down for that.
    #[must_use]
    pub const fn unanswered_since(&self) -> Option<Timestamp> {
        match self {
            Self::Down { unanswered_since, .. } => *unanswered_since,
            Self::Up | Self::Disconnected | Self::Refused(_) => None,
        }
    }

    /// Why it is not up; `None` where it is up or disconnected on purpose.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Up | Self::Disconnected => None,
            Self::Down { reason, .. } => Some(*reason),
            Self::Refused(refusal) => Some(refusal.reason),
        }
    }
}

/// A site of a task, as the task controller knows it.
#[derive(Clone, Debug)]
pub struct KnownSite {
    /// Which it is.
    pub site: Arc<Site>,
    /// Its state.
    pub state: SiteState,
    /// Since when.
    pub times: SiteTimes,
}

/// Since when a site is lost and known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteTimes {
    /// When it was lost first since it was up; without meaning while it is up.
    pub lost_since: Timestamp,
    /// When this process heard of it first.
    pub known_since: Timestamp,
}

/// State of the place of a task's Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobSiteState<'a> {
    /// It is the hub's own cluster.
    Hub,
    /// It is a site that no task has requested yet.
    Unasked,
    /// It is a site.
    At(&'a SiteState, SiteTimes),
}

impl JobSiteState<'_> {
    /// Whether the hub can read and write objects there.
    #[must_use]
    pub const fn is_reached(&self) -> bool {
        matches!(self, Self::Hub | Self::At(SiteState::Up, _))
    }

    /// Time of the loss; `None` where it is not lost, or disconnected on purpose.
    #[must_use]
    pub const fn lost_since(&self) -> Option<Timestamp> {
        match self {
            Self::Hub | Self::Unasked | Self::At(SiteState::Up | SiteState::Disconnected, _) => None,
            Self::At(SiteState::Down { .. } | SiteState::Refused(_), times) => Some(times.lost_since),
        }
    }
}
