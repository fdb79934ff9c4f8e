//! The watch of tasks.

use kube::api::Api;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Client, Resource as _};
use tokio::sync::mpsc;

use crate::api::names::TaskUid;
use crate::base::metrics::Metrics;
use crate::kubernetes::object::{SlimObject, task_resource};

use super::decoded_specs::DecodedSpecs;
use super::endless::{api_in, change, endless_with, forward};
use super::errors::is_forbidden;
use super::event::{ReceivedEvent, TaskWatchEvent};
use super::scope::TaskWatchScope;
use super::tenant_objects::of_tenants;

/// Watches the tasks of a scope until the channel closes.
pub async fn tasks(
    client: Client,
    scope: TaskWatchScope,
    metrics: Metrics,
    out: mpsc::Sender<ReceivedEvent>,
) {
    let resource = task_resource(scope.kind);
    let api: Api<SlimObject> = api_in(&client, scope.namespace.as_deref(), &resource);
    let (reported, refused) = (out.clone(), scope.clone());
    let received = move |error: &watcher::Error| {
        // If the channel is full, the next error sends it again.
        if is_forbidden(error) {
            _ = reported.try_send(TaskWatchEvent::Refused(refused.clone()).into());
        }
    };
    let events = endless_with(api, of_tenants(), metrics, scope.kind.plural(), received);
    let mut specs = DecodedSpecs::default();
    forward(events, out, move |event| {
        if let Event::Delete(object) = &event {
            specs.forget(object);
        }
        let seen = |object: SlimObject| {
            let known = specs.get(&object);
            let task = object.into_task(scope.kind, known)?;
            specs.put(&task);
            Some(Box::new(task))
        };
        let change = change(event, seen, uid_of)?;
        Some(TaskWatchEvent::Task(scope.clone(), change))
    })
    .await;
}

fn uid_of(object: &SlimObject) -> Option<TaskUid> {
    object.meta().uid.as_deref().map(TaskUid::new)
}
