//! The watches of the pipeline's objects.

use futures::StreamExt;
use futures::stream::{BoxStream, select, unfold};
use kube::api::{Api, ApiResource};
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use tokio::sync::mpsc;

use crate::base::metrics::Metrics;
use crate::kubernetes::object::LabelledObject;

use super::endless::{api_in, endless_with};
use super::errors::is_forbidden;
use super::tenant_objects::of_tenants;

/// What a watch of the pipeline shows.
#[expect(clippy::large_enum_variant, reason = "nearly all are events")]
pub enum PipelineWatch {
    /// What happened to an object, or to the list.
    Event(Event<LabelledObject>),
    /// The API server does not let the hub read it. The watch is opened again until it does.
    Refused,
}

/// Watches the objects of a kind, in one namespace or in all, and also shows when it is refused.
#[must_use]
pub fn pipeline_objects<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
    metrics: &Metrics,
    name: &'static str,
) -> BoxStream<'static, PipelineWatch> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<LabelledObject> = api_in(client, namespace, &resource);
    // One is enough: a refusal that was not taken yet says the same as the next.
    let (refused, refusals) = mpsc::channel(1);
    let received = move |error: &watcher::Error| {
        if is_forbidden(error) {
            _ = refused.try_send(());
        }
    };
    let events = endless_with(api, of_tenants(), metrics.clone(), name, received);
    let refusals = unfold(refusals, async |mut refusals| {
        refusals.recv().await.map(|()| (PipelineWatch::Refused, refusals))
    });
    select(events.map(PipelineWatch::Event), refusals).boxed()
}
