//! What must be so before a hub may start and while it works, judged from facts that others gathered.
//!
//! Nothing is assumed: a fact that could not be learned is refused like one that is wrong, because the hub holds the
//! credentials of everybody.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::ResourceQuotaSpec;
use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde::Serialize;

use crate::api::ClusterRegistrySpec;

pub mod again;
pub mod namespace;
pub mod rights;
pub mod table;
pub mod tenants;

use rights::OwnRules;
use tenants::TenantRights;

/// Where each refusal is explained, check by check.
pub const RUNBOOK: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/v",
    env!("CARGO_PKG_VERSION"),
    "/docs/runbooks/hub-refuses-to-start.md"
);

/// What is looked at, by the name that `--skip-preflight` and the documentation use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The rendering namespace exists and is nobody else's.
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
    /// No registry is open to everybody everywhere.
    RegistryScope,
    /// No other hub serves the same tasks.
    Peers,
    /// No namespace with tasks is without a hub.
    UnownedNamespaces,
}

impl Check {
    /// Every check, in the order in which they are told.
    pub const ALL: [Self; 11] = [
        Self::RenderingNamespace,
        Self::TenantTasks,
        Self::TenantRights,
        Self::RoleBindings,
        Self::PodSecurity,
        Self::NetworkPolicy,
        Self::ResourceQuota,
        Self::OwnRights,
        Self::RegistryScope,
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

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Check {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The hub does not start.
    Refused,
    /// The hub starts, and says so.
    Warning,
    /// An administrator does without it.
    Skipped,
}

impl Verdict {
    /// The verdict as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Warning => "warning",
            Self::Skipped => "skipped",
        }
    }
}

/// One check and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// What came of it.
    #[serde(rename = "result")]
    pub verdict: Verdict,
    /// What is so, for a person.
    #[serde(rename = "what")]
    pub message: String,
    /// What to do about it; empty where nothing is to be done.
    pub fix: String,
}

impl Finding {
    /// All is well.
    #[must_use]
    pub fn ok(check: Check, message: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, message, "")
    }

    /// The hub must not start.
    #[must_use]
    pub fn refused(check: Check, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Verdict::Refused, message, fix)
    }

    /// Somebody should look at it.
    #[must_use]
    pub fn warning(check: Check, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warning, message, fix)
    }

    /// Nobody wanted to know.
    #[must_use]
    pub fn skipped(check: Check) -> Self {
        let message = "not looked at, as --skip-preflight says";
        Self::new(check, Verdict::Skipped, message, "")
    }

    fn new(check: Check, verdict: Verdict, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            verdict,
            message: message.into(),
            fix: fix.into(),
        }
    }
}

/// Why a fact is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// The hub may not ask.
    Forbidden,
    /// The API server does not serve it, or in another form.
    Unreadable,
    /// Nobody wanted to know.
    NotAsked,
}

/// What was learned.
pub type Fact<T> = Result<T, Withheld>;

/// What preflight looks at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name of the rendering namespace.
    pub rendering: String,
    /// Whether one team owns the whole cluster.
    pub is_single_tenant: bool,
    /// Whom the API server takes the hub for.
    pub user: Option<String>,
    /// Labels of the rendering namespace; `None` where it does not exist.
    pub namespace: Fact<Option<BTreeMap<String, String>>>,
    /// Whether a task lies in the rendering namespace.
    pub has_tasks: Fact<bool>,
    /// What tenants may do in the rendering namespace.
    pub rights: Fact<TenantRights>,
    /// Bindings of the rendering namespace.
    pub bindings: Fact<Vec<RoleBinding>>,
    /// Network policies of the rendering namespace.
    pub policies: Fact<Vec<NetworkPolicySpec>>,
    /// Quotas of the rendering namespace.
    pub quotas: Fact<Vec<ResourceQuotaSpec>>,
    /// What the hub may do.
    pub own_rules: Fact<OwnRules>,
    /// Every registry of the platform, by name.
    pub registries: Fact<Vec<(String, ClusterRegistrySpec)>>,
}

/// Judges everything but the peers, and what they leave to nobody: those are judged by their Leases.
#[must_use]
pub fn judge(facts: &Facts, skipped: &BTreeSet<Check>) -> Vec<Finding> {
    let is_of_leases = |check: &Check| matches!(check, Check::Peers | Check::UnownedNamespaces);
    let judged = Check::ALL.into_iter().filter(|check| !is_of_leases(check));
    judged
        .map(|check| {
            if skipped.contains(&check) {
                Finding::skipped(check)
            } else {
                one(check, facts)
            }
        })
        .collect()
}

fn one(check: Check, facts: &Facts) -> Finding {
    match check {
        Check::RenderingNamespace => namespace::is_the_platforms(facts),
        Check::TenantTasks => namespace::holds_no_task(facts),
        Check::TenantRights => tenants::have_no_right(facts),
        Check::RoleBindings => tenants::are_not_bound(facts),
        Check::PodSecurity => namespace::is_restricted(facts),
        Check::NetworkPolicy => namespace::denies_by_default(facts),
        Check::ResourceQuota => namespace::is_bounded(facts),
        Check::OwnRights => rights::are_no_more_than_needed(facts),
        Check::RegistryScope | Check::Peers | Check::UnownedNamespaces => registry_scope(facts),
    }
}

/// The finding on a fact that is not known.
fn unknown(check: Check, why: Withheld, right: &str) -> Finding {
    let message = match why {
        Withheld::Forbidden | Withheld::NotAsked => format!("cannot be told: the hub may not {right}"),
        Withheld::Unreadable => format!("cannot be told: the API server does not let the hub {right}"),
    };
    let without = if check.can_be_skipped() {
        format!(", or do without: --skip-preflight={check}")
    } else {
        String::new()
    };
    let fix = format!("grant it, as the chart does{without}");
    match check {
        // What only warns when it is wrong does not refuse when it is unknown.
        Check::OwnRights | Check::RegistryScope => Finding::warning(check, message, fix),
        _ => Finding::refused(check, message, fix),
    }
}

/// A text that others chose, made safe and short for a line of a log.
pub(super) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(100).collect();
    cut.escape_debug().to_string()
}

/// The first of many, and how many more there are.
pub(super) fn some_of(all: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = all.len().saturating_sub(SHOWN);
    let first = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 {
        first
    } else {
        format!("{first} and {more} more")
    }
}

/// A registry for every namespace without a prefix lets each tenant overwrite the charts of all others.
fn registry_scope(facts: &Facts) -> Finding {
    let check = Check::RegistryScope;
    let registries = match &facts.registries {
        Ok(registries) => registries,
        Err(why) => return unknown(check, *why, "list clusterregistries"),
    };
    let is_open = |spec: &ClusterRegistrySpec| {
        spec.repository_prefix.is_empty() && spec.allowed_namespaces.iter().any(|name| name == "*")
    };
    let open: Vec<String> = registries
        .iter()
        .filter(|(_, spec)| is_open(spec))
        .map(|(name, _)| shown(name))
        .collect();
    if open.is_empty() {
        return Finding::ok(
            check,
            format!("{} ClusterRegistries, none open to everybody", registries.len()),
        );
    }
    Finding::warning(
        check,
        format!(
            "any namespace may push to any repository by ClusterRegistry {}",
            some_of(&open)
        ),
        "give it a repositoryPrefix with {namespace}, or name its allowedNamespaces",
    )
}

#[cfg(test)]
mod tests;
