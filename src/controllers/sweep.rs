//! Removes the objects of deleted tasks that hubs of this cluster made, each only after the API server confirmed that the task is
//! gone.

pub mod adoption;
pub mod paged_sweep;
pub mod unused_copies;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::api::labels::{TASK_KIND, TASK_NAME, TASK_NAMESPACE};
use crate::api::names::{HubId, TaskUid};
use crate::base::metrics::Metrics;
use crate::controllers::stopping::unless_stopped;
use crate::kubernetes::apply::{CallError, HubClient, ListKind, ListedObject, TaskObjectClient};
use crate::kubernetes::watch::{JobMetadata, TaskWatchScope, task_of};
use crate::plan::remote::ledger::OrphanRecord;
use crate::plan::task::adoption::{ObjectCreator, maker};
use crate::plan::task::model::TaskId;
use crate::plan::task::orphans::LabeledObject;

/// Longest that a sweep removes things; what it did not come to is found by the next one again.
const REMOVE: Duration = Duration::from_secs(240);
/// Objects of one sweep that the log names, each by a name that is of our own form; all are counted.
const NAMED: usize = 20;

/// What is in the rendering namespace that the watch does not show.
#[derive(Debug, Default)]
pub struct UnwatchedObjects {
    /// Config Secrets of this hub and of others.
    pub secrets: Vec<ObjectMeta>,
    /// Jobs of other hubs.
    pub others_jobs: Vec<ListedObject>,
    /// Copies of pull Secrets.
    pub pull_copies: Vec<ListedObject>,
}

/// Lists the objects in the rendering namespace.
///
/// # Errors
/// They cannot be listed.
pub async fn list(calls: &HubClient) -> Result<UnwatchedObjects, CallError> {
    let others_jobs = calls.list_all(ListKind::OthersJobs).await?;
    let secrets = calls.list_all(ListKind::Secrets).await?;
    let pull_copies = calls.list_all(ListKind::PullCopies).await?;
    Ok(UnwatchedObjects {
        secrets: secrets.into_iter().map(|found| found.meta).collect(),
        others_jobs,
        pull_copies,
    })
}

/// A config Secret that is of no task the hub knows: of what its labels and annotations say, only what is a name.
#[derive(Debug)]
pub struct OrphanSecret {
    name: String,
    uid: String,
    maker: ObjectCreator,
    owner: OwnerTask,
}

/// A Job that is of no task the hub knows.
#[derive(Debug)]
pub struct OrphanJob {
    /// Its name, which is of our own form.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// The task that an object names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerTask {
    /// None at all.
    Nothing,
    /// A value that is no name of a task, so the hub cannot know the task.
    Illegible,
    /// This one.
    Task(TaskId),
}

impl OrphanSecret {
    /// The Secret by its metadata; `None` where no hub of this cluster made it.
    pub fn of(hub_id: &HubId, meta: &ObjectMeta) -> Option<Self> {
        let maker = maker(hub_id, meta);
        (maker != ObjectCreator::Foreign).then_some(Self {
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            maker,
            owner: owned_by(meta),
        })
    }
}

impl From<JobMetadata> for OrphanJob {
    fn from(mark: JobMetadata) -> Self {
        Self {
            name: mark.name,
            uid: mark.uid,
        }
    }
}

/// What a sweep found to belong to no task the hub knows.
#[derive(Debug)]
pub struct SweepCandidates {
    /// Config Secrets.
    pub secrets: Vec<OrphanSecret>,
    /// Jobs.
    pub jobs: Vec<OrphanJob>,
    /// What deleted tasks left on a cluster that was not reached.
    pub remote_orphans: Vec<OrphanRecord>,
    /// What the hub serves: of other tasks it cannot say that they are gone.
    pub scopes: Arc<[TaskWatchScope]>,
}

impl SweepCandidates {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.jobs.is_empty() && self.remote_orphans.is_empty()
    }
}

/// The facts of a Secret on which `plan::task::orphans` decides.
pub fn marked(meta: &ObjectMeta, now: Timestamp) -> LabeledObject {
    let created = meta
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    LabeledObject {
        task: task_of(meta),
        age: Duration::try_from(now.duration_since(created)).unwrap_or_default(),
    }
}

/// Removes what was found, until the hub stops; what is left the next sweep finds. The tasks of which all that was left is gone.
pub async fn remove_orphans(
    calls: &HubClient,
    objects: &TaskObjectClient,
    metrics: &Metrics,
    sweep: SweepCandidates,
    stop: &CancellationToken,
) -> Vec<TaskUid> {
    let confirm = TaskGoneCheck {
        calls,
        hub_id: objects.hub_id(),
        scopes: &sweep.scopes,
    };
    let mut settled = Vec::new();
    let mut tally = SweepTally::new(metrics);
    let until = Instant::now() + REMOVE;
    for orphan in unless_stopped(sweep.remote_orphans, stop) {
        let removed = in_time(until, remove_left(objects, &orphan)).await;
        if removed.is_ok() {
            settled.push(orphan.task);
        }
        tally.take("Job", &orphan.name, removed);
    }
    for job in unless_stopped(sweep.jobs, stop) {
        let removed = in_time(until, remove_job(objects, &confirm, &job)).await;
        tally.take("Job", &job.name, removed);
    }
    for secret in unless_stopped(sweep.secrets, stop) {
        let removed = in_time(until, remove_secret(objects, &confirm, &secret)).await;
        tally.take("Secret", &secret.name, removed);
    }
    tally.log();
    settled
}

/// Removes what was given up on a cluster while it was not reached: Jobs of tasks that ended without them or are deleted, then what deleted
/// tasks left, until the deadline or the end of the hub. The tasks of which all that was left is gone.
pub async fn remove_given_up(
    objects: &TaskObjectClient,
    metrics: &Metrics,
    jobs: Vec<OrphanJob>,
    orphans: Vec<OrphanRecord>,
    until: Instant,
    stop: &CancellationToken,
) -> Vec<TaskUid> {
    for job in unless_stopped(jobs, stop) {
        match in_time(until, objects.delete_job(&job.name, &job.uid)).await {
            Ok(()) => tracing::info!(
                job = job.name,
                "removed a Job that was given up, because its cluster is back"
            ),
            Err(error) => {
                let (kind, stage) = (error.kind(), error.stage());
                tracing::warn!(
                    job = job.name,
                    kind,
                    stage,
                    "a Job that was given up could not be removed; it is tried again"
                );
            }
        }
    }
    let mut settled = Vec::new();
    let mut tally = SweepTally::new(metrics);
    for orphan in unless_stopped(orphans, stop) {
        let removed = in_time(until, remove_left(objects, &orphan)).await;
        if removed.is_ok() {
            settled.push(orphan.task);
        }
        tally.take("Job", &orphan.name, removed);
    }
    tally.log();
    settled
}

/// The result of a removal until the deadline. After it no removal starts, because its request would not be waited for.
async fn in_time<T>(
    until: Instant,
    removal: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    if Instant::now() >= until {
        return Err(CallError::Timeout);
    }
    timeout_at(until, removal)
        .await
        .unwrap_or(Err(CallError::Timeout))
}

/// Removes what a deleted task left: the objects with the UIDs that were written down, else those of its name that carry its
/// mark.
async fn remove_left(objects: &TaskObjectClient, orphan: &OrphanRecord) -> Result<bool, CallError> {
    let is_a_hubs = |meta: &ObjectMeta| maker(objects.hub_id(), meta) != ObjectCreator::Foreign;
    let is_its = |meta: &ObjectMeta| task_of(meta).as_ref() == Some(&orphan.task) && is_a_hubs(meta);
    let job = objects.get_job_metadata(&orphan.name).await?;
    let job = job.filter(is_its).and_then(|meta| meta.uid);
    let is_known = |uid: &String, known: &Option<String>| known.as_ref().is_none_or(|known| known == uid);
    let job = job.filter(|uid| is_known(uid, &orphan.job_uid));
    if let Some(uid) = &job {
        objects.delete_job(&orphan.name, uid).await?;
    }
    let secret = objects.get_secret_metadata(&orphan.name).await?;
    let secret = secret.filter(is_its).and_then(|meta| meta.uid);
    let secret = secret.filter(|uid| is_known(uid, &orphan.secret_uid));
    if let Some(uid) = &secret {
        objects.delete_secret(&orphan.name, uid).await?;
    }
    Ok(job.is_some() || secret.is_some())
}

/// What became of the objects of a sweep.
struct SweepTally<'a> {
    metrics: &'a Metrics,
    removed: usize,
    stayed: usize,
    unnamed: usize,
}

impl<'a> SweepTally<'a> {
    const fn new(metrics: &'a Metrics) -> Self {
        Self {
            metrics,
            removed: 0,
            stayed: 0,
            unnamed: 0,
        }
    }

    fn take(&mut self, kind: &'static str, name: &str, removed: Result<bool, CallError>) {
        let is_named = self.removed + self.stayed < NAMED;
        self.unnamed += usize::from(!is_named && removed != Ok(false));
        match removed {
            Ok(true) => {
                self.removed += 1;
                self.metrics.orphans_removed.inc();
                if is_named {
                    tracing::info!(resource = kind, name, "removed an object whose task is gone");
                }
            }
            Ok(false) => {}
            Err(error) => {
                self.stayed += 1;
                if is_named {
                    let (resource, kind, stage) = (kind, error.kind(), error.stage());
                    tracing::warn!(
                        resource,
                        name,
                        kind,
                        stage,
                        "an object without a task stays for now"
                    );
                }
            }
        }
    }

    fn log(&self) {
        if self.unnamed > 0 {
            let (removed, stayed, unnamed) = (self.removed, self.stayed, self.unnamed);
            tracing::info!(
                removed,
                stayed,
                unnamed,
                "a sweep met more objects without a task than are named"
            );
        }
    }
}

async fn remove_job(
    objects: &TaskObjectClient,
    confirm: &TaskGoneCheck<'_>,
    job: &OrphanJob,
) -> Result<bool, CallError> {
    let found = objects.get_job_metadata(&job.name).await?;
    let Some(meta) = found.filter(|meta| meta.uid.as_deref() == Some(&job.uid)) else {
        return Ok(false);
    };
    if !confirm
        .is_orphan(maker(confirm.hub_id, &meta), &owned_by(&meta))
        .await?
    {
        return Ok(false);
    }
    objects.delete_job(&job.name, &job.uid).await.map(|()| true)
}

async fn remove_secret(
    objects: &TaskObjectClient,
    confirm: &TaskGoneCheck<'_>,
    secret: &OrphanSecret,
) -> Result<bool, CallError> {
    if !confirm.is_orphan(secret.maker, &secret.owner).await? {
        return Ok(false);
    }
    objects
        .delete_secret(&secret.name, &secret.uid)
        .await
        .map(|()| true)
}

/// Asks the hub's API server whether a task is gone.
struct TaskGoneCheck<'a> {
    calls: &'a HubClient,
    hub_id: &'a HubId,
    scopes: &'a [TaskWatchScope],
}

impl TaskGoneCheck<'_> {
    /// Whether the API server has no task of the name and UID that an object names. An object of this hub that names no task is
    /// an orphan; an object of another hub, or with an illegible name, is not, because a cluster can write any name.
    async fn is_orphan(&self, maker: ObjectCreator, owner: &OwnerTask) -> Result<bool, CallError> {
        match (maker, owner) {
            (ObjectCreator::Foreign, _)
            | (ObjectCreator::Kin, OwnerTask::Nothing)
            | (_, OwnerTask::Illegible) => Ok(false),
            (ObjectCreator::Own, OwnerTask::Nothing) => Ok(true),
            (ObjectCreator::Own | ObjectCreator::Kin, OwnerTask::Task(task)) => {
                Ok(is_served(self.scopes, task) && self.calls.get_task(task).await?.is_none())
            }
        }
    }
}

/// Whether a hub of these scopes serves the task.
pub fn is_served(scopes: &[TaskWatchScope], task: &TaskId) -> bool {
    scopes
        .iter()
        .any(|scope| scope.covers(task.kind, &task.namespace))
}

/// The task that an object's annotations and label name. They may be what another cluster says: nothing of them goes on that is
/// no name.
pub fn owned_by(meta: &ObjectMeta) -> OwnerTask {
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key).map(String::as_str);
    let named = (
        annotation(TASK_KIND),
        annotation(TASK_NAMESPACE),
        annotation(TASK_NAME),
    );
    let (Some(kind), Some(namespace), Some(name)) = named else {
        return OwnerTask::Nothing;
    };
    let Some(uid) = task_of(meta) else {
        return OwnerTask::Nothing;
    };
    TaskId::parse(kind, namespace, name, uid.as_str()).map_or(OwnerTask::Illegible, OwnerTask::Task)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use futures::future::BoxFuture;
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::api::labels::{HUB_ID, MANAGED_BY, MANAGED_BY_VALUE, TASK_UID};
    use crate::api::names::job_name;
    use crate::kubernetes::apply::{ApiTransport, ResponseLimit};
    use crate::kubernetes::tests::client_to_nowhere;
    use crate::plan::remote::site::{ClusterName, Site};

    /// Time that the cluster takes for an answer, which is less than a call may take.
    const PAUSE: Duration = Duration::from_secs(25);

    /// A cluster that has all that is asked for, and takes its time.
    #[derive(Debug, Default)]
    struct Slow(Mutex<Vec<(Method, String)>>);

    impl ApiTransport for Slow {
        fn send(
            &self,
            request: http::Request<Vec<u8>>,
            _: ResponseLimit,
        ) -> BoxFuture<'_, Result<Bytes, CallError>> {
            let name = request
                .uri()
                .path()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            let task = (0..100)
                .map(uid)
                .find(|task| job_name("t", task) == name)
                .unwrap();
            let object = json!({"metadata": {"name": name, "uid": format!("of-{task}"), "labels": {
                MANAGED_BY: MANAGED_BY_VALUE, HUB_ID: hub().as_str(), TASK_UID: task.as_str(),
            }}});
            self.0.lock().unwrap().push((request.method().clone(), name));
            Box::pin(async move {
                tokio::time::sleep(PAUSE).await;
                Ok(object.to_string().into())
            })
        }
    }

    impl Slow {
        fn counts(&self, method: &Method) -> usize {
            let asked = self.0.lock().unwrap();
            asked.iter().filter(|(asked, _)| asked == method).count()
        }
    }

    fn hub() -> HubId {
        HubId::new("main", "0f5a4e0c-0001").unwrap()
    }

    fn uid(number: usize) -> TaskUid {
        TaskUid::new(&format!("task-{number}"))
    }

    fn left(number: usize) -> OrphanRecord {
        OrphanRecord {
            site: Site {
                cluster: ClusterName::Platform("west".to_owned()),
                namespace: "jobs".to_owned(),
            },
            task: uid(number),
            tenant: "team-a".to_owned(),
            name: job_name("t", &uid(number)),
            job_uid: None,
            secret_uid: None,
            since: Timestamp::UNIX_EPOCH,
        }
    }

    /// Secrets of the hub's that name no task, of which nothing has to be asked before they are removed.
    fn candidates(count: usize) -> Vec<OrphanSecret> {
        let candidate = |number| OrphanSecret {
            name: job_name("t", &uid(number)),
            uid: format!("of-{}", uid(number)),
            maker: ObjectCreator::Own,
            owner: OwnerTask::Nothing,
        };
        (0..count).map(candidate).collect()
    }

    /// Sweeps with this many things that deleted tasks left, and as many Secrets; what was settled, how long it took, and what
    /// was asked.
    async fn sweep(lefts: usize, secrets: usize) -> (usize, Duration, Arc<Slow>, Metrics) {
        sweep_until(lefts, secrets, &CancellationToken::new()).await
    }

    /// The same, until the hub stops.
    async fn sweep_until(
        lefts: usize,
        secrets: usize,
        stop: &CancellationToken,
    ) -> (usize, Duration, Arc<Slow>, Metrics) {
        let transport = Arc::new(Slow::default());
        let objects = TaskObjectClient::new(transport.clone(), None, "jobs".to_owned(), hub());
        let (metrics, _) = Metrics::new();
        let client = client_to_nowhere();
        let calls = HubClient::new(client, metrics.clone(), "rendering".to_owned(), hub());
        let sweep = SweepCandidates {
            secrets: candidates(secrets),
            jobs: Vec::new(),
            remote_orphans: (0..lefts).map(left).collect(),
            scopes: Arc::default(),
        };
        let begin = Instant::now();
        let settled = remove_orphans(&calls, &objects, &metrics, sweep, stop).await;
        (settled.len(), begin.elapsed(), transport, metrics)
    }

    /// A hub that stops gives its Lease back once its work has ended.
    #[tokio::test(start_paused = true)]
    async fn a_hub_that_stops_ends_the_removal_under_way_and_begins_no_other() {
        for (lefts, secrets, calls) in [(0, 10, 1), (10, 10, 4)] {
            let stop = CancellationToken::new();
            let stopped = stop.clone();
            tokio::spawn(async move {
                tokio::time::sleep(PAUSE / 2).await;
                stopped.cancel();
            });
            let (settled, took, cluster, _) = sweep_until(lefts, secrets, &stop).await;
            let asked = cluster.counts(&Method::GET) + cluster.counts(&Method::DELETE);
            assert_eq!((settled, asked), (lefts.min(1), calls));
            assert_eq!(took, PAUSE * u32::try_from(calls).unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_of_a_slow_cluster_ends_when_its_time_is_over_and_begins_nothing_after_it() {
        let fits = usize::try_from(REMOVE.as_secs() / PAUSE.as_secs()).unwrap();
        // A removal of a Secret is one call; the one in flight at the deadline is cancelled.
        let (_, took, cluster, metrics) = sweep(0, 3 * fits).await;
        assert_eq!((took, cluster.counts(&Method::DELETE)), (REMOVE, fits + 1));
        assert_eq!(metrics.orphans_removed.get(), fits as u64);
        // What deleted tasks left is two reads and two removals each, and leaves no time for anything else here.
        let (settled, took, cluster, _) = sweep(3 * fits, 3 * fits).await;
        assert_eq!((settled, took), (fits / 4, REMOVE));
        let (read, deleted) = (cluster.counts(&Method::GET), cluster.counts(&Method::DELETE));
        assert_eq!(read + deleted, fits + 1);
        // The next sweep, of what is still there, has all its time again.
        let (settled, took, ..) = sweep(1, 1).await;
        assert_eq!((settled, took), (1, 5 * PAUSE));
    }
}
