//! Watches of what tenants own and others wait for: registries, of which only the namespace counts, and grants.

use std::sync::Arc;

use kube::api::{Api, ApiResource};
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use tokio::sync::mpsc;

use crate::api::names::TaskKind;
use crate::api::{ReferenceGrant, ReferenceGrantSpec, Registry};
use crate::base::metrics::Metrics;
use crate::kubernetes::object::SlimObject;

use super::{Arrived, Input, Scope, of_tenants, run};

/// A grant as it is remembered.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The namespace that grants.
    pub namespace: String,
    /// UID of the object.
    pub uid: String,
    /// What it allows; `None` where the Rust type cannot decode it.
    pub spec: Option<ReferenceGrantSpec>,
}

/// What a watch of grants saw. The scope is the one namespace that is watched, or all.
#[derive(Clone, Debug)]
pub enum GrantChange {
    /// Everything that exists follows, then [`GrantChange::Synced`].
    Restart(Option<Arc<str>>),
    /// A grant is there, new or changed.
    Seen(Option<Arc<str>>, Grant),
    /// A grant is gone.
    Gone(Grant),
    /// What was not seen since [`GrantChange::Restart`] is gone.
    Synced(Option<Arc<str>>),
}

/// The namespaces whose tenants a hub of these scopes serves; `None` is all.
pub fn tenants(scopes: &[Scope]) -> impl Iterator<Item = Option<Arc<str>>> {
    let of_tenants = scopes.iter().filter(|scope| scope.kind == TaskKind::RenderTask);
    of_tenants.map(|scope| scope.namespace.clone())
}

/// Watches grants until the channel closes.
pub async fn grants(client: Client, scope: Option<Arc<str>>, metrics: Metrics, out: mpsc::Sender<Arrived>) {
    let api = api::<ReferenceGrant>(client, scope.as_deref());
    run(api, of_tenants(), metrics, "referencegrants", out, move |event| {
        let change = match event {
            Event::Init => GrantChange::Restart(scope.clone()),
            Event::InitDone => GrantChange::Synced(scope.clone()),
            Event::Apply(object) | Event::InitApply(object) => {
                GrantChange::Seen(scope.clone(), grant(object)?)
            }
            Event::Delete(object) => GrantChange::Gone(grant(object)?),
        };
        Some(Input::Grant(change))
    })
    .await;
}

/// Watches tenants' registries until the channel closes.
pub async fn registries(
    client: Client,
    scope: Option<Arc<str>>,
    metrics: Metrics,
    out: mpsc::Sender<Arrived>,
) {
    let api = api::<Registry>(client, scope.as_deref());
    run(
        api,
        of_tenants(),
        metrics,
        "registries",
        out,
        |event| match event {
            Event::Init | Event::InitDone => None,
            Event::Apply(object) | Event::InitApply(object) | Event::Delete(object) => {
                object.into_spec().0.namespace.map(Input::Registry)
            }
        },
    )
    .await;
}

fn api<K: Resource<DynamicType = ()>>(client: Client, namespace: Option<&str>) -> Api<SlimObject> {
    let resource = ApiResource::erase::<K>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

fn grant(object: SlimObject) -> Option<Grant> {
    let (meta, spec) = object.into_spec();
    Some(Grant {
        namespace: meta.namespace?,
        uid: meta.uid?,
        spec: serde_json::from_value(spec).ok(),
    })
}
