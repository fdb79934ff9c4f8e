//! Where a Job runs that does not run on the hub's cluster: a namespace of another one, as one user.

#![warn(clippy::wildcard_enum_match_arm)]

use std::fmt;

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::Reason;

use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::read_identity::ReadIdentity;

/// Which kubeconfig leads to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClusterName {
    /// That of the `RenderCluster` with this name.
    Platform(String),
    /// A tenant's own.
    Own(TenantKubeconfig),
}

/// A kubeconfig in a Secret of a tenant's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantKubeconfig {
    /// As whom the Secret is read.
    pub reader: ReadIdentity,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in the Secret; else `value`, then `value.yaml`.
    pub key: Option<String>,
    /// Whether that is another namespace than the task's: then nothing is told of what is there.
    pub crosses: bool,
}

/// Where Jobs run on a cluster that is not the hub's.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The cluster.
    pub cluster: ClusterName,
    /// Namespace there.
    pub namespace: String,
}

impl Site {
    /// Whom each request there impersonates: on a tenant's cluster the ServiceAccount of its task.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        match &self.cluster {
            ClusterName::Platform(_) => None,
            ClusterName::Own(own) => match &own.reader {
                ReadIdentity::ServiceAccount(account) => Some(account.username()),
                ReadIdentity::Hub => None,
            },
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

/// A place that is not the hub, as the spec names it.
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

    /// Whether what is seen at the site can be of a task with this target.
    #[must_use]
    pub fn is_at(&self, site: &Site) -> bool {
        match self {
            Self::Platform(name) => site.cluster == ClusterName::Platform(name.clone()),
            Self::Own(own) => own == site,
        }
    }
}

/// How a site stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteState {
    /// It is connected, and every Job of the hub's there was seen.
    Up,
    /// The platform operator keeps the hub away from it: that is no loss, and no time counts.
    Disconnected,
    /// It is not connected.
    Down {
        /// Since when: the first loss, whatever was tried since.
        since: Timestamp,
        /// Why.
        reason: Reason,
    },
    /// Its kubeconfig cannot be read as the tenant, for this reason; that is a loss too.
    Refused {
        /// Since when.
        since: Timestamp,
        /// Why, for the tenant.
        refusal: Refusal,
    },
}

impl SiteState {
    /// The state in a word, for a log.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Disconnected => "disconnected",
            Self::Down { .. } => "down",
            Self::Refused { .. } => "refused",
        }
    }

    /// Why it is not up; `None` where it is, or is away on purpose.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Up | Self::Disconnected => None,
            Self::Down { reason, .. } => Some(*reason),
            Self::Refused { refusal, .. } => Some(refusal.reason),
        }
    }
}

/// How the place of a task's Job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobSiteState<'a> {
    /// It is the hub's own cluster.
    Hub,
    /// It is a site that nobody asked for yet.
    Unasked,
    /// It is a site.
    At(&'a SiteState),
}

impl JobSiteState<'_> {
    /// Whether what is there can be looked at and changed.
    #[must_use]
    pub const fn is_reached(&self) -> bool {
        matches!(self, Self::Hub | Self::At(SiteState::Up))
    }

    /// Since when it is lost; `None` where it is not, or is away on purpose.
    #[must_use]
    pub const fn lost_since(&self) -> Option<Timestamp> {
        match self {
            Self::Hub | Self::Unasked | Self::At(SiteState::Up | SiteState::Disconnected) => None,
            Self::At(SiteState::Down { since, .. } | SiteState::Refused { since, .. }) => Some(*since),
        }
    }
}
