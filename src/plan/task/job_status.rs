//! What the status of a task records of its Job, or of why there is none.

use k8s_openapi::jiff::Timestamp;

use super::destination::chart_url;
use super::observed::ObservedTask;
use super::refusal::Refusal;
use super::status::{self, StartedJob};
use super::step::ReconcileStep;
use crate::api::RenderTaskStatus;
use crate::api::names::job_name;

/// Deletes the Job, then the config Secret; `None` when both are gone, or out of reach.
pub(super) fn clear(o: &ObservedTask<'_>) -> Option<ReconcileStep> {
    if !o.site.is_reached() {
        return None;
    }
    let job = o.job.uid().map(|uid| ReconcileStep::DeleteJob(uid.to_owned()));
    job.or_else(|| o.secret.map(|uid| ReconcileStep::DeleteSecret(uid.to_owned())))
}

/// The status with the Job in it; `None` where that is recorded already.
pub(super) fn started(o: &ObservedTask<'_>, job_uid: &str, since: Timestamp) -> Option<RenderTaskStatus> {
    let recorded = o.task.status.job_ref.as_ref().and_then(|r| r.uid.as_deref());
    if recorded == Some(job_uid) {
        return None;
    }
    let started = StartedJob {
        cluster: o.placement.cluster.clone(),
        namespace: o.placement.namespace.clone(),
        name: job_name(&o.task.id.name, &o.task.id.uid),
        job_uid: job_uid.to_owned(),
        secret_uid: o.secret.map(str::to_owned),
        chart_url: chart_url(o),
        since,
    };
    Some(status::scheduled(o.task, started, o.now))
}

/// Records why nothing runs, and leaves what is there alone: it is not provably the hub's, and without it a second Job
/// would start.
pub(super) fn keep_running(o: &ObservedTask<'_>, refusal: &Refusal) -> ReconcileStep {
    let wanted = status::refused(o.task, refusal, o.now);
    if wanted == o.task.status {
        return ReconcileStep::REST;
    }
    ReconcileStep::WriteStatus(Box::new(wanted))
}

/// Records why nothing runs, takes away what does, then rests.
pub(super) fn refuse(o: &ObservedTask<'_>, refusal: &Refusal, rest: ReconcileStep) -> ReconcileStep {
    let wanted = status::refused(o.task, refusal, o.now);
    if wanted != o.task.status {
        return ReconcileStep::WriteStatus(Box::new(wanted));
    }
    clear(o).unwrap_or(rest)
}
