//! Looks at what hubs of this cluster made, and removes that whose task is gone, each only after the API server confirmed it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::labels::{TASK_KIND, TASK_NAME, TASK_NAMESPACE};
use crate::apply::{CallError, Calls, Found, Objects};
use crate::metrics::Metrics;
use crate::names::{HubId, TaskKind, TaskUid};
use crate::plan::adoption::{Maker, maker};
use crate::plan::gc::Marked;
use crate::plan::ledger::Orphan;
use crate::plan::shards::Owned;
use crate::plan::task::TaskId;
use crate::watch::{JobMark, Scope, task_of};

/// What is at a place that the watch does not show.
#[derive(Debug, Default)]
pub struct Listed {
    /// Config Secrets of this hub and of others.
    pub secrets: Vec<ObjectMeta>,
    /// Jobs of other hubs.
    pub others_jobs: Vec<Found>,
}

/// Lists what is at a place.
///
/// # Errors
/// Whatever keeps it from being listed.
pub async fn list(objects: &Objects) -> Result<Listed, CallError> {
    let others_jobs = objects.list_others_jobs().await?;
    let secrets = objects.list_secrets().await?;
    Ok(Listed {
        secrets: secrets.into_iter().map(|found| found.meta).collect(),
        others_jobs,
    })
}

/// What a sweep found to belong to no task the hub knows.
#[derive(Debug)]
pub struct Sweep {
    /// Config Secrets.
    pub secrets: Vec<ObjectMeta>,
    /// Jobs.
    pub jobs: Vec<JobMark>,
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
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
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
    for Left(orphan) in sweep.left {
        match remove_left(objects, &orphan).await {
            Ok(removed) => {
                report(metrics, "Job", &orphan.name, Ok(removed));
                settled.push(orphan.task);
            }
            Err(error) => report(metrics, "Job", &orphan.name, Err(error)),
        }
    }
    for job in sweep.jobs {
        report(
            metrics,
            "Job",
            &job.name,
            remove_job(objects, &confirm, &job).await,
        );
    }
    for meta in sweep.secrets {
        let name = meta.name.as_deref().unwrap_or_default();
        report(
            metrics,
            "Secret",
            name,
            remove_secret(objects, &confirm, name, &meta).await,
        );
    }
    settled
}

/// Removes what a deleted task left: the objects with the UIDs that were written down, else those of its name that carry its
/// mark.
async fn remove_left(objects: &Objects, orphan: &Orphan) -> Result<bool, CallError> {
    let is_a_hubs = |meta: &ObjectMeta| maker(objects.hub_id(), meta) != Maker::Foreign;
    let is_its = |meta: &ObjectMeta| task_of(meta).as_ref() == Some(&orphan.task) && is_a_hubs(meta);
    let job = objects.get_job(&orphan.name).await?.map(|job| job.metadata);
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

fn report(metrics: &Metrics, kind: &'static str, name: &str, removed: Result<bool, CallError>) {
    match removed {
        Ok(true) => {
            metrics.orphans_removed.inc();
            tracing::info!(kind, name, "removed an object whose task is gone");
        }
        Ok(false) => {}
        Err(error) => tracing::warn!(
            kind,
            name,
            error = error.kind(),
            "an object without a task stays for now"
        ),
    }
}

async fn remove_job(objects: &Objects, confirm: &Confirm<'_>, job: &JobMark) -> Result<bool, CallError> {
    let found = objects.get_job(&job.name).await?.map(|found| found.metadata);
    let Some(meta) = found.filter(|meta| meta.uid.as_deref() == Some(&job.uid)) else {
        return Ok(false);
    };
    if !confirm.is_orphan(&meta).await? {
        return Ok(false);
    }
    objects.delete_job(&job.name, &job.uid).await.map(|()| true)
}

async fn remove_secret(
    objects: &Objects,
    confirm: &Confirm<'_>,
    name: &str,
    meta: &ObjectMeta,
) -> Result<bool, CallError> {
    let Some(uid) = meta.uid.as_deref() else {
        return Ok(false);
    };
    if !confirm.is_orphan(meta).await? {
        return Ok(false);
    }
    objects.delete_secret(name, uid).await.map(|()| true)
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
    /// belongs to none; of a task that is not the hub's nothing can be said, and another cluster may name any.
    async fn is_orphan(&self, meta: &ObjectMeta) -> Result<bool, CallError> {
        match (maker(self.hub_id, meta), owner(meta)) {
            (Maker::Foreign, _) | (Maker::Kin, None) => Ok(false),
            (Maker::Own, None) => Ok(true),
            (Maker::Own | Maker::Kin, Some(owner)) => {
                let serves = is_served(self.scopes, self.owned, &owner);
                Ok(serves && self.calls.get_task(&owner).await?.is_none())
            }
        }
    }
}

/// Whether an instance that owns this of a hub of these scopes serves the task.
pub fn is_served(scopes: &[Scope], owned: &Owned, task: &TaskId) -> bool {
    let covers = |scope: &Scope| scope.covers(task.kind, &task.namespace);
    scopes.iter().any(covers) && owned.owns(&task.namespace)
}

/// The task that an object's annotations and label name.
pub fn owner(meta: &ObjectMeta) -> Option<TaskId> {
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key).cloned();
    let kind = match annotation(TASK_KIND)?.as_str() {
        "RenderTask" => TaskKind::RenderTask,
        "ClusterRenderTask" => TaskKind::ClusterRenderTask,
        _ => return None,
    };
    let uid: TaskUid = task_of(meta)?;
    Some(TaskId {
        kind,
        namespace: annotation(TASK_NAMESPACE)?,
        name: annotation(TASK_NAME)?,
        uid,
    })
}
