//! All watches of the pipeline.

use std::sync::Arc;

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use kube::Client;
use kube::runtime::watcher::Event;

use crate::api::ReferenceGrant;
use crate::base::metrics::Metrics;
use crate::kubernetes::object::LabelledObject;
use crate::kubernetes::watch::{PipelineTaskChange, PipelineTaskEvent, PipelineWatch, pipeline_objects};
use crate::plan::pipeline::references::{CATALOG_KINDS, ReferenceRules};

use super::kinds::{KINDS, PipelineKindOperations};
use super::store::{GRANTS, TASKS, WatchScope};

/// What a watch shows.
pub(super) enum PipelineWatchEvent {
    Object(&'static PipelineKindOperations, WatchScope, Event<LabelledObject>),
    Grant(WatchScope, Event<LabelledObject>),
    Task(WatchScope, PipelineTaskChange),
    /// The API server does not let the hub read what the watch covers.
    Refused(WatchScope),
}

impl From<PipelineTaskEvent> for PipelineWatchEvent {
    fn from(event: PipelineTaskEvent) -> Self {
        let scope = |namespace| WatchScope {
            plural: TASKS,
            namespace,
        };
        match event {
            PipelineTaskEvent::Change(namespace, change) => Self::Task(scope(namespace), *change),
            PipelineTaskEvent::Refused(namespace) => Self::Refused(scope(namespace)),
        }
    }
}

/// The event of a watch, or that it was refused.
fn or_refused(
    scope: WatchScope,
    event: impl Fn(WatchScope, Event<LabelledObject>) -> PipelineWatchEvent + Send + 'static,
) -> impl FnMut(PipelineWatch) -> PipelineWatchEvent + Send + 'static {
    move |shown| match shown {
        PipelineWatch::Event(shown) => event(scope.clone(), shown),
        PipelineWatch::Refused => PipelineWatchEvent::Refused(scope.clone()),
    }
}

/// A namespace that is watched, or all of them, and whether only its catalog is.
type WatchedNamespace = (Option<Arc<str>>, bool);

/// The namespaces that a hub with these rules watches.
fn namespaces(rules: &ReferenceRules) -> Vec<WatchedNamespace> {
    let named = |is_catalog| move |name: &String| (Some(Arc::from(name.as_str())), is_catalog);
    if rules.served.is_empty() {
        return vec![(None, false)];
    }
    let served = rules.served.iter().map(named(false));
    served.chain(rules.only_catalogs().map(named(true))).collect()
}

/// What the watches of tasks cover, which show the pipeline its own.
fn task_scopes(rules: &ReferenceRules) -> impl Iterator<Item = WatchScope> {
    let served = namespaces(rules)
        .into_iter()
        .filter(|(_, is_catalog)| !is_catalog);
    served.map(|(namespace, _)| WatchScope {
        plural: TASKS,
        namespace,
    })
}

/// Watches every kind in the namespaces that are served and the kinds of a catalog in those of catalogs; grants only where
/// references may cross namespaces. The scopes are those of tasks too, whose events come from the watches of all tasks.
pub(super) fn watch_all(
    client: &Client,
    rules: &ReferenceRules,
    metrics: &Metrics,
) -> (Vec<WatchScope>, SelectAll<BoxStream<'static, PipelineWatchEvent>>) {
    let (mut scopes, mut all): (Vec<_>, _) = (task_scopes(rules).collect(), Vec::new());
    for (namespace, is_catalog) in &namespaces(rules) {
        let mut add = |plural, watch: &dyn Fn(WatchScope) -> BoxStream<'static, PipelineWatchEvent>| {
            let scope = WatchScope {
                plural,
                namespace: namespace.clone(),
            };
            scopes.push(scope.clone());
            all.push(watch(scope));
        };
        let own = namespace.as_deref();
        let is_watched = |plural| !is_catalog || CATALOG_KINDS.contains(&plural);
        for kind in KINDS.iter().filter(|kind| is_watched(kind.plural)) {
            add(kind.plural, &|scope| {
                let events = (kind.watch)(client, own, metrics);
                let event = |scope, event| PipelineWatchEvent::Object(kind, scope, event);
                events.map(or_refused(scope, event)).boxed()
            });
        }
        if rules.crosses_namespaces {
            add(GRANTS, &|scope| {
                let events = pipeline_objects::<ReferenceGrant>(client, own, metrics, GRANTS);
                events.map(or_refused(scope, PipelineWatchEvent::Grant)).boxed()
            });
        }
    }
    (scopes, stream::select_all(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::tests::client_to_nowhere;

    /// What is watched with these rules, as `NAMESPACE/KIND`.
    fn watched(rules: &ReferenceRules) -> Vec<String> {
        let (scopes, _) = watch_all(&client_to_nowhere(), rules, &Metrics::new().0);
        let mut all: Vec<_> = scopes
            .into_iter()
            .map(|scope| format!("{}/{}", scope.namespace.as_deref().unwrap_or("*"), scope.plural))
            .collect();
        all.sort();
        all
    }

    #[tokio::test]
    async fn of_a_catalog_only_what_others_may_use_is_watched() {
        let rules = ReferenceRules {
            crosses_namespaces: true,
            served: vec!["a".to_owned()],
            catalogs: vec!["a".to_owned(), "c".to_owned()],
            ..ReferenceRules::default()
        };
        let all = watched(&rules);
        let of_catalog: Vec<_> = all.iter().filter(|scope| scope.starts_with("c/")).collect();
        assert_eq!(
            of_catalog,
            [
                "c/componentversions",
                "c/profiles",
                "c/referencegrants",
                "c/releases"
            ]
        );
        assert_eq!(all.len(), of_catalog.len() + KINDS.len() + 2, "{all:?}");
    }

    #[tokio::test]
    async fn without_a_list_everything_is_watched_once_and_grants_only_where_they_count() {
        let all = watched(&ReferenceRules::default());
        assert_eq!(all.len(), KINDS.len() + 1, "{all:?}");
        assert!(all.iter().all(|scope| scope.starts_with("*/")), "{all:?}");
        assert!(!all.contains(&"*/referencegrants".to_owned()));
    }
}
