//! The verdict on the hub's own rights: no more than the chart gives.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::ResourceRule;

use super::check::PreflightCheck;
use super::facts::PreflightFacts;
use super::finding::{PreflightFinding, unknown};
use super::needs::{MADE, REPLACED_STATUS, STATUSES, WATCHED};
use super::text::{shown, some_of};

/// How far a right reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionScope {
    /// The rendering namespace.
    Rendering,
    /// The namespace of the kubeconfigs, where that is another.
    Kubeconfigs,
    /// Any namespace.
    Anywhere,
    /// Any namespace, but only objects that the rule names.
    Named,
}

/// A right that the hub needs.
#[derive(Clone, Copy, Debug)]
struct RequiredPermission {
    reach: PermissionScope,
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

const fn grant(
    reach: PermissionScope,
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> RequiredPermission {
    RequiredPermission {
        reach,
        group,
        resources,
        verbs,
    }
}

/// Everything that any mode of the chart gives, but cluster-admin.
#[rustfmt::skip]
const GOLDEN: &[RequiredPermission] = &[
    grant(PermissionScope::Anywhere, "renderhub.dev", &["rendertasks", "clusterrendertasks"],
        &["get", "list", "watch", "patch", "delete"]),
    // Of a hub that makes tasks for Targets.
    grant(PermissionScope::Anywhere, "renderhub.dev", MADE, &["create", "delete"]),
    grant(PermissionScope::Anywhere, "renderhub.dev", &["targets"], &["patch"]),
    grant(PermissionScope::Anywhere, "renderhub.dev", WATCHED, &["list", "watch"]),
    grant(PermissionScope::Anywhere, "renderhub.dev", STATUSES, &["patch"]),
    grant(PermissionScope::Anywhere, "renderhub.dev", &[REPLACED_STATUS], &["update"]),
    grant(PermissionScope::Anywhere, "renderhub.dev", &["clusterregistries", "rendererclasses", "renderclusters", "queuepolicies",
        "registries", "referencegrants"], &["get", "list", "watch"]),
    grant(PermissionScope::Anywhere, "renderhub.dev", &["rendertasks/status", "clusterrendertasks/status",
        "clusterregistries/status", "rendererclasses/status", "renderclusters/status"], &["patch"]),
    // The admission policies let exactly the holders of this right write a status.
    grant(PermissionScope::Anywhere, "renderhub.dev", &["hubs"], &["act"]),
    grant(PermissionScope::Anywhere, "events.k8s.io", &["events"], &["create", "patch"]),
    grant(PermissionScope::Anywhere, "", &["namespaces"], &["get", "list", "watch"]),
    grant(PermissionScope::Named, "", &["serviceaccounts/token"], &["create"]),
    grant(PermissionScope::Named, "", &["serviceaccounts"], &["get", "impersonate"]),
    grant(PermissionScope::Rendering, "batch", &["jobs"], &["get", "list", "watch", "create", "patch", "delete"]),
    grant(PermissionScope::Rendering, "", &["secrets"], &["get", "list", "watch", "create", "delete"]),
    grant(PermissionScope::Kubeconfigs, "", &["secrets"], &["get", "list", "watch"]),
    grant(PermissionScope::Rendering, "", &["pods"], &["list", "watch"]),
    grant(PermissionScope::Rendering, "", &["configmaps"], &["get", "create", "patch"]),
    grant(PermissionScope::Rendering, "", &["resourcequotas"], &["list"]),
    grant(PermissionScope::Rendering, "networking.k8s.io", &["networkpolicies"], &["list"]),
    grant(PermissionScope::Rendering, "rbac.authorization.k8s.io", &["rolebindings"], &["list"]),
    grant(PermissionScope::Rendering, "authorization.k8s.io", &["localsubjectaccessreviews"], &["create"]),
    grant(PermissionScope::Rendering, "coordination.k8s.io", &["leases"], &["get", "list", "create", "update"]),
];

/// The access reviews that every user may make.
const EVERYBODYS: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

/// The rights among these that the hub does not need, each as a person would say it.
#[must_use]
pub fn excess(rules: &[ResourceRule], reach: PermissionScope) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rule in rules {
        let is_named = rule
            .resource_names
            .as_ref()
            .is_some_and(|names| !names.is_empty());
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    if !is_needed(reach, is_named, group, resource, verb) {
                        found.insert(text(group, resource, verb));
                    }
                }
            }
        }
    }
    found
}

fn text(group: &str, resource: &str, verb: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    shown(&format!("{verb} {resource}{dot}{group}"))
}

fn is_needed(reach: PermissionScope, is_named: bool, group: &str, resource: &str, verb: &str) -> bool {
    let covers = |grant: &RequiredPermission| {
        let reaches = match grant.reach {
            PermissionScope::Anywhere => true,
            PermissionScope::Rendering | PermissionScope::Kubeconfigs => reach == grant.reach,
            PermissionScope::Named => is_named,
        };
        reaches && grant.group == group && grant.resources.contains(&resource) && grant.verbs.contains(&verb)
    };
    EVERYBODYS.contains(&(group, resource)) || GOLDEN.iter().any(covers)
}

/// More rights than needed are a finding, not a reason to stop: stopping takes the right from no one.
pub(super) fn are_no_more_than_needed(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::OwnRights;
    let rules = match &facts.own_rules {
        Err(why) => return unknown(check, *why, "create selfsubjectrulesreviews"),
        Ok(rules) => rules,
    };
    if facts.is_single_tenant {
        return PreflightFinding::ok(check, "not compared, as --single-tenant says");
    }
    let mut more = excess(&rules.rendering, PermissionScope::Rendering);
    more.extend(excess(&rules.kubeconfigs, PermissionScope::Kubeconfigs));
    more.extend(excess(&rules.elsewhere, PermissionScope::Anywhere));
    if more.is_empty() {
        return PreflightFinding::ok(check, "the hub may do what it needs and no more");
    }
    let fix = format!("bind the hub to the chart's roles only; or --skip-preflight={check}");
    if more.contains("* *.*") {
        return PreflightFinding::warning(
            check,
            "the hub may do everything (cluster-admin)",
            format!("{fix}; --single-tenant is for clusters that one team owns"),
        );
    }
    let more: Vec<String> = more.into_iter().collect();
    PreflightFinding::warning(
        check,
        format!("the hub may do more than it needs: {}", some_of(&more)),
        fix,
    )
}
