//! The watch of tasks.

use std::time::Instant;

use futures::StreamExt as _;
use kube::api::Api;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Client, Resource as _};
use tokio::sync::mpsc;

use crate::api::names::TaskUid;
use crate::base::metrics::Metrics;
use crate::kubernetes::object::{SlimObject, task_resource};
use crate::plan::task::model::{Task, TaskId};

use super::decoded_specs::DecodedSpecs;
use super::endless::{api_in, change, endless_with};
use super::errors::is_forbidden;
use super::event::{ReceivedEvent, ShownTask, TaskWatchEvent, WatchChange};
use super::pipeline_tasks::{PipelineTaskSender, PipelineTasks};
use super::scope::TaskWatchScope;
use super::tenant_objects::of_tenants;

/// Watches the tasks of a scope until the channel closes, and shows the pipeline its own.
pub async fn tasks(
    client: Client,
    scope: TaskWatchScope,
    metrics: Metrics,
    out: mpsc::Sender<ReceivedEvent>,
    pipeline: Option<PipelineTaskSender>,
) {
    let resource = task_resource(scope.kind);
    let api: Api<SlimObject> = api_in(&client, scope.namespace.as_deref(), &resource);
    let mut pipeline = pipeline.and_then(|sender| PipelineTasks::among(&scope, sender));
    let (reported, refused) = (out.clone(), scope.clone());
    let refusals = pipeline.as_ref().map(PipelineTasks::refusals);
    let received = move |error: &watcher::Error| {
        // If the channel is full, the next error sends it again.
        if is_forbidden(error) {
            _ = reported.try_send(TaskWatchEvent::Refused(refused.clone()).into());
            if let Some(report) = &refusals {
                report();
            }
        }
    };
    let events = endless_with(api, of_tenants(), metrics, scope.kind.plural(), received);
    let (mut events, mut specs) = (Box::pin(events), DecodedSpecs::default());
    while let Some(event) = events.next().await {
        let Some(change) = shown(&scope, event, &mut specs) else {
            continue;
        };
        let at = Instant::now();
        if let Some(pipeline) = &mut pipeline {
            pipeline.show(&change).await;
        }
        let input = TaskWatchEvent::Task(scope.clone(), to_controller(change));
        if out.send(ReceivedEvent { at, input }).await.is_err() {
            return;
        }
    }
}

/// What an event shows.
fn shown(
    scope: &TaskWatchScope,
    event: Event<SlimObject>,
    specs: &mut DecodedSpecs,
) -> Option<WatchChange<ShownTask, TaskId>> {
    if let Event::Delete(object) = &event {
        specs.forget(object);
    }
    let seen = |object: SlimObject| {
        let (known, has_pipeline_label) = (specs.get(&object), object.has_pipeline_label());
        let task = Box::new(object.into_task(scope.kind, known)?);
        specs.put(&task);
        Some(ShownTask {
            task,
            has_pipeline_label,
        })
    };
    change(event, seen, |object| id_of(scope, object))
}

fn id_of(scope: &TaskWatchScope, object: &SlimObject) -> Option<TaskId> {
    let meta = object.meta();
    Some(TaskId {
        kind: scope.kind,
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone()?,
        uid: meta.uid.as_deref().map(TaskUid::new)?,
    })
}

/// What the controller of tasks is told.
fn to_controller(change: WatchChange<ShownTask, TaskId>) -> WatchChange<Box<Task>> {
    match change {
        WatchChange::Restart => WatchChange::Restart,
        WatchChange::Seen(shown) => WatchChange::Seen(shown.task),
        WatchChange::Synced => WatchChange::Synced,
        WatchChange::Gone(id) => WatchChange::Gone(id.uid),
    }
}
