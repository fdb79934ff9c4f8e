//! The checks of the preflight, by name.

use std::fmt;

use serde::Serialize;

/// Where each refusal is explained, check by check.
pub const RUNBOOK: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/v",
    env!("CARGO_PKG_VERSION"),
    "/docs/runbooks/hub-refuses-to-start.md"
);

/// A check, by the name that `--skip-preflight` and the documentation use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreflightCheck {
    /// The rendering namespace exists and is used by no one else.
    RenderingNamespace,
    /// No task lies in the rendering namespace.
    TenantTasks,
    /// No tenant may do anything in the rendering namespace.
    TenantRights,
    /// Each binding in the rendering namespace is the platform's.
    RoleBindings,
    /// The rendering namespace enforces the PodSecurity standard `restricted`.
    PodSecurity,
    /// The rendering namespace denies traffic by default.
    NetworkPolicy,
    /// The rendering namespace has a bound.
    ResourceQuota,
    /// The hub may do no more than it needs.
    OwnRights,
    /// No registry is open to every namespace and every cluster.
    RegistryScope,
    /// Where the hub makes tasks for Targets, the kinds are served and it has the rights.
    Pipeline,
    /// No other hub serves the same tasks.
    Peers,
    /// No namespace with tasks is without a hub.
    UnownedNamespaces,
}

impl PreflightCheck {
    /// Every check, in the order of the report.
    pub const ALL: [Self; 12] = [
        Self::RenderingNamespace,
        Self::TenantTasks,
        Self::TenantRights,
        Self::RoleBindings,
        Self::PodSecurity,
        Self::NetworkPolicy,
        Self::ResourceQuota,
        Self::OwnRights,
        Self::RegistryScope,
        Self::Pipeline,
        Self::Peers,
        Self::UnownedNamespaces,
    ];

    /// The check's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RenderingNamespace => "rendering-namespace",
            Self::TenantTasks => "tenant-tasks",
            Self::TenantRights => "tenant-rights",
            Self::RoleBindings => "role-bindings",
            Self::PodSecurity => "pod-security",
            Self::NetworkPolicy => "network-policy",
            Self::ResourceQuota => "resource-quota",
            Self::OwnRights => "own-rights",
            Self::RegistryScope => "registry-scope",
            Self::Pipeline => "pipeline",
            Self::Peers => "peers",
            Self::UnownedNamespaces => "unowned-namespaces",
        }
    }

    /// The check of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|check| check.as_str() == name)
    }

    /// Whether an administrator may do without it: not where a hub without it would do damage by being there.
    #[must_use]
    pub const fn can_be_skipped(self) -> bool {
        !matches!(self, Self::RenderingNamespace | Self::Peers)
    }
}

impl fmt::Display for PreflightCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for PreflightCheck {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}
