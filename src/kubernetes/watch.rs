//! Watches that never end and break alone: each is its own task and tells what it sees through one bounded channel.
//!
//! Jobs are watched by metadata only. Of pods only those that ended are shown, and only their last word is kept. Task
//! objects come without managed fields, one at a time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ObjectMeta};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt, watcher as open};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::api::labels::{self, TASK_UID, own_objects};
use crate::api::names::{HubId, TaskKind, TaskUid, is_name_of};
use crate::base::metrics::{KindLabel, Metrics};
use crate::kubernetes::notes::Notes;
use crate::kubernetes::object::SlimObject;
use crate::plan::remote::site::{Site, SiteState};
use crate::plan::task::model::Task;
use crate::plan::task::outcome;
use crate::plan::task::outcome::EndHint;

mod broken;
mod tasks;
mod tenants;

use broken::{Watched, is_forbidden, is_usable};
pub use tasks::tasks;
pub use tenants::{Grant, GrantChange, grants, registries, tenants};

/// Objects in a page of what tenants make, where a server cannot stream its lists. An object is 1.5 MiB at the most, so a page
/// is 12 MiB, and takes three times that while it is read; a page of 500, which is usual, could be 750 MiB.
const TENANT_PAGE: u32 = 8;

/// Pause before a watch is opened anew, so that a server that refuses each start is not asked in a loop.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// One thing a watch saw, or a turn of the watch itself.
#[derive(Debug)]
pub enum Change<T> {
    /// Everything that exists follows, then [`Change::Synced`].
    Restart,
    /// An object is there, new or changed.
    Seen(T),
    /// What was not seen since [`Change::Restart`] is gone.
    Synced,
    /// An object is gone.
    Gone(TaskUid),
}

/// A Job by its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMark {
    /// The task it serves, by its label.
    pub task: TaskUid,
    /// Name of the Job.
    pub name: String,
    /// UID of the Job.
    pub uid: String,
    /// Hash of the spec it was made from.
    pub spec_hash: String,
    /// Where its chart goes.
    pub chart_url: Option<String>,
    /// What its metadata say of its end.
    pub hint: EndHint,
}

/// What one watch of tasks covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Which of the two kinds.
    pub kind: TaskKind,
    /// The one namespace, or all.
    pub namespace: Option<Arc<str>>,
}

impl Scope {
    /// The scopes of a hub: the listed namespaces, or with an empty list every namespace and the platform's own tasks.
    #[must_use]
    pub fn of(namespaces: &[String]) -> Vec<Self> {
        if namespaces.is_empty() {
            let all = |kind| Self {
                kind,
                namespace: None,
            };
            return vec![all(TaskKind::RenderTask), all(TaskKind::ClusterRenderTask)];
        }
        let one = |name: &String| Self {
            kind: TaskKind::RenderTask,
            namespace: Some(name.as_str().into()),
        };
        namespaces.iter().map(one).collect()
    }

    /// Whether a task belongs to the scope.
    #[must_use]
    pub fn covers(&self, kind: TaskKind, namespace: &str) -> bool {
        self.kind == kind && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }
}

/// What the controller learns from its watches.
#[derive(Debug)]
pub enum Input {
    /// Tasks of one scope.
    Task(Scope, Change<Box<Task>>),
    /// Jobs with the hub's mark, in the rendering namespace or at a site.
    Job(Option<Arc<Site>>, Change<JobMark>),
    /// A site is connected, or not any more.
    Site(Arc<Site>, SiteState),
    /// Every pod that ended was noted.
    PodsSeen,
    /// A reference that a namespace allows, or not any more.
    Grant(GrantChange),
    /// A tenant's registry changed in this namespace.
    Registry(String),
    /// The hub may not look at the tasks of this scope.
    Refused(Scope),
}

/// What the controller learns, and when it came to the hub.
#[derive(Debug)]
pub struct Arrived {
    /// When it was decoded.
    pub at: Instant,
    /// What it is.
    pub input: Input,
}

impl From<Input> for Arrived {
    /// It came now.
    fn from(input: Input) -> Self {
        let at = Instant::now();
        Self { at, input }
    }
}

/// Watches the hub's Jobs by metadata until the channel closes.
pub async fn jobs(
    client: Client,
    namespace: String,
    hub_id: HubId,
    metrics: Metrics,
    out: mpsc::Sender<Arrived>,
) {
    let api: Api<PartialObjectMeta<Job>> = Api::namespaced(client, &namespace);
    let config = Config::default().labels(&own_objects(&hub_id));
    run(api, config, metrics, "jobs", out, |event| {
        let change = change(
            event,
            |o| job_mark(&o.metadata),
            |o| job_mark(&o.metadata).map(|mark| mark.task),
        )?;
        Some(Input::Job(None, change))
    })
    .await;
}

/// Watches those of the hub's pods that ended until the channel closes, and notes their last words.
pub async fn pods(
    client: Client,
    namespace: String,
    hub_id: HubId,
    metrics: Metrics,
    notes: Notes,
    out: mpsc::Sender<Arrived>,
) {
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let ended = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";
    let config = Config::default().labels(&own_objects(&hub_id)).fields(ended);
    run(api, config, metrics, "pods", out, move |event| {
        match event {
            Event::Init => notes.clear(),
            Event::InitDone => return Some(Input::PodsSeen),
            Event::Apply(pod) | Event::InitApply(pod) => {
                let (task, note) = (pod_task(&pod.metadata)?, outcome::read_pod(&pod)?);
                notes.put(task, note);
            }
            Event::Delete(pod) => notes.remove(&task_of(&pod.metadata)?, pod.metadata.uid.as_deref()?),
        }
        None
    })
    .await;
}

/// Reads a watch and hands on what `map` makes of it.
async fn run<K>(
    api: Api<K>,
    config: Config,
    metrics: Metrics,
    name: &'static str,
    out: mpsc::Sender<Arrived>,
    map: impl Fn(Event<K>) -> Option<Input>,
) where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    forward(endless(api, config, metrics, name), out, map).await;
}

async fn forward<K>(
    events: impl Stream<Item = Event<K>>,
    out: mpsc::Sender<Arrived>,
    map: impl Fn(Event<K>) -> Option<Input>,
) {
    let mut events = Box::pin(events);
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
    endless_heard(api, config, metrics, name, |_| ())
}

/// The same, with each of its errors told to `heard`.
fn endless_heard<K>(
    api: Api<K>,
    config: Config,
    metrics: Metrics,
    name: &'static str,
    heard: impl Fn(&watcher::Error) + Clone + Send + 'static,
) -> impl Stream<Item = Event<K>>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    // False once the server said that it cannot; a watch that only became too old streams again.
    let can_stream = Arc::new(AtomicBool::new(true));
    futures::stream::unfold(Duration::ZERO, move |pause| {
        let (api, config, metrics) = (api.clone(), config.clone(), metrics.clone());
        let (can_stream, heard) = (Arc::clone(&can_stream), heard.clone());
        async move {
            tokio::time::sleep(pause).await;
            let streams = can_stream.load(Ordering::Relaxed);
            let config = if streams { config.streaming_lists() } else { config };
            let namespace = api.namespace().map(str::to_owned);
            let events = open(api, config).inspect_err(heard);
            let of = Watched { name, namespace };
            Some((until_unusable(events, metrics, of, can_stream), REOPEN_PAUSE))
        }
    })
    .flatten()
}

/// Ends where the watch must be opened anew: kube 5 repeats a start that answers 410 for ever, and a server without
/// streaming lists answers 400 or 422.
fn until_unusable<K>(
    stream: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    metrics: Metrics,
    of: Watched,
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
        of.tell(error);
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

fn change<K, T>(
    event: Event<K>,
    seen: impl Fn(K) -> Option<T>,
    gone: impl Fn(&K) -> Option<TaskUid>,
) -> Option<Change<T>> {
    match event {
        Event::Init => Some(Change::Restart),
        Event::InitDone => Some(Change::Synced),
        Event::Apply(object) | Event::InitApply(object) => seen(object).map(Change::Seen),
        Event::Delete(object) => gone(&object).map(Change::Gone),
    }
}

/// How what tenants make is watched.
fn of_tenants() -> Config {
    Config::default().page_size(TENANT_PAGE)
}

fn uid_of(object: &SlimObject) -> Option<TaskUid> {
    object.meta().uid.as_deref().map(TaskUid::new)
}

/// The task an object serves, by its label.
#[must_use]
pub fn task_of(metadata: &ObjectMeta) -> Option<TaskUid> {
    metadata
        .labels
        .as_ref()?
        .get(TASK_UID)
        .map(|uid| TaskUid::new(uid))
}

/// The task whose config Secret this is, by its label and its name.
#[must_use]
pub fn secret_task(metadata: &ObjectMeta) -> Option<TaskUid> {
    let task = task_of(metadata)?;
    is_name_of(metadata.name.as_deref()?, &task).then_some(task)
}

/// The task whose Job owns the pod: a copy of that Job has pods with the same labels.
#[must_use]
pub fn pod_task(metadata: &ObjectMeta) -> Option<TaskUid> {
    let task = task_of(metadata)?;
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|o| o.controller == Some(true) && o.kind == "Job")?;
    is_name_of(&owner.name, &task).then_some(task)
}

/// A Job by its metadata; `None` without a UID or a task whose Job has this name.
#[must_use]
pub fn job_mark(metadata: &ObjectMeta) -> Option<JobMark> {
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
    let (task, name) = (task_of(metadata)?, metadata.name.clone()?);
    if !is_name_of(&name, &task) {
        return None;
    }
    Some(JobMark {
        task,
        name,
        uid: metadata.uid.clone()?,
        spec_hash: annotation(labels::SPEC_HASH).unwrap_or_default(),
        chart_url: annotation(labels::CHART_URL),
        hint: outcome::end_hint(metadata.managed_fields.as_deref()),
    })
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::job_name;

    fn scope(kind: TaskKind, namespace: Option<&str>) -> Scope {
        Scope {
            kind,
            namespace: namespace.map(Arc::from),
        }
    }

    #[test]
    fn without_a_list_a_hub_serves_everything_with_one_only_that() {
        let (rt, crt) = (TaskKind::RenderTask, TaskKind::ClusterRenderTask);
        assert_eq!(Scope::of(&[]), [scope(rt, None), scope(crt, None)]);
        let two = Scope::of(&["team-a".to_owned(), "team-b".to_owned()]);
        assert_eq!(two, [scope(rt, Some("team-a")), scope(rt, Some("team-b"))]);
        assert!(
            !two.iter().any(|s| s.covers(crt, "")),
            "the platform's own tasks are another hub's"
        );
    }

    #[test]
    fn a_scope_covers_its_kind_and_its_namespace() {
        let (rt, crt) = (TaskKind::RenderTask, TaskKind::ClusterRenderTask);
        let table = [
            (scope(rt, None), rt, "team-a", true),
            (scope(rt, None), crt, "", false),
            (scope(crt, None), crt, "", true),
            (scope(rt, Some("team-a")), rt, "team-a", true),
            (scope(rt, Some("team-a")), rt, "team-a2", false),
            (scope(rt, Some("team-a")), crt, "team-a", false),
        ];
        for (scope, kind, namespace, covers) in table {
            assert_eq!(
                scope.covers(kind, namespace),
                covers,
                "{scope:?} {kind:?} {namespace}"
            );
        }
    }

    fn metadata(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_job_is_known_by_its_label_and_never_by_its_name_alone() {
        let name = job_name("shop", &TaskUid::new("t1"));
        let full = json!({
            "name": name, "uid": "j1", "labels": {"renderhub.dev/task-uid": "t1"},
            "annotations": {"renderhub.dev/spec-hash": "abc", "renderhub.dev/task-name": "shop",
                "renderhub.dev/chart-url": "oci://r/x:1"},
            "managedFields": [{"manager": "hub", "fieldsV1": {"f:spec": {}}}],
        });
        let mark = job_mark(&metadata(full.clone())).unwrap();
        assert_eq!(
            (mark.task.as_str(), mark.uid.as_str(), mark.spec_hash.as_str()),
            ("t1", "j1", "abc")
        );
        assert_eq!(
            (mark.hint, mark.chart_url.as_deref()),
            (EndHint::No, Some("oci://r/x:1"))
        );
        for field in ["name", "uid", "labels"] {
            let mut part = full.clone();
            part.as_object_mut().unwrap().remove(field);
            assert_eq!(job_mark(&metadata(part)), None, "{field}");
        }
        let mut copy = full.clone();
        copy["name"] = json!("debug-copy");
        assert_eq!(
            job_mark(&metadata(copy)),
            None,
            "a copy under another name is not ours"
        );
        let mut bare = full;
        bare.as_object_mut().unwrap().remove("managedFields");
        let hint = job_mark(&metadata(bare)).unwrap().hint;
        assert_eq!(hint, EndHint::Now, "whatever is hidden is asked for");
    }

    fn object(labels: &Value) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": "x", "labels": labels}})).unwrap()
    }

    #[test]
    fn every_event_is_told_and_objects_that_are_not_ours_are_not() {
        let tell = |event: Event<ConfigMap>| {
            let task = |o: &ConfigMap| task_of(&o.metadata);
            change(event, |o| task(&o), task).map(|change| format!("{change:?}"))
        };
        let (ours, foreign) = (json!({"renderhub.dev/task-uid": "t1"}), json!({"app": "x"}));
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(tell(Event::Init), is("Restart"));
        assert_eq!(tell(Event::InitDone), is("Synced"));
        assert_eq!(tell(Event::InitApply(object(&ours))), is("Seen(TaskUid(\"t1\"))"));
        assert_eq!(tell(Event::Apply(object(&ours))), is("Seen(TaskUid(\"t1\"))"));
        assert_eq!(tell(Event::Delete(object(&ours))), is("Gone(TaskUid(\"t1\"))"));
        for event in [Event::InitApply, Event::Apply, Event::Delete] {
            assert_eq!(tell(event(object(&foreign))), None);
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
        // In the middle of a watch, kube lists anew by itself.
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
        let of = Watched {
            name: "test",
            namespace: None,
        };
        let told: Vec<_> = until_unusable(events, metrics.clone(), of, Arc::default())
            .collect()
            .await;
        assert!(matches!(told[..], [Event::Init, Event::InitDone]), "{told:?}");
        let broken = metrics
            .watch_errors
            .get_or_create(&KindLabel { kind: "test" })
            .get();
        assert_eq!(broken, 2);
    }
}
