//! The statuses that the hub writes in each phase of a task.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::conditions::{ConditionType, DesiredCondition, Reason, merge};
use crate::api::termination::{self, Termination};
use crate::api::time::whole_seconds;
use crate::api::{FailurePhase, RenderTaskStatus, TaskFailure, TaskObjectReference};

use super::advice::advice;
use super::job_state::{ObservedJob, PodKillReason, PodTermination};
use crate::plan::task::model::{Task, TaskPhase, phase_of};
use crate::plan::task::refusal::Refusal;

/// The message about a task whose Job runs.
const RUNS: &str = "the renderer Job runs";

/// The Job that was made for a task, as the API server returned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedJob {
    /// The cluster it runs on; `None` is the hub's own.
    pub cluster: Option<String>,
    /// Where it runs.
    pub namespace: String,
    /// Name of the Job and of the config Secret.
    pub name: String,
    /// UID of the Job.
    pub job_uid: String,
    /// UID of the config Secret, where known.
    pub secret_uid: Option<String>,
    /// Where the chart goes, where known.
    pub chart_url: Option<String>,
    /// When it was made.
    pub since: Timestamp,
}

/// The status of a task whose Job runs.
#[must_use]
pub fn scheduled(task: &Task, started: StartedJob, now: Timestamp) -> RenderTaskStatus {
    let wanted = [
        DesiredCondition::new(ConditionType::JobScheduled, true, Reason::JobScheduled, RUNS),
        DesiredCondition::new(ConditionType::Ready, false, Reason::JobScheduled, RUNS),
    ];
    let mut status = after_last_write(task, &wanted, &[ConditionType::Stalled], now);
    status.job_ref = Some(object_ref(
        "batch/v1",
        "Job",
        &started,
        Some(started.job_uid.clone()),
    ));
    status.config_secret_ref = Some(object_ref("v1", "Secret", &started, started.secret_uid.clone()));
    status.chart_url = started.chart_url;
    status.start_time = status.start_time.or(Some(whole_seconds(started.since)));
    status
}

/// The status of a task whose Job runs, and whose pod waits for an image, as this says, or does not.
#[must_use]
pub fn waiting_for_image(task: &Task, failure: Option<&str>, now: Timestamp) -> RenderTaskStatus {
    let ready = match failure {
        Some(failure) => DesiredCondition::new(ConditionType::Ready, false, Reason::ImagePullFailed, failure),
        None => DesiredCondition::new(ConditionType::Ready, false, Reason::JobScheduled, RUNS),
    };
    after_last_write(task, &[ready], &[], now)
}

/// The status of a task that cannot start, or not yet.
#[must_use]
pub fn refused(task: &Task, refusal: &Refusal, now: Timestamp) -> RenderTaskStatus {
    let Refusal { reason, message } = refusal;
    let mut wanted = vec![
        DesiredCondition::new(ConditionType::JobScheduled, false, *reason, message),
        DesiredCondition::new(ConditionType::Ready, false, *reason, message),
    ];
    let gone: &[_] = if reason.is_stalled() {
        wanted.push(DesiredCondition::new(
            ConditionType::Stalled,
            true,
            *reason,
            message,
        ));
        &[]
    } else {
        &[ConditionType::Stalled]
    };
    after_last_write(task, &wanted, gone, now)
}

/// The status of a task whose Job completed at `ended`.
#[must_use]
pub fn succeeded(
    task: &Task,
    job: &ObservedJob,
    ended: Timestamp,
    note: Option<&PodTermination>,
    now: Timestamp,
) -> RenderTaskStatus {
    let message = "the chart was pushed";
    let wanted = [
        DesiredCondition::new(
            ConditionType::JobScheduled,
            true,
            Reason::JobScheduled,
            "the renderer Job ran",
        ),
        DesiredCondition::new(ConditionType::JobSucceeded, true, Reason::JobSucceeded, message),
        DesiredCondition::new(ConditionType::Ready, true, Reason::JobSucceeded, message),
    ];
    let gone = [ConditionType::JobFailed, ConditionType::Stalled];
    let mut status = after_last_write(task, &wanted, &gone, now);
    status.digest = note
        .and_then(|n| n.message.as_ref())
        .and_then(|m| m.digest.as_ref())
        .map(ToString::to_string);
    status.attempts = Some(job.attempts.max(1));
    status.completion_time = Some(whole_seconds(ended));
    status
}

/// The status of a task whose Job failed at `ended`.
#[must_use]
pub fn failed(
    task: &Task,
    job: &ObservedJob,
    ended: Timestamp,
    deadline: bool,
    note: Option<&PodTermination>,
    now: Timestamp,
) -> RenderTaskStatus {
    // A pod can end well just as the deadline ends its Job; that is no reason for a failure.
    let said = note
        .and_then(|n| n.message.as_ref())
        .filter(|m| !m.reason.is_success());
    let reason = match said.map(|m| m.reason) {
        Some(termination::TerminationReason::TagConflict) => Reason::TagConflict,
        _ if deadline => Reason::DeadlineExceeded,
        _ => Reason::JobFailed,
    };
    let failure = TaskFailure {
        phase: phase(said),
        exit_code: note.and_then(|n| n.exit_code),
        message: explain(said, deadline, note.and_then(|n| n.stop)).to_owned(),
    };
    let advice = advice(said.map(|m| m.reason), deadline, note.and_then(|n| n.stop));
    let message = format!("{}; {advice}", failure.message);
    let mut status = ended_badly(task, reason, &message, ended, now);
    status.attempts = Some(job.attempts);
    status.failure = Some(failure);
    status
}

/// The message of its condition.
pub const OUT_OF_SIGHT: &str = "the registry cannot be reached, or refuses the push without a credential, or is no registry; \
    the hub says which of these only where it sent a credential of yours: check baseURL or the Registry, name a push Secret there, \
    or ask the platform operator, who can read the log of the pod";

/// The status of a task whose Job failed at a registry that the tenant chose, and that may be any host that the pod reaches:
/// nothing in it shows whether the host answered, neither the exit code nor the number of attempts.
#[must_use]
pub fn failed_out_of_sight(task: &Task, ended: Timestamp, now: Timestamp) -> RenderTaskStatus {
    let message = OUT_OF_SIGHT;
    let mut status = ended_badly(task, Reason::JobFailed, message, ended, now);
    status.failure = Some(TaskFailure {
        phase: FailurePhase::Push,
        exit_code: None,
        message: message.to_owned(),
    });
    status
}

/// Says in the conditions of a failure that its Job is kept for less time than the task asks for.
pub fn mention_shorter_ttl(status: &mut RenderTaskStatus, task: &Task, longest: SignedDuration) {
    if phase_of(status) != TaskPhase::Failed || !task.asks_to_be_kept_beyond(longest) {
        return;
    }
    let longest = match longest.as_secs() {
        1 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    };
    let reported = format!("; failedJobTTL is larger than the platform's maximum of {longest}, which counts");
    for condition in &mut status.conditions {
        if condition.type_ != ConditionType::JobScheduled.as_str() {
            condition.message.push_str(&reported);
        }
    }
}

/// The status of a task whose Job completed, and whose chart the registry does not confirm; it repeats nothing of the Job or its
/// pod.
#[must_use]
pub fn unverified(
    task: &Task,
    job: &ObservedJob,
    ended: Timestamp,
    why: &str,
    now: Timestamp,
) -> RenderTaskStatus {
    let mut status = ended_badly(task, Reason::ResultUnverified, why, ended, now);
    status.attempts = Some(job.attempts.max(1));
    status.failure = Some(TaskFailure {
        phase: FailurePhase::Push,
        exit_code: None,
        message: why.to_owned(),
    });
    status
}

/// The status of a task whose Job vanished without a recorded result.
#[must_use]
pub fn lost(task: &Task, now: Timestamp) -> RenderTaskStatus {
    let message = "the renderer Job was deleted before its result was recorded, so it is not known whether the chart was pushed; look in the \
                   registry, or make a new task";
    ended_badly(task, Reason::JobLost, message, now, now)
}

/// The status of a task whose cluster was lost for too long.
#[must_use]
pub fn cluster_lost(task: &Task, now: Timestamp) -> RenderTaskStatus {
    let message = "the hub did not reach the cluster for longer than it waits, and gave the Job up, so it is not known whether the chart was \
                   pushed; look in the registry, or make a new task";
    ended_badly(task, Reason::JobLost, message, now, now)
}

fn ended_badly(
    task: &Task,
    reason: Reason,
    message: &str,
    ended: Timestamp,
    now: Timestamp,
) -> RenderTaskStatus {
    let wanted = [
        DesiredCondition::new(
            ConditionType::JobScheduled,
            true,
            Reason::JobScheduled,
            "the renderer Job ran",
        ),
        DesiredCondition::new(ConditionType::JobFailed, true, reason, message),
        DesiredCondition::new(ConditionType::Ready, false, reason, message),
        DesiredCondition::new(ConditionType::Stalled, true, reason, message),
    ];
    let mut status = after_last_write(task, &wanted, &[ConditionType::JobSucceeded], now);
    status.completion_time = Some(whole_seconds(ended));
    status
}

/// The step that a termination message is about; a pod without one was stopped before its renderer could write it.
fn phase(said: Option<&Termination>) -> FailurePhase {
    match said.map(|m| m.phase) {
        Some(termination::TerminationPhase::Render) => FailurePhase::Render,
        Some(termination::TerminationPhase::Push) => FailurePhase::Push,
        None => FailurePhase::Pod,
    }
}

fn explain(said: Option<&Termination>, deadline: bool, stop: Option<PodKillReason>) -> &'static str {
    match said {
        Some(said) => said.reason.sentence(),
        None if stop == Some(PodKillReason::OutOfMemory) => "the renderer used more memory than its limit",
        None if stop == Some(PodKillReason::Evicted) => {
            "the pod was evicted from its node, as when it uses more disk than its limit"
        }
        None if deadline => "the Job ran into its deadline; its pod may not have started",
        None => {
            "the renderer's pod ended without saying why, as when it was killed or its image is not a renderer; ask the platform operator to look at the pod"
        }
    }
}

fn after_last_write(
    task: &Task,
    wanted: &[DesiredCondition],
    gone: &[ConditionType],
    now: Timestamp,
) -> RenderTaskStatus {
    let mut status = task.status.clone();
    merge(&mut status.conditions, wanted, gone, Some(task.generation), now);
    status.observed_generation = Some(task.generation);
    status
}

fn object_ref(
    api_version: &str,
    kind: &str,
    started: &StartedJob,
    uid: Option<String>,
) -> TaskObjectReference {
    TaskObjectReference {
        cluster: started.cluster.clone(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: started.namespace.clone(),
        name: started.name.clone(),
        uid,
    }
}
