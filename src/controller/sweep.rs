//! Removes objects with the hub's mark whose task is gone, each only after the API server confirmed it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::labels::{TASK_KIND, TASK_NAME, TASK_NAMESPACE};
use crate::apply::{CallError, Calls};
use crate::metrics::Metrics;
use crate::names::{TaskKind, TaskUid};
use crate::plan::gc::Marked;
use crate::plan::task::TaskId;
use crate::watch::{JobMark, task_of};

/// What a sweep found to belong to no task the hub knows.
#[derive(Debug)]
pub struct Sweep {
    /// Config Secrets.
    pub secrets: Vec<ObjectMeta>,
    /// Jobs.
    pub jobs: Vec<JobMark>,
}

impl Sweep {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.jobs.is_empty()
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

/// Removes what was found; what cannot be removed now is found by the next sweep again.
pub async fn remove_orphans(calls: &Calls, metrics: &Metrics, sweep: Sweep) {
    for job in sweep.jobs {
        report(metrics, "Job", &job.name, remove_job(calls, &job).await);
    }
    for meta in sweep.secrets {
        let name = meta.name.as_deref().unwrap_or_default();
        report(metrics, "Secret", name, remove_secret(calls, name, &meta).await);
    }
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

async fn remove_job(calls: &Calls, job: &JobMark) -> Result<bool, CallError> {
    let found = calls.get_job(&job.name).await?.map(|found| found.metadata);
    let Some(meta) = found.filter(|meta| meta.uid.as_deref() == Some(&job.uid)) else {
        return Ok(false);
    };
    if !is_orphan(calls, owner(&meta).as_ref()).await? {
        return Ok(false);
    }
    calls.delete_job(&job.name, &job.uid).await.map(|()| true)
}

async fn remove_secret(calls: &Calls, name: &str, meta: &ObjectMeta) -> Result<bool, CallError> {
    let Some(uid) = meta.uid.as_deref() else {
        return Ok(false);
    };
    if !is_orphan(calls, owner(meta).as_ref()).await? {
        return Ok(false);
    }
    calls.delete_secret(name, uid).await.map(|()| true)
}

/// Whether the API server has no task of that name and UID. An object that names no task belongs to none.
async fn is_orphan(calls: &Calls, owner: Option<&TaskId>) -> Result<bool, CallError> {
    match owner {
        Some(owner) => Ok(calls.get_task(owner).await?.is_none()),
        None => Ok(true),
    }
}

/// The task that an object's annotations and label name.
fn owner(meta: &ObjectMeta) -> Option<TaskId> {
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
