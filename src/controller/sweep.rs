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

/// Removes what was found; one failure leaves the rest for the next sweep.
pub async fn remove_orphans(calls: &Calls, metrics: &Metrics, sweep: Sweep) {
    if let Err(error) = try_remove(calls, metrics, sweep).await {
        tracing::warn!(kind = error.kind(), "a sweep ended early; the next one goes on");
    }
}

async fn try_remove(calls: &Calls, metrics: &Metrics, sweep: Sweep) -> Result<(), CallError> {
    for job in sweep.jobs {
        let found = calls
            .get_job(&job.name)
            .await?
            .filter(|found| found.metadata.uid.as_deref() == Some(&job.uid));
        let Some(found) = found else { continue };
        if is_orphan(calls, owner(&found.metadata).as_ref()).await? {
            calls.delete_job(&job.name, &job.uid).await?;
            metrics.orphans_removed.inc();
            tracing::info!(job = job.name, "removed a Job whose task is gone");
        }
    }
    for meta in sweep.secrets {
        let (Some(name), Some(uid)) = (meta.name.as_deref(), meta.uid.as_deref()) else {
            continue;
        };
        if is_orphan(calls, owner(&meta).as_ref()).await? {
            calls.delete_secret(name, uid).await?;
            metrics.orphans_removed.inc();
            tracing::info!(secret = name, "removed a config Secret whose task is gone");
        }
    }
    Ok(())
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
