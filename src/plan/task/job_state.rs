//! What a Job and its pods say: the Job's conditions, never its counters, and the pod's strict termination message.

use k8s_openapi::api::batch::v1::JobStatus;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::api::labels;
use crate::api::termination::Termination;

/// Name of the container that renders.
pub const RENDER_CONTAINER: &str = "render";
/// Name of the container that pushes; in class mode `Single` of the only one.
pub const RENDERER_CONTAINER: &str = "renderer";

/// How far a Job is, by its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobProgress {
    /// Neither condition holds.
    Running,
    /// `Complete` holds since then.
    Complete(Timestamp),
    /// `Failed` holds since then; `true` where the deadline ended it.
    Failed(Timestamp, bool),
}

/// A Job as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedJob {
    /// UID of the Job.
    pub uid: String,
    /// Hash of the spec it was made from.
    pub spec_hash: String,
    /// Where its chart goes.
    pub chart_url: Option<String>,
    /// How far it is.
    pub progress: JobProgress,
    /// Pods that ended.
    pub attempts: i32,
    /// When the API server made it.
    pub created: Option<Timestamp>,
}

impl ObservedJob {
    /// Whether what a watch showed of this pod says how the Job ended. The watches of pods and of Jobs are two streams, and the one of
    /// pods may be behind: of several that failed, it may not have shown the last.
    #[must_use]
    pub fn is_told_by(&self, pod: &PodTermination) -> bool {
        match self.progress {
            JobProgress::Running => false,
            JobProgress::Complete(_) => pod.succeeded,
            JobProgress::Failed(..) => !pod.succeeded && self.attempts <= 1,
        }
    }
}

/// Reads a Job by its metadata and its status. `None` when it has no UID, which no API server gives out.
#[must_use]
pub fn read_job(meta: &ObjectMeta, status: &JobStatus) -> Option<ObservedJob> {
    let annotation = |key: &str| meta.annotations.as_ref()?.get(key).cloned();
    Some(ObservedJob {
        uid: meta.uid.clone()?,
        spec_hash: annotation(labels::SPEC_HASH).unwrap_or_default(),
        chart_url: annotation(labels::CHART_URL),
        progress: verdict(status),
        attempts: clamp(status.succeeded) + clamp(status.failed),
        created: meta.creation_timestamp.as_ref().map(|t| t.0),
    })
}

/// A count as an API server may claim it, cut to what can be true.
fn clamp(count: Option<i32>) -> i32 {
    count.unwrap_or(0).clamp(0, 1_000)
}

fn verdict(status: &JobStatus) -> JobProgress {
    let held = |type_: &str| {
        status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == type_ && c.status == "True")
    };
    let since = |c: &k8s_openapi::api::batch::v1::JobCondition| {
        c.last_transition_time
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |t| t.0)
    };
    if let Some(failed) = held("Failed") {
        return JobProgress::Failed(
            since(failed),
            failed.reason.as_deref() == Some("DeadlineExceeded"),
        );
    }
    held("Complete").map_or(JobProgress::Running, |c| JobProgress::Complete(since(c)))
}

/// What a Job's metadata say of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionHint {
    /// It has not ended.
    No,
    /// It is about to end, or failed.
    Soon,
    /// It completed, or its state is unknown.
    Now,
}

impl CompletionHint {
    /// The hint of a Job in whose status these fields are set, or not: the API server records which each writer set.
    ///
    /// Until a writer sets `conditions`, the Job runs and need not be read; `completionTime` is set with `Complete` and never before.
    /// The hint saves reads and is no verdict: that is read from the Job's conditions.
    #[must_use]
    pub const fn of(completion_time: bool, conditions: bool) -> Self {
        match (completion_time, conditions) {
            (true, _) => Self::Now,
            (false, true) => Self::Soon,
            (false, false) => Self::No,
        }
    }
}

/// What ended a pod from outside, as far as its node has a fixed reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodKillReason {
    /// A container used more memory than its limit.
    OutOfMemory,
    /// The node evicted the pod.
    Evicted,
}

/// What is kept of a pod that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTermination {
    /// UID of the pod.
    pub pod_uid: String,
    /// When it was created, to find the last of several.
    pub created: Timestamp,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// Exit code of the container that ended it.
    pub exit_code: Option<i32>,
    /// That container's termination message, if the hub knows its form.
    pub message: Option<Termination>,
    /// What ended it, if not itself.
    pub stop: Option<PodKillReason>,
}

/// Reads a pod that ended: the message of the first container that failed, else of the one that pushes.
#[must_use]
pub fn read_pod(pod: &Pod) -> Option<PodTermination> {
    let status = pod.status.as_ref()?;
    let succeeded = match status.phase.as_deref()? {
        "Succeeded" => true,
        "Failed" => false,
        _ => return None,
    };
    let all = || {
        status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses)
            .flatten()
    };
    let failed = all().find(|c| exit_code(c).is_some_and(|code| code != 0));
    let speaker = failed.or_else(|| all().find(|c| c.name == RENDERER_CONTAINER));
    Some(PodTermination {
        pod_uid: pod.metadata.uid.clone()?,
        created: pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        succeeded,
        exit_code: speaker.and_then(exit_code),
        message: speaker.and_then(message),
        stop: stop(status, speaker),
    })
}

/// Both reasons are the kubelet's own; no other is read.
fn stop(status: &PodStatus, speaker: Option<&ContainerStatus>) -> Option<PodKillReason> {
    let ended = |c: &ContainerStatus| c.state.as_ref()?.terminated.as_ref()?.reason.clone();
    if status.reason.as_deref() == Some("Evicted") {
        Some(PodKillReason::Evicted)
    } else {
        (speaker.and_then(ended).as_deref() == Some("OOMKilled")).then_some(PodKillReason::OutOfMemory)
    }
}

fn exit_code(container: &ContainerStatus) -> Option<i32> {
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn message(container: &ContainerStatus) -> Option<Termination> {
    Termination::parse(
        container
            .state
            .as_ref()?
            .terminated
            .as_ref()?
            .message
            .as_deref()?,
    )
}

/// What is known of a task's Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobState {
    /// No Job of the task is known.
    Absent,
    /// The API server has none.
    Gone,
    /// One exists.
    Seen {
        /// UID of the Job.
        uid: String,
        /// Hash of the spec it was made from.
        spec_hash: String,
        /// Where its chart goes.
        chart_url: Option<String>,
        /// Whether it ended, or its metadata leave that open.
        may_have_ended: bool,
    },
    /// One was read.
    Read(ObservedJob),
}

impl JobState {
    /// Where the chart of the Job goes; a status is not asked, because others than the hub may have written it.
    pub(super) fn chart_url(&self) -> Option<String> {
        match self {
            Self::Absent | Self::Gone => None,
            Self::Seen { chart_url, .. } => chart_url.clone(),
            Self::Read(report) => report.chart_url.clone(),
        }
    }

    /// UID of the Job, if one exists.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Absent | Self::Gone => None,
            Self::Seen { uid, .. } => Some(uid),
            Self::Read(report) => Some(&report.uid),
        }
    }
}
