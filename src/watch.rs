//! Watches that never end and break alone: each is its own task and tells what it sees through one bounded channel.
//!
//! Jobs are watched by metadata only. Of pods only those that ended are shown, and only their last word is kept. Task
//! objects come without managed fields, one at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Config, Event};
use kube::runtime::{WatchStreamExt, watcher as open};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::api::labels::{self, TASK_UID, own_objects};
use crate::metrics::{KindLabel, Metrics};
use crate::names::{HubId, TaskKind, TaskUid, is_name_of};
use crate::notes::Notes;
use crate::object::{TaskObject, task_resource};
use crate::plan::outcome::{self, EndHint};
use crate::plan::task::Task;

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
    /// When the API server made it.
    pub created: Timestamp,
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
    /// Jobs with the hub's mark.
    Job(Change<JobMark>),
    /// Every pod that ended was noted.
    PodsSeen,
}

/// Watches the tasks of a scope until the channel closes.
pub async fn tasks(client: Client, scope: Scope, metrics: Metrics, out: mpsc::Sender<Input>) {
    let resource = task_resource(scope.kind);
    let api: Api<TaskObject> = match &scope.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let kind = scope.kind;
    let name = match kind {
        TaskKind::RenderTask => "rendertasks",
        TaskKind::ClusterRenderTask => "clusterrendertasks",
    };
    run(api, Config::default(), metrics, name, out, move |event| {
        let change = change(event, |o: TaskObject| o.into_task(kind).map(Box::new), uid_of)?;
        Some(Input::Task(scope.clone(), change))
    })
    .await;
}

/// Watches the hub's Jobs by metadata until the channel closes.
pub async fn jobs(
    client: Client,
    namespace: String,
    hub_id: HubId,
    metrics: Metrics,
    out: mpsc::Sender<Input>,
) {
    let api: Api<PartialObjectMeta<Job>> = Api::namespaced(client, &namespace);
    let config = Config::default().labels(&own_objects(&hub_id));
    run(api, config, metrics, "jobs", out, |event| {
        Some(Input::Job(change(
            event,
            |o| job_mark(&o.metadata),
            |o| job_mark(&o.metadata).map(|mark| mark.task),
        )?))
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
    out: mpsc::Sender<Input>,
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
    out: mpsc::Sender<Input>,
    map: impl Fn(Event<K>) -> Option<Input>,
) where
    K: Resource + Clone + DeserializeOwned + fmt::Debug + Send + 'static,
{
    let mut stream = std::pin::pin!(endless(api, config, metrics, name));
    while let Some(event) = stream.next().await {
        if let Some(input) = map(event)
            && out.send(input).await.is_err()
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
    futures::stream::unfold(true, move |streaming| {
        let config = if streaming {
            config.clone().streaming_lists()
        } else {
            config.clone()
        };
        let (api, metrics) = (api.clone(), metrics.clone());
        async move {
            if !streaming {
                tokio::time::sleep(REOPEN_PAUSE).await;
            }
            let stream = until_unusable(open(api, config), metrics, name, streaming);
            Some((stream, false))
        }
    })
    .flatten()
}

/// Ends where the watch must be opened anew: kube 5 repeats a start that answers 410 for ever, and a server without
/// streaming lists answers 400 or 422.
fn until_unusable<K>(
    stream: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    metrics: Metrics,
    name: &'static str,
    streaming: bool,
) -> impl Stream<Item = Event<K>>
where
    K: Send,
{
    let counted = stream.inspect_err(move |error| {
        metrics
            .watch_errors
            .get_or_create(&KindLabel { kind: name })
            .inc();
        tracing::warn!(
            watch = name,
            kind = kind_of(error),
            "watch broke; it is opened again"
        );
    });
    counted
        .take_while(move |event| {
            let unusable = event.as_ref().err().is_some_and(|e| is_unusable(e, streaming));
            futures::future::ready(!unusable)
        })
        .default_backoff()
        .filter_map(|event| futures::future::ready(event.ok()))
}

fn is_unusable(error: &watcher::Error, streaming: bool) -> bool {
    let (watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::InitialListFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 410 || (streaming && matches!(status.code, 400 | 422))
}

const fn kind_of(error: &watcher::Error) -> &'static str {
    match error {
        watcher::Error::InitialListFailed(_) => "InitialListFailed",
        watcher::Error::WatchStartFailed(_) => "WatchStartFailed",
        watcher::Error::WatchError(_) => "WatchError",
        watcher::Error::WatchFailed(_) => "WatchFailed",
        watcher::Error::NoResourceVersion => "NoResourceVersion",
    }
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

fn uid_of(object: &TaskObject) -> Option<TaskUid> {
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
    let annotations = metadata.annotations.as_ref();
    let (task, name) = (task_of(metadata)?, metadata.name.clone()?);
    if !is_name_of(&name, &task) {
        return None;
    }
    Some(JobMark {
        task,
        name,
        uid: metadata.uid.clone()?,
        spec_hash: annotations
            .and_then(|a| a.get(labels::SPEC_HASH))
            .cloned()
            .unwrap_or_default(),
        created: metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        hint: outcome::end_hint(metadata.managed_fields.as_deref()),
    })
}
