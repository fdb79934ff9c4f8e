//! Watches of what tenants own and others wait for: registries, of which only the namespace counts, and grants.

use std::sync::Arc;

use kube::Client;
use kube::api::{Api, ApiResource};
use kube::runtime::watcher::{Config, Event};
use tokio::sync::mpsc;

use crate::api::names::TaskKind;
use crate::api::{ReferenceGrant, Registry};
use crate::base::metrics::Metrics;
use crate::kubernetes::object::SlimObject;

use super::endless::{api_in, change, run};
use super::event::{ObservedGrant, ReceivedEvent, TaskWatchEvent};
use super::scope::TaskWatchScope;

/// Objects in a page of what tenants make, where a server cannot stream its lists. An object is 1.5 MiB at the most, so a page
/// is 12 MiB, and takes three times that while it is read; a page of 500, which is usual, could be 750 MiB.
const TENANT_PAGE: u32 = 8;

/// The namespaces whose tenants a hub of these scopes serves; `None` is all.
pub fn tenants(scopes: &[TaskWatchScope]) -> impl Iterator<Item = Option<Arc<str>>> {
    let of_tenants = scopes.iter().filter(|scope| scope.kind == TaskKind::RenderTask);
    of_tenants.map(|scope| scope.namespace.clone())
}

/// Watches grants until the channel closes.
pub async fn grants(
    client: Client,
    scope: Option<Arc<str>>,
    metrics: Metrics,
    out: mpsc::Sender<ReceivedEvent>,
) {
    let api: Api<SlimObject> = api_in(
        &client,
        scope.as_deref(),
        &ApiResource::erase::<ReferenceGrant>(&()),
    );
    run(api, of_tenants(), metrics, "referencegrants", out, move |event| {
        let change = change(event, grant, |object: &SlimObject| grant(object.clone()))?;
        Some(TaskWatchEvent::Grant(scope.clone(), change))
    })
    .await;
}

/// Watches tenants' registries until the channel closes.
pub async fn registries(
    client: Client,
    scope: Option<Arc<str>>,
    metrics: Metrics,
    out: mpsc::Sender<ReceivedEvent>,
) {
    let api: Api<SlimObject> = api_in(&client, scope.as_deref(), &ApiResource::erase::<Registry>(&()));
    run(
        api,
        of_tenants(),
        metrics,
        "registries",
        out,
        |event| match event {
            Event::Init | Event::InitDone => None,
            Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => {
                object.into_spec().0.namespace.map(TaskWatchEvent::Registry)
            }
        },
    )
    .await;
}

/// How what tenants make is watched.
pub(super) fn of_tenants() -> Config {
    Config::default().page_size(TENANT_PAGE)
}

fn grant(object: SlimObject) -> Option<ObservedGrant> {
    let (meta, spec) = object.into_spec();
    Some(ObservedGrant {
        namespace: meta.namespace?,
        uid: meta.uid?,
        spec: serde_json::from_value(spec).ok(),
    })
}
