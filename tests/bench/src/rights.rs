//! What each user of a run may do. The bare writer has the hub's rights, so that both cost the API server the same checks.

use k8s_openapi::api::rbac::v1::PolicyRule;

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(ToString::to_string).collect()),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}

/// The hub's rights, as the chart grants them.
pub fn hub() -> Vec<PolicyRule> {
    let tasks = ["rendertasks", "clusterrendertasks"];
    let statuses = [
        "rendertasks/status",
        "clusterrendertasks/status",
        "clusterregistries/status",
        "rendererclasses/status",
    ];
    let watch = ["get", "list", "watch"];
    let own = ["get", "list", "watch", "create", "delete"];
    vec![
        rule(
            "renderhub.dev",
            &tasks,
            &["get", "list", "watch", "patch", "delete"],
        ),
        rule("renderhub.dev", &statuses, &["patch"]),
        rule("renderhub.dev", &["clusterregistries", "rendererclasses"], &watch),
        rule("renderhub.dev", &["registries"], &["list", "watch"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
        rule("", &["namespaces"], &watch),
        rule("batch", &["jobs"], &own),
        rule("", &["secrets"], &own),
        rule("", &["pods"], &["list", "watch"]),
        rule("", &["resourcequotas"], &["list"]),
        rule("networking.k8s.io", &["networkpolicies"], &["list"]),
        rule("rbac.authorization.k8s.io", &["rolebindings"], &["list"]),
        rule(
            "authorization.k8s.io",
            &["localsubjectaccessreviews"],
            &["create"],
        ),
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "list", "create", "update"],
        ),
    ]
}

/// The bare writer's: the hub's, and the finisher's one patch, which it makes itself.
pub fn bare() -> Vec<PolicyRule> {
    let mut rules = hub();
    rules.push(rule("batch", &["jobs/status"], &["patch"]));
    rules
}

/// The finisher's.
pub fn finisher() -> Vec<PolicyRule> {
    vec![
        rule("batch", &["jobs"], &["get", "list", "watch"]),
        rule("batch", &["jobs/status"], &["patch"]),
    ]
}
