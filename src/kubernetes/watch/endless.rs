//! A watch that is reopened whenever it breaks, and its events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::DynamicResourceScope;
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt, watcher as open};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::base::metrics::{KindLabel, Metrics};

use super::errors::{WatchName, is_usable};
use super::event::{ReceivedEvent, TaskWatchEvent, WatchChange};

/// Pause before a watch is reopened, so that a server that refuses each start is not asked in a loop.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// Objects of a kind, in one namespace or in all.
pub(super) fn api_in<K>(client: &Client, namespace: Option<&str>, resource: &ApiResource) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Reads a watch and hands on what `map` makes of it.
pub(super) async fn run<K>(
    api: Api<K>,
    config: Config,
    metrics: Metrics,
    name: &'static str,
    out: mpsc::Sender<ReceivedEvent>,
    map: impl Fn(Event<K>) -> Option<TaskWatchEvent>,
) where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    let mut events = Box::pin(endless(api, config, metrics, name));
    while let Some(event) = events.next().await {
        if let Some(input) = map(event)
            && out.send(input.into()).await.is_err()
        {
            return;
        }
    }
}

/// A watch that streams its initial list where the server can, counts its errors and backs off on them.
pub fn endless<K>(
    api: Api<K>,
    config: Config,
    metrics: Metrics,
    name: &'static str,
) -> impl Stream<Item = Event<K>>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    endless_with(api, config, metrics, name, |_| ())
}

/// The same, with each of its errors passed to `received`.
pub(super) fn endless_with<K>(
    api: Api<K>,
    config: Config,
    metrics: Metrics,
    name: &'static str,
    received: impl Fn(&watcher::Error) + Clone + Send + 'static,
) -> impl Stream<Item = Event<K>>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    // False once the server refused to stream; a watch that only became too old streams again.
    let can_stream = Arc::new(AtomicBool::new(true));
    futures::stream::unfold(Duration::ZERO, move |pause| {
        let (api, config, metrics) = (api.clone(), config.clone(), metrics.clone());
        let (can_stream, received) = (Arc::clone(&can_stream), received.clone());
        async move {
            tokio::time::sleep(pause).await;
            let streams = can_stream.load(Ordering::Relaxed);
            let config = if streams { config.streaming_lists() } else { config };
            let namespace = api.namespace().map(str::to_owned);
            let events = open(api, config).inspect_err(received);
            let of = WatchName { name, namespace };
            Some((until_unusable(events, metrics, of, can_stream), REOPEN_PAUSE))
        }
    })
    .flatten()
}

/// Ends where the watch must be reopened: kube 5 repeats a start that answers 410 for ever, and a server without streaming lists
/// answers 400 or 422.
fn until_unusable<K>(
    stream: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    metrics: Metrics,
    of: WatchName,
    can_stream: Arc<AtomicBool>,
) -> impl Stream<Item = Event<K>>
where
    K: Send,
{
    let counted = stream.inspect_err(move |error| {
        metrics
            .watch_errors
            .get_or_create(&KindLabel { kind: of.name })
            .inc();
        of.log(error);
    });
    counted
        .take_while(move |event| {
            futures::future::ready(
                event
                    .as_ref()
                    .err()
                    .is_none_or(|error| is_usable(error, &can_stream)),
            )
        })
        .default_backoff()
        .filter_map(|event| futures::future::ready(event.ok()))
}

pub(super) fn change<K, T, G>(
    event: Event<K>,
    mut seen: impl FnMut(K) -> Option<T>,
    gone: impl Fn(&K) -> Option<G>,
) -> Option<WatchChange<T, G>> {
    match event {
        Event::Init => Some(WatchChange::Restart),
        Event::InitDone => Some(WatchChange::Synced),
        Event::Apply(object) | Event::InitApply(object) => seen(object).map(WatchChange::Seen),
        Event::Delete(object) => gone(&object).map(WatchChange::Gone),
    }
}

/// Watches a kind without its Rust type, because one object that the type cannot decode would stop the watch of all others.
#[must_use]
pub fn dynamic<K: Resource<DynamicType = ()>>(
    client: &Client,
    metrics: &Metrics,
    name: &'static str,
) -> BoxStream<'static, Event<DynamicObject>> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    endless(api, Config::default(), metrics.clone(), name).boxed()
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::super::job_metadata::task_of;
    use super::*;

    fn object(labels: &Value) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": "x", "labels": labels}})).unwrap()
    }

    #[test]
    fn every_event_is_sent_on_and_foreign_objects_are_not() {
        let shown = |event: Event<ConfigMap>| {
            let task = |o: &ConfigMap| task_of(&o.metadata);
            change(event, |o| task(&o), task).map(|change| format!("{change:?}"))
        };
        let (own, foreign) = (json!({"renderhub.dev/task-uid": "t1"}), json!({"app": "x"}));
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(shown(Event::Init), is("Restart"));
        assert_eq!(shown(Event::InitDone), is("Synced"));
        assert_eq!(shown(Event::InitApply(object(&own))), is("Seen(TaskUid(\"t1\"))"));
        assert_eq!(shown(Event::Apply(object(&own))), is("Seen(TaskUid(\"t1\"))"));
        assert_eq!(shown(Event::Delete(object(&own))), is("Gone(TaskUid(\"t1\"))"));
        for event in [Event::InitApply, Event::Apply, Event::Delete] {
            assert_eq!(shown(event(object(&foreign))), None);
        }
    }

    fn answer(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            code,
            ..Status::default()
        }))
    }

    #[test]
    fn a_start_that_cannot_succeed_is_given_up_and_anything_else_is_repeated() {
        // Code, whether it streamed, whether the start is repeated, whether the next one streams.
        let table = [
            (410, true, false, true),
            (410, false, false, false),
            (400, true, false, false),
            (422, true, false, false),
            (400, false, true, false),
            (403, true, true, true),
            (429, true, true, true),
            (500, true, true, true),
        ];
        for (code, streams, usable, streams_next) in table {
            for error in [
                watcher::Error::WatchStartFailed(answer(code)),
                watcher::Error::InitialListFailed(answer(code)),
            ] {
                let can_stream = AtomicBool::new(streams);
                assert_eq!(
                    is_usable(&error, &can_stream),
                    usable,
                    "{code} {streams} {error:?}"
                );
                assert_eq!(can_stream.into_inner(), streams_next, "{code} {streams}");
            }
        }
        // In the middle of a watch, kube lists again by itself.
        let can_stream = AtomicBool::new(true);
        assert!(is_usable(&watcher::Error::WatchFailed(answer(410)), &can_stream));
        assert!(is_usable(&watcher::Error::NoResourceVersion, &can_stream));
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_watch_is_counted_and_a_hopeless_one_ends() {
        let (metrics, _) = Metrics::new();
        let events = stream::iter([
            Ok(Event::Init),
            Err(watcher::Error::WatchStartFailed(answer(500))),
            Ok(Event::InitDone),
            Err(watcher::Error::WatchStartFailed(answer(410))),
            Ok(Event::Apply(object(&json!({})))),
        ]);
        let of = WatchName {
            name: "test",
            namespace: None,
        };
        let reported: Vec<_> = until_unusable(events, metrics.clone(), of, Arc::default())
            .collect()
            .await;
        assert!(
            matches!(reported[..], [Event::Init, Event::InitDone]),
            "{reported:?}"
        );
        let broken = metrics
            .watch_errors
            .get_or_create(&KindLabel { kind: "test" })
            .get();
        assert_eq!(broken, 2);
    }
}
