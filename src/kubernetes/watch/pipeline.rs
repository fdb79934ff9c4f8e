//! The watches of the pipeline's objects, and of the tasks that it made.

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ApiResource};
use kube::runtime::watcher::Event;
use kube::{Client, Resource};

use crate::api::labels::PIPELINE;
use crate::api::names::TaskKind;
use crate::base::metrics::Metrics;
use crate::kubernetes::object::{LabelledObject, SlimObject, task_resource};

use super::endless::endless;
use super::tenant_objects::of_tenants;

/// Watches the objects of a kind, in one namespace or in all.
#[must_use]
pub fn pipeline_objects<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
    metrics: &Metrics,
    name: &'static str,
) -> BoxStream<'static, Event<LabelledObject>> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<LabelledObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    endless(api, of_tenants(), metrics.clone(), name).boxed()
}

/// Watches the tasks that the pipeline made, in one namespace or in all.
#[must_use]
pub fn pipeline_tasks(
    client: &Client,
    namespace: Option<&str>,
    metrics: &Metrics,
) -> BoxStream<'static, Event<SlimObject>> {
    let resource = task_resource(TaskKind::RenderTask);
    let api: Api<SlimObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    endless(
        api,
        of_tenants().labels(PIPELINE),
        metrics.clone(),
        "pipelinetasks",
    )
    .boxed()
}
