//! What each user of a run may do. The bare writer has the hub's rights, so that both cost the API server the same checks.

use anyhow::Result;
use k8s_openapi::api::rbac::v1::PolicyRule;
use renderhub_harness::Rights;
use renderhub_harness::rights::Bound;
use serde_json::json;

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(ToString::to_string).collect()),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}

/// The hub's, as the chart gives them, with its Jobs in this namespace.
///
/// # Errors
/// If the chart cannot be rendered.
pub async fn hub(rendering: &str) -> Result<Rights> {
    hub_of(rendering, &[]).await
}

/// The rights of a hub that makes tasks for Targets, as the chart gives them.
///
/// # Errors
/// If the chart cannot be rendered.
pub async fn hub_with_pipeline(rendering: &str) -> Result<Rights> {
    let values = [
        "renderingNamespace.name",
        "clusters.namespace",
        "renderer.pullSecretNamespace",
    ];
    let mut values: Vec<_> = values.map(|value| format!("{value}={rendering}")).into();
    values.push("pipeline.enabled=true".to_owned());
    Rights::of_chart(&values).await
}

/// The rights of a hub with a list of namespaces, as the chart gives them; none is all.
///
/// # Errors
/// If the chart cannot be rendered.
pub async fn hub_of(rendering: &str, watched: &[String]) -> Result<Rights> {
    let values = [
        "renderingNamespace.name",
        "clusters.namespace",
        "renderer.pullSecretNamespace",
    ];
    let mut values: Vec<_> = values.map(|value| format!("{value}={rendering}")).into();
    if !watched.is_empty() {
        values.push(format!("controller.watchNamespaces={{{}}}", watched.join(",")));
    }
    Rights::of_chart(&values).await
}

/// The bare writer's: the hub's, and the finisher's one patch, which it makes itself.
pub fn bare(mut hub: Rights) -> Rights {
    hub.bound.push(Bound {
        namespace: None,
        role: "finisher".to_owned(),
        is_cluster_role: true,
        labels: json!({}),
        rules: vec![rule("batch", &["jobs/status"], &["patch"])],
    });
    hub
}

/// The finisher's.
pub fn finisher() -> Vec<PolicyRule> {
    vec![
        rule("batch", &["jobs"], &["get", "list", "watch"]),
        rule("batch", &["jobs/status"], &["patch"]),
    ]
}
