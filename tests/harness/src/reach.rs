//! What a user can reach: objects, logs of pods, and what the kernel shows of a process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::core::DynamicObject;
use kube::discovery::{ApiResource, Discovery, Scope, verbs};
use kube::{Api, Client, ResourceExt};

use crate::wait_for;

/// Lists at a time.
const AT_ONCE: usize = 16;
/// Longest that a kind may not be listed for.
const LIMIT: Duration = Duration::from_secs(60);

/// A kind that can be listed.
#[derive(Clone, Debug)]
pub struct Kind {
    /// What it is called.
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

/// Every kind that the API server lists.
///
/// # Errors
/// If it does not say.
pub async fn kinds(client: &Client) -> Result<Vec<Kind>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let all = discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources);
    let listed = all.filter(|(_, capabilities)| capabilities.supports_operation(verbs::LIST));
    Ok(listed
        .map(|(resource, capabilities)| Kind {
            resource,
            is_namespaced: capabilities.scope == Scope::Namespaced,
        })
        .collect())
}

/// Every object of the kinds that the client may list: those in a namespace, or cluster-scoped ones and those of all
/// namespaces.
///
/// # Errors
/// If a list fails for another reason than that it is forbidden.
pub async fn objects(
    client: &Client,
    kinds: &[Kind],
    namespace: Option<&str>,
) -> Result<Vec<(String, DynamicObject)>> {
    let wanted = kinds
        .iter()
        .filter(|kind| kind.is_namespaced || namespace.is_none());
    let lists = wanted.map(|kind| {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource),
            None => Api::all_with(client.clone(), &kind.resource),
        };
        list(api, &kind.resource)
    });
    let lists: Vec<Vec<_>> = stream::iter(lists)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(lists.into_iter().flatten().collect())
}

async fn list(api: Api<DynamicObject>, resource: &ApiResource) -> Result<Vec<(String, DynamicObject)>> {
    let listed = wait_for("the API server to list", LIMIT, async || {
        match api.list(&ListParams::default()).await {
            // A kind whose definition changed a moment ago.
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(None),
            listed => Ok(Some(listed)),
        }
    });
    match listed.await? {
        Ok(list) => Ok(list
            .items
            .into_iter()
            .map(|o| (resource.plural.clone(), o))
            .collect()),
        Err(kube::Error::Api(status)) if status.is_forbidden() || status.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("listing {}", resource.plural)),
    }
}

/// Everything that the client may list in a namespace, or, without one, everywhere, as JSON.
///
/// # Errors
/// As [`kinds`] and [`objects`].
pub async fn everything(client: &Client, namespace: Option<&str>) -> Result<String> {
    let objects = objects(client, &kinds(client).await?, namespace).await?;
    Ok(serde_json::to_string(&objects)?)
}

/// The logs of all containers in a namespace.
///
/// # Errors
/// If one cannot be read.
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

/// What the kernel shows of a process to a user with the right: its environment, arguments, limits, state and mapped files.
///
/// # Errors
/// If there is no such process.
pub fn process(pid: u32) -> Result<Vec<(String, String)>> {
    let files = [
        "environ",
        "cmdline",
        "comm",
        "limits",
        "status",
        "maps",
        "mountinfo",
    ];
    let mut shown = Vec::new();
    for file in files {
        let path = Path::new("/proc").join(pid.to_string()).join(file);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        shown.push((
            path.display().to_string(),
            String::from_utf8_lossy(&bytes).into_owned(),
        ));
    }
    Ok(shown)
}

/// Core files in a directory.
///
/// # Errors
/// If it cannot be read.
pub fn cores(dir: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("core") && path.is_file() {
            let bytes = fs::read(&path)?;
            found.push((
                path.display().to_string(),
                String::from_utf8_lossy(&bytes).into_owned(),
            ));
        }
    }
    Ok(found)
}
