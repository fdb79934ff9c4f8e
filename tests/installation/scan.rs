//! Looking for a credential wherever somebody may read.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::core::DynamicObject;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client, ResourceExt};
use renderhub_harness::wait_for;

/// Longest that a kind may not be listed for.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether any of the canaries is in the text.
pub fn found(canaries: &[String], text: &str) -> bool {
    canaries.iter().any(|canary| text.contains(canary.as_str()))
}

/// Every object the client may list, of every kind the API server serves, as JSON.
pub async fn everything(client: &Client, namespace: Option<&str>) -> Result<String> {
    let mut text = String::new();
    let discovery = Discovery::new(client.clone()).run().await?;
    for (resource, capabilities) in discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
    {
        if !capabilities.supports_operation(verbs::LIST) {
            continue;
        }
        let api: Api<DynamicObject> = match (&capabilities.scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(client.clone(), namespace, &resource)
            }
            (Scope::Cluster, Some(_)) => continue,
            (_, None) => Api::all_with(client.clone(), &resource),
        };
        let listed = wait_for("the API server to list", LIMIT, async || {
            match api.list(&ListParams::default()).await {
                // A kind whose definition changed a moment ago.
                Err(kube::Error::Api(status)) if status.code == 429 => Ok(None),
                listed => Ok(Some(listed)),
            }
        });
        match listed.await? {
            Ok(list) => text.push_str(&serde_json::to_string(&list.items)?),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {}
            Err(error) => return Err(error).with_context(|| format!("listing {}", resource.plural)),
        }
    }
    Ok(text)
}

/// The logs of all containers in a namespace.
pub async fn logs(client: &Client, namespace: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut text = String::new();
    for pod in pods.list(&ListParams::default()).await? {
        let spec = pod.spec.clone().unwrap_or_default();
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            let params = LogParams {
                container: Some(container.name.clone()),
                ..LogParams::default()
            };
            text.push_str(&pods.logs(&pod.name_any(), &params).await?);
        }
    }
    Ok(text)
}
