//! All watches of the pipeline.

use std::sync::Arc;

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use kube::Client;
use kube::runtime::watcher::Event;

use crate::api::ReferenceGrant;
use crate::base::metrics::Metrics;
use crate::kubernetes::object::{LabelledObject, SlimObject};
use crate::kubernetes::watch::{pipeline_objects, pipeline_tasks};

use super::operations::{KINDS, PipelineKindOperations};
use super::store::{GRANTS, TASKS, WatchScope};

/// What a watch shows.
pub(super) enum PipelineWatchEvent {
    Object(&'static PipelineKindOperations, WatchScope, Event<LabelledObject>),
    Grant(WatchScope, Event<LabelledObject>),
    Task(WatchScope, Event<SlimObject>),
}

/// Watches every kind in these namespaces, or with none in all; grants only where references may cross namespaces.
pub(super) fn watch_all(
    client: &Client,
    namespaces: &[String],
    crosses_namespaces: bool,
    metrics: &Metrics,
) -> (Vec<WatchScope>, SelectAll<BoxStream<'static, PipelineWatchEvent>>) {
    let named = namespaces.iter().map(|name| Some(Arc::from(name.as_str())));
    let mut namespaces: Vec<Option<Arc<str>>> = named.collect();
    if namespaces.is_empty() {
        namespaces.push(None);
    }
    let (mut scopes, mut all) = (Vec::new(), Vec::new());
    for namespace in &namespaces {
        let mut add = |plural, watch: &dyn Fn(WatchScope) -> BoxStream<'static, PipelineWatchEvent>| {
            let scope = WatchScope {
                plural,
                namespace: namespace.clone(),
            };
            scopes.push(scope.clone());
            all.push(watch(scope));
        };
        let own = namespace.as_deref();
        for kind in KINDS {
            add(kind.plural, &|scope| {
                let events = (kind.watch)(client, own, metrics);
                let event = move |event| PipelineWatchEvent::Object(kind, scope.clone(), event);
                events.map(event).boxed()
            });
        }
        add(TASKS, &|scope| {
            let events = pipeline_tasks(client, own, metrics);
            let event = move |event| PipelineWatchEvent::Task(scope.clone(), event);
            events.map(event).boxed()
        });
        if crosses_namespaces {
            add(GRANTS, &|scope| {
                let events = pipeline_objects::<ReferenceGrant>(client, own, metrics, GRANTS);
                let event = move |event| PipelineWatchEvent::Grant(scope.clone(), event);
                events.map(event).boxed()
            });
        }
    }
    (scopes, stream::select_all(all))
}
