//! Looks at what hubs of this cluster made, and removes that whose task is gone, each only after the API server confirmed it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use tokio::time::{Instant, timeout_at};

use crate::api::labels::{TASK_KIND, TASK_NAME, TASK_NAMESPACE};
use crate::apply::{CallError, Calls, Found, Listing, Objects};
use crate::metrics::Metrics;
use crate::names::{HubId, TaskUid};
use crate::plan::adoption::{Maker, maker};
use crate::plan::gc::Marked;
use crate::plan::ledger::Orphan;
use crate::plan::shards::Owned;
use crate::plan::task::TaskId;
use crate::watch::{JobMark, Scope, task_of};

/// Longest that a sweep removes things; what it did not come to is found by the next one again.
const REMOVE: Duration = Duration::from_secs(240);
/// Objects of one sweep that the log names, each by a name that is of our own form; all are counted.
const NAMED: usize = 20;

/// What is in the rendering namespace that the watch does not show.
#[derive(Debug, Default)]
pub struct Listed {
    /// Config Secrets of this hub and of others.
    pub secrets: Vec<ObjectMeta>,
    /// Jobs of other hubs.
    pub others_jobs: Vec<Found>,
}

/// Lists what is in the rendering namespace.
///
/// # Errors
/// Whatever keeps it from being listed.
pub async fn list(calls: &Calls) -> Result<Listed, CallError> {
    let others_jobs = calls.list_all(Listing::OthersJobs).await?;
    let secrets = calls.list_all(Listing::Secrets).await?;
    Ok(Listed {
        secrets: secrets.into_iter().map(|found| found.meta).collect(),
        others_jobs,
    })
}

/// A config Secret that is of no task the hub knows: of what its labels and annotations say, only what is a name.
#[derive(Debug)]
pub struct Stranger {
    name: String,
    uid: String,
    maker: Maker,
    owner: OwnedBy,
}

/// A Job that is of no task the hub knows.
#[derive(Debug)]
pub struct Stranded {
    /// Its name, which is of our own form.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// The task that an object names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedBy {
    /// None at all.
    Nothing,
    /// Something that is no task's name; what it is about cannot be told.
    Illegible,
    /// This one.
    Task(TaskId),
}

impl Stranger {
    /// The Secret by its metadata; `None` where no hub of this cluster made it.
    pub fn of(hub_id: &HubId, meta: &ObjectMeta) -> Option<Self> {
        let maker = maker(hub_id, meta);
        (maker != Maker::Foreign).then_some(Self {
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
            maker,
            owner: owned_by(meta),
        })
    }
}

impl From<JobMark> for Stranded {
    fn from(mark: JobMark) -> Self {
        Self {
            name: mark.name,
            uid: mark.uid,
        }
    }
}

/// What a sweep found to belong to no task the hub knows.
#[derive(Debug)]
pub struct Sweep {
    /// Config Secrets.
    pub secrets: Vec<Stranger>,
    /// Jobs.
    pub jobs: Vec<Stranded>,
    /// What deleted tasks left on a cluster that was not reached.
    pub left: Vec<Left>,
    /// What the hub serves: of other tasks it cannot say that they are gone.
    pub scopes: Arc<[Scope]>,
    /// The same of this instance, where several divide that.
    pub owned: Arc<Owned>,
}

/// What a deleted task left, by name and where known by UID.
#[derive(Debug)]
pub struct Left(Orphan);

impl From<Orphan> for Left {
    fn from(orphan: Orphan) -> Self {
        Self(orphan)
    }
}

impl Sweep {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.jobs.is_empty() && self.left.is_empty()
    }
}

/// A Secret as the pure rule looks at it.
pub fn marked(meta: &ObjectMeta, now: Timestamp) -> Marked {
    let created = meta
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    Marked {
        task: task_of(meta),
        age: Duration::try_from(now.duration_since(created)).unwrap_or_default(),
    }
}

/// Removes what was found; what cannot be removed now is found by the next sweep again. The tasks of which all that was left
/// is gone.
pub async fn remove_orphans(
    calls: &Calls,
    objects: &Objects,
    metrics: &Metrics,
    sweep: Sweep,
) -> Vec<TaskUid> {
    let confirm = Confirm {
        calls,
        hub_id: objects.hub_id(),
        scopes: &sweep.scopes,
        owned: &sweep.owned,
    };
    let mut settled = Vec::new();
    let mut tally = Tally::new(metrics);
    for Left(orphan) in sweep.left {
        let removed = remove_left(objects, &orphan).await;
        if removed.is_ok() {
            settled.push(orphan.task);
        }
        tally.take("Job", &orphan.name, removed);
    }
    let until = Instant::now() + REMOVE;
    for job in sweep.jobs {
        let removed = timeout_at(until, remove_job(objects, &confirm, &job)).await;
        tally.take("Job", &job.name, removed.unwrap_or(Err(CallError::Timeout)));
    }
    for secret in sweep.secrets {
        let removed = timeout_at(until, remove_secret(objects, &confirm, &secret)).await;
        tally.take("Secret", &secret.name, removed.unwrap_or(Err(CallError::Timeout)));
    }
    tally.tell();
    settled
}

/// Removes what was given up on a cluster while it was not reached: Jobs of tasks that ended without them or are deleted, then
/// what deleted tasks left. What there is no time for is removed later. The tasks of which all that was left is gone.
pub async fn remove_given_up(
    objects: &Objects,
    metrics: &Metrics,
    (jobs, left): (Vec<Stranded>, Vec<Left>),
    until: Instant,
) -> Vec<TaskUid> {
    for job in jobs {
        let removed = timeout_at(until, objects.delete_job(&job.name, &job.uid)).await;
        match removed.unwrap_or(Err(CallError::Timeout)) {
            Ok(()) => tracing::info!(
                job = job.name,
                "removed a Job that was given up, because its cluster is back"
            ),
            Err(error) => {
                let (error, stage) = (error.kind(), error.stage());
                tracing::warn!(
                    job = job.name,
                    error,
                    stage,
                    "a Job that was given up could not be removed; it is tried again"
                );
            }
        }
    }
    let mut settled = Vec::new();
    let mut tally = Tally::new(metrics);
    for Left(orphan) in left {
        let removed = timeout_at(until, remove_left(objects, &orphan)).await;
        let removed = removed.unwrap_or(Err(CallError::Timeout));
        if removed.is_ok() {
            settled.push(orphan.task);
        }
        tally.take("Job", &orphan.name, removed);
    }
    tally.tell();
    settled
}

/// Removes what a deleted task left: the objects with the UIDs that were written down, else those of its name that carry its
/// mark.
async fn remove_left(objects: &Objects, orphan: &Orphan) -> Result<bool, CallError> {
    let is_a_hubs = |meta: &ObjectMeta| maker(objects.hub_id(), meta) != Maker::Foreign;
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
struct Tally<'a> {
    metrics: &'a Metrics,
    removed: usize,
    stayed: usize,
    unnamed: usize,
}

impl<'a> Tally<'a> {
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
                    tracing::info!(kind, name, "removed an object whose task is gone");
                }
            }
            Ok(false) => {}
            Err(error) => {
                self.stayed += 1;
                if is_named {
                    let (error, stage) = (error.kind(), error.stage());
                    tracing::warn!(kind, name, error, stage, "an object without a task stays for now");
                }
            }
        }
    }

    fn tell(&self) {
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

async fn remove_job(objects: &Objects, confirm: &Confirm<'_>, job: &Stranded) -> Result<bool, CallError> {
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
    objects: &Objects,
    confirm: &Confirm<'_>,
    secret: &Stranger,
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
struct Confirm<'a> {
    calls: &'a Calls,
    hub_id: &'a HubId,
    scopes: &'a [Scope],
    owned: &'a Owned,
}

impl Confirm<'_> {
    /// Whether the API server has no task of the name and UID that an object names. One of this hub's that names no task
    /// belongs to none; of a task that is not the hub's, or of what is no name, nothing can be said, and another cluster may
    /// name any.
    async fn is_orphan(&self, maker: Maker, owner: &OwnedBy) -> Result<bool, CallError> {
        match (maker, owner) {
            (Maker::Foreign, _) | (Maker::Kin, OwnedBy::Nothing) | (_, OwnedBy::Illegible) => Ok(false),
            (Maker::Own, OwnedBy::Nothing) => Ok(true),
            (Maker::Own | Maker::Kin, OwnedBy::Task(task)) => {
                let serves = is_served(self.scopes, self.owned, task);
                Ok(serves && self.calls.get_task(task).await?.is_none())
            }
        }
    }
}

/// Whether an instance that owns this of a hub of these scopes serves the task.
pub fn is_served(scopes: &[Scope], owned: &Owned, task: &TaskId) -> bool {
    let covers = |scope: &Scope| scope.covers(task.kind, &task.namespace);
    scopes.iter().any(covers) && owned.owns(&task.namespace)
}

/// The task that an object's annotations and label name. They may be what another cluster says: nothing of them goes on that is
/// no name.
pub fn owned_by(meta: &ObjectMeta) -> OwnedBy {
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key).map(String::as_str);
    let named = (
        annotation(TASK_KIND),
        annotation(TASK_NAMESPACE),
        annotation(TASK_NAME),
    );
    let (Some(kind), Some(namespace), Some(name)) = named else {
        return OwnedBy::Nothing;
    };
    let Some(uid) = task_of(meta) else {
        return OwnedBy::Nothing;
    };
    TaskId::parse(kind, namespace, name, uid.as_str()).map_or(OwnedBy::Illegible, OwnedBy::Task)
}
