//! The verdict on the hub's own rights: no more than the chart gives.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::ResourceRule;

use super::{Check, Facts, Finding, some_of, unknown};

/// What the hub may do, as the API server tells it.
#[derive(Clone, Debug, Default)]
pub struct OwnRules {
    /// In the rendering namespace.
    pub rendering: Vec<ResourceRule>,
    /// In the namespace of the kubeconfigs, where that is another.
    pub kubeconfigs: Vec<ResourceRule>,
    /// In a namespace that it has nothing to do with.
    pub elsewhere: Vec<ResourceRule>,
}

/// How far a right reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
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
struct Grant {
    reach: Reach,
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
}

const fn grant(
    reach: Reach,
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Grant {
    Grant {
        reach,
        group,
        resources,
        verbs,
    }
}

/// Everything that any mode of the chart gives, but cluster-admin.
#[rustfmt::skip]
const GOLDEN: &[Grant] = &[
    grant(Reach::Anywhere, "renderhub.dev", &["rendertasks", "clusterrendertasks"],
        &["get", "list", "watch", "patch", "delete"]),
    grant(Reach::Anywhere, "renderhub.dev", &["clusterregistries", "rendererclasses", "renderclusters", "queuepolicies",
        "registries", "referencegrants"], &["get", "list", "watch"]),
    grant(Reach::Anywhere, "renderhub.dev", &["rendertasks/status", "clusterrendertasks/status",
        "clusterregistries/status", "rendererclasses/status", "renderclusters/status"], &["patch"]),
    // Who may write a status is who may do this; the admission policies ask for it.
    grant(Reach::Anywhere, "renderhub.dev", &["hubs"], &["act"]),
    grant(Reach::Anywhere, "events.k8s.io", &["events"], &["create", "patch"]),
    grant(Reach::Anywhere, "", &["namespaces"], &["get", "list", "watch"]),
    grant(Reach::Named, "", &["serviceaccounts/token"], &["create"]),
    grant(Reach::Named, "", &["serviceaccounts"], &["get", "impersonate"]),
    grant(Reach::Rendering, "batch", &["jobs"], &["get", "list", "watch", "create", "patch", "delete"]),
    grant(Reach::Rendering, "", &["secrets"], &["get", "list", "watch", "create", "delete"]),
    grant(Reach::Kubeconfigs, "", &["secrets"], &["get", "list", "watch"]),
    grant(Reach::Rendering, "", &["pods"], &["list", "watch"]),
    grant(Reach::Rendering, "", &["configmaps"], &["get", "create", "patch"]),
    grant(Reach::Rendering, "", &["resourcequotas"], &["list"]),
    grant(Reach::Rendering, "networking.k8s.io", &["networkpolicies"], &["list"]),
    grant(Reach::Rendering, "rbac.authorization.k8s.io", &["rolebindings"], &["list"]),
    grant(Reach::Rendering, "authorization.k8s.io", &["localsubjectaccessreviews"], &["create"]),
    grant(Reach::Rendering, "coordination.k8s.io", &["leases"], &["get", "list", "create", "update"]),
];

/// What everybody may ask about themselves.
const EVERYBODYS: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

/// The rights among these that the hub does not need, each as a person would say it.
#[must_use]
pub fn excess(rules: &[ResourceRule], reach: Reach) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rule in rules {
        let is_named = rule
            .resource_names
            .as_ref()
            .is_some_and(|names| !names.is_empty());
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    if !is_needed(reach, is_named, (group, resource, verb)) {
                        found.insert(told(group, resource, verb));
                    }
                }
            }
        }
    }
    found
}

fn told(group: &str, resource: &str, verb: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    super::shown(&format!("{verb} {resource}{dot}{group}"))
}

fn is_needed(reach: Reach, is_named: bool, (group, resource, verb): (&str, &str, &str)) -> bool {
    let covers = |grant: &Grant| {
        let reaches = match grant.reach {
            Reach::Anywhere => true,
            Reach::Rendering | Reach::Kubeconfigs => reach == grant.reach,
            Reach::Named => is_named,
        };
        reaches && grant.group == group && grant.resources.contains(&resource) && grant.verbs.contains(&verb)
    };
    EVERYBODYS.contains(&(group, resource)) || GOLDEN.iter().any(covers)
}

/// More rights than needed are a finding, not a reason to stop: a hub that stops takes nothing away from who has them.
pub(super) fn are_no_more_than_needed(facts: &Facts) -> Finding {
    let check = Check::OwnRights;
    let rules = match &facts.own_rules {
        Err(why) => return unknown(check, *why, "create selfsubjectrulesreviews"),
        Ok(rules) => rules,
    };
    if facts.is_single_tenant {
        return Finding::ok(check, "not compared, as --single-tenant says");
    }
    let mut more = excess(&rules.rendering, Reach::Rendering);
    more.extend(excess(&rules.kubeconfigs, Reach::Kubeconfigs));
    more.extend(excess(&rules.elsewhere, Reach::Anywhere));
    if more.is_empty() {
        return Finding::ok(check, "the hub may do what it needs and no more");
    }
    let fix = format!("bind the hub to the chart's roles only; or --skip-preflight={check}");
    if more.contains("* *.*") {
        return Finding::warning(
            check,
            "the hub may do everything (cluster-admin)",
            format!("{fix}; --single-tenant is for clusters that one team owns"),
        );
    }
    let more: Vec<String> = more.into_iter().collect();
    Finding::warning(
        check,
        format!("the hub may do more than it needs: {}", some_of(&more)),
        fix,
    )
}
