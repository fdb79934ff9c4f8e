//! Server-side apply of YAML with several documents, as `kubectl apply --server-side` does it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::wait_for;

/// The field manager of everything that the harness applies.
pub const FIELD_MANAGER: &str = "renderhub-harness";
/// How long a new kind may take until the API server serves it.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a mutating admission policy may not know a new kind; until then the API server answers with 503.
const KNOWN: Duration = Duration::from_secs(90);
/// How long one request of those waits.
const ONE_LOOK: Duration = Duration::from_secs(10);

/// Applies every document, in order, and returns what the API server made of them. Namespaced objects must name their
/// namespace. After a `CustomResourceDefinition` it waits until the new kind is served.
///
/// # Errors
/// If the YAML is broken or the API server refuses an object.
pub async fn yaml(client: &Client, text: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|e| anyhow::anyhow!("this is no YAML: {e}"))?;
    let mut applied = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        applied.push(object(client, document).await?);
    }
    Ok(applied)
}

/// The same for one object, e.g. from `serde_json::json!`.
///
/// # Errors
/// As [`yaml`].
pub async fn object(client: &Client, value: Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(value).context("this is no Kubernetes object")?;
    let types = object
        .types
        .clone()
        .context("an object without apiVersion and kind")?;
    let name = object.metadata.name.clone().context("an object without a name")?;
    let what = format!("{} {name}", types.kind);
    let gvk = GroupVersionKind::try_from(&types)?;
    let (resource, capabilities) = wait_for(&format!("kind {}", types.kind), LIMIT, async || {
        Ok(Some(pinned_kind(client, &gvk).await?))
    })
    .await?;
    let api: Api<DynamicObject> = match (&capabilities.scope, object.namespace()) {
        (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
        (Scope::Namespaced, None) => bail!("{what} names no namespace"),
    };
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(&object);
    let applied = wait_for(
        &format!("the API server to take {what}"),
        KNOWN,
        async || match api.patch(&name, &params, &patch).await {
            Err(kube::Error::Api(status)) if status.code == 503 => Err(kube::Error::Api(status).into()),
            done => Ok(Some(done)),
        },
    )
    .await?
    .with_context(|| format!("applying {what}"))?;
    if types.kind == "CustomResourceDefinition" {
        until_served(client, &api, &applied).await?;
    }
    Ok(applied)
}

/// `Established` alone is not enough: the kind must also be in discovery, or the next document is not found.
async fn until_served(client: &Client, api: &Api<DynamicObject>, crd: &DynamicObject) -> Result<()> {
    let name = crd.name_any();
    wait_for(
        &format!("CustomResourceDefinition {name} to be Established"),
        LIMIT,
        async || {
            let now = api.get(&name).await?;
            let conditions = now.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            Ok(conditions
                .iter()
                .any(|c| c["type"] == "Established" && c["status"] == "True")
                .then_some(()))
        },
    )
    .await?;
    for gvk in served_kinds(crd) {
        // A request to a kind that is new may wait in a busy API server without end, where the next one is answered.
        wait_for(&format!("kind {} to be served", gvk.kind), LIMIT, async || {
            tokio::time::timeout(ONE_LOOK, is_served(client, &gvk))
                .await?
                .map(Some)
        })
        .await?;
    }
    Ok(())
}

async fn is_served(client: &Client, gvk: &GroupVersionKind) -> Result<()> {
    let (resource, _) = pinned_kind(client, gvk).await?;
    let served: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    served
        .list_metadata(&ListParams::default().limit(1))
        .await
        .map(drop)?;
    Ok(())
}

fn served_kinds(crd: &DynamicObject) -> Vec<GroupVersionKind> {
    let spec = &crd.data["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true);
    let kind = |version: &Value| {
        GroupVersionKind::gvk(
            &text(&spec["group"]),
            &text(&version["name"]),
            &text(&spec["names"]["kind"]),
        )
    };
    versions.map(kind).collect()
}
