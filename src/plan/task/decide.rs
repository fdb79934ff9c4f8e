//! The next step of a task, from what was observed.

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;

use super::destination::chart_url;
use super::job_state::{JobProgress, JobState, ObservedJob};
use super::job_status::{clear, keep_running, refuse, started};
use super::model::{Task, TaskPhase};
use super::observed::ObservedTask;
use super::refusal::Refusal;
use super::retention::RemovalState;
use super::start::start;
use super::step::ReconcileStep;
use super::success_verdict::{SuccessVerdict, success_verdict};
use super::validate::validate;
use super::{image_pull, status, unreached_cluster};
use crate::api::conditions::Reason;

/// The next step of a task.
#[must_use]
pub fn decide(o: &ObservedTask<'_>) -> ReconcileStep {
    if o.task.deleting {
        let step = clear(o).or_else(|| unreached_cluster::deletion_blocked(o));
        // A forged status delays no deletion; it matters again while another finalizer keeps the task.
        return step.unwrap_or(match (o.task.has_finalizer(), o.is_forged) {
            (true, _) => ReconcileStep::RemoveFinalizer,
            (false, true) => ReconcileStep::RestoreStatus,
            (false, false) => ReconcileStep::REST,
        });
    }
    if o.is_forged {
        return ReconcileStep::RestoreStatus;
    }
    match o.task.phase() {
        TaskPhase::Succeeded => clear(o).unwrap_or_else(|| remove(o)),
        TaskPhase::Failed if o.now < o.task.failure_cleanup_due(o.timeouts.kept_at_most) => kept(o),
        TaskPhase::Failed => clear(o).unwrap_or_else(|| remove(o)),
        TaskPhase::Pending | TaskPhase::Running => unfinished(o),
    }
}

/// What is left of a finished and cleared task: its own time to live, and how many newer ones are kept.
fn remove(o: &ObservedTask<'_>) -> ReconcileStep {
    let is_clear = o.job.uid().is_none() && o.secret.is_none();
    match o.task.removal_due() {
        _ if o.removal == RemovalState::Surplus && is_clear => ReconcileStep::DeleteTask,
        // The caller gives the slots, so it knows that the task waits for one.
        Some(due) if o.now >= due && o.removal == RemovalState::Waits => ReconcileStep::REST,
        Some(due) if o.now >= due => ReconcileStep::DeleteTask,
        wake => ReconcileStep::rest(wake),
    }
}

/// A failed Job and its config Secret stay for people to read, unless newer ones displace them; the task itself may be removed
/// earlier.
fn kept(o: &ObservedTask<'_>) -> ReconcileStep {
    if let Some(step) = clear(o).filter(|_| o.removal == RemovalState::Crowded) {
        return step;
    }
    let kept = o.task.failure_cleanup_due(o.timeouts.kept_at_most);
    match remove(o) {
        ReconcileStep::Rest { wake, .. } => ReconcileStep::rest(Some(wake.map_or(kept, |w| w.min(kept)))),
        step => step,
    }
}

fn unfinished(o: &ObservedTask<'_>) -> ReconcileStep {
    let spec = match validate(o.task) {
        Ok(spec) => spec,
        Err(refusal) => return refuse(o, &refusal, ReconcileStep::REST),
    };
    match o.job {
        JobState::Seen { spec_hash, .. } | JobState::Read(ObservedJob { spec_hash, .. })
            if *spec_hash != o.task.decoded.spec_hash =>
        {
            let message = "a Job made from another spec has the name of this task's Job; make a new task";
            keep_running(o, &Refusal::new(Reason::SpecMutated, message))
        }
        // Another writer replaced the Job: the result of that one is not the task's.
        JobState::Seen { .. } | JobState::Read(_) if is_another(o) => {
            ReconcileStep::WriteStatus(Box::new(status::lost(o.task, o.now)))
        }
        JobState::Absent | JobState::Gone if o.task.phase() == TaskPhase::Pending => start(o, spec),
        JobState::Seen { .. } | JobState::Read(_) | JobState::Absent | JobState::Gone
            if !o.site.is_reached() =>
        {
            unreached_cluster::wait(o)
        }
        JobState::Absent
        | JobState::Seen {
            may_have_ended: true, ..
        } => ReconcileStep::ReadJob,
        JobState::Seen { uid, .. } => running(o, uid),
        JobState::Read(report) => by_verdict(o, report),
        JobState::Gone => ReconcileStep::WriteStatus(Box::new(status::lost(o.task, o.now))),
    }
}

/// Whether a Job on another cluster is not the one that was recorded; on the hub's own cluster only the hub creates Jobs.
fn is_another(o: &ObservedTask<'_>) -> bool {
    let recorded = o.task.status.job_ref.as_ref().and_then(|job| job.uid.as_deref());
    o.target.is_some() && recorded.is_some() && recorded != o.job.uid()
}

fn by_verdict(o: &ObservedTask<'_>, report: &ObservedJob) -> ReconcileStep {
    // A result needs the finalizer no less than a run does; both were there before the Job.
    let cut = |ended: Timestamp| ended.clamp(o.task.created.min(o.now), o.now);
    let task = || caught_up(o, report, report.created.map_or(o.now, cut));
    let mut status = match report.progress {
        JobProgress::Running => return running(o, &report.uid),
        JobProgress::Complete(ended) => match success_verdict(o, &report.uid) {
            SuccessVerdict::Later(step) => return step,
            SuccessVerdict::Yes => status::succeeded(&task(), report, cut(ended), o.pod_termination, o.now),
            SuccessVerdict::No(why) => status::unverified(&task(), report, cut(ended), why, o.now),
        },
        JobProgress::Failed(ended, _) if o.tenancy.hides(o.task, o.pod_termination) => {
            status::failed_out_of_sight(&task(), cut(ended), o.now)
        }
        JobProgress::Failed(ended, deadline) => {
            status::failed(&task(), report, cut(ended), deadline, o.pod_termination, o.now)
        }
    };
    // The Job has the place of its chart; any writer of statuses may have written the status.
    status.chart_url = chart_url(o).or(status.chart_url);
    status::mention_shorter_ttl(&mut status, o.task, o.timeouts.kept_at_most);
    ReconcileStep::WriteStatus(Box::new(status))
}

/// The task with its start recorded: a hub that was killed right after it made the Job may see the end first.
fn caught_up<'a>(o: &ObservedTask<'a>, report: &ObservedJob, since: Timestamp) -> Cow<'a, Task> {
    started(o, &report.uid, since).map_or(Cow::Borrowed(o.task), |status| {
        Cow::Owned(Task {
            status,
            ..o.task.clone()
        })
    })
}

/// A Job runs: that is recorded once, with what the API server returned.
fn running(o: &ObservedTask<'_>, job_uid: &str) -> ReconcileStep {
    started(o, job_uid, o.now).map_or_else(
        || image_pull::watch_over(o),
        |status| ReconcileStep::WriteStatus(Box::new(status)),
    )
}
