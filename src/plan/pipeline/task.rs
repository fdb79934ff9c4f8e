//! What the pipeline knows of the tasks that it made.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::conditions::{ConditionType, Reason};
use crate::api::{FailurePhase, TaskOwner};
use crate::plan::task::model::{Task, TaskPhase};

use super::object::{ObjectKey, PipelineObjects};

/// Wait before a failed task is replaced the first time.
const FIRST_WAIT: SignedDuration = SignedDuration::from_mins(1);
/// Longest wait before a failed task is replaced.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(1);
/// What separates a task's name from the number of its attempt.
const ATTEMPT: &str = "-r";

/// A task that the pipeline may have made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineTask {
    /// Its UID.
    pub uid: String,
    /// SHA-256 of its spec.
    pub spec_hash: String,
    /// Whether its deletion was requested.
    pub deleting: bool,
    /// The object that it was made for.
    pub owner: Option<TaskOwner>,
    /// How far it is.
    pub state: PipelineTaskState,
}

/// How far a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineTaskState {
    /// It waits or runs.
    Running,
    /// It waits for something that a person may have to mend.
    Blocked(Reason),
    /// Its chart is pushed.
    Succeeded {
        /// Digest of the chart.
        digest: Option<String>,
        /// Where the chart is.
        chart_url: Option<String>,
        /// When it was pushed.
        at: Timestamp,
    },
    /// It failed.
    Failed {
        /// Why.
        reason: Reason,
        /// When.
        at: Timestamp,
        /// Whether another attempt would fail the same way.
        is_final: bool,
    },
}

impl PipelineTask {
    /// What the pipeline knows of a task; of a status that the hub did not write it believes nothing.
    #[must_use]
    pub fn of(task: &Task, is_genuine: bool) -> Self {
        Self {
            uid: task.id.uid.as_str().to_owned(),
            spec_hash: task.spec_hash.clone(),
            deleting: task.deleting,
            owner: task.spec.as_ref().and_then(|spec| spec.owner.clone()),
            state: if is_genuine {
                state(task)
            } else {
                PipelineTaskState::Running
            },
        }
    }
}

fn state(task: &Task) -> PipelineTaskState {
    let ended = task.status.completion_time.as_ref();
    let at = ended.map_or(task.created, |time| time.0);
    match task.phase() {
        TaskPhase::Succeeded => PipelineTaskState::Succeeded {
            digest: task.status.digest.clone(),
            chart_url: task.status.chart_url.clone(),
            at,
        },
        TaskPhase::Failed => {
            let reason = reason_of(task, ConditionType::JobFailed).unwrap_or(Reason::JobFailed);
            let phase = task.status.failure.as_ref().map(|failure| failure.phase);
            // The same configuration renders the same way again, and a tag is not taken back.
            let is_final = reason == Reason::TagConflict || phase == Some(FailurePhase::Render);
            PipelineTaskState::Failed { reason, at, is_final }
        }
        TaskPhase::Pending => match reason_of(task, ConditionType::Ready) {
            None | Some(Reason::Queued | Reason::DoesNotExist) => PipelineTaskState::Running,
            Some(reason) => PipelineTaskState::Blocked(reason),
        },
        TaskPhase::Running => PipelineTaskState::Running,
    }
}

fn reason_of(task: &Task, type_: ConditionType) -> Option<Reason> {
    let mut conditions = task.status.conditions.iter();
    let found = conditions.find(|condition| condition.type_ == type_.as_str());
    found.and_then(|condition| Reason::parse(&condition.reason))
}

/// A task that should be there, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskProgress<'o> {
    /// It has to be made, under this name.
    Missing(String),
    /// It waits or runs.
    Running,
    /// It waits for something that a person may have to mend.
    Blocked(Reason),
    /// Its chart is pushed.
    Succeeded {
        /// Digest of the chart.
        digest: Option<&'o str>,
        /// Where the chart is.
        chart_url: Option<&'o str>,
        /// When it was pushed.
        at: Timestamp,
    },
    /// It failed, and is replaced then; never where another attempt would fail the same way.
    Failed(Reason, Option<Timestamp>),
    /// Another task has its name.
    Taken(String),
}

/// What became of a task: of its last attempt. `base` is the name of the first.
#[must_use]
pub fn progress<'o>(
    objects: &'o PipelineObjects,
    namespace: &str,
    base: &str,
    spec_hash: &str,
    now: Timestamp,
) -> TaskProgress<'o> {
    let (mut attempt, mut name) = (1, base.to_owned());
    loop {
        let Some(task) = objects.tasks.get(&ObjectKey::new(namespace, &name)) else {
            return TaskProgress::Missing(name);
        };
        let next = attempt_name(base, attempt + 1);
        let is_newest = !objects.tasks.contains_key(&ObjectKey::new(namespace, &next));
        if !is_newest {
            (attempt, name) = (attempt + 1, next);
            continue;
        }
        if task.spec_hash != spec_hash {
            return TaskProgress::Taken(name);
        }
        return match &task.state {
            _ if task.deleting => TaskProgress::Missing(next),
            PipelineTaskState::Running => TaskProgress::Running,
            PipelineTaskState::Blocked(reason) => TaskProgress::Blocked(*reason),
            PipelineTaskState::Succeeded {
                digest,
                chart_url,
                at,
            } => TaskProgress::Succeeded {
                digest: digest.as_deref(),
                chart_url: chart_url.as_deref(),
                at: *at,
            },
            PipelineTaskState::Failed {
                reason,
                is_final: true,
                ..
            } => TaskProgress::Failed(*reason, None),
            PipelineTaskState::Failed { reason, at, .. } => {
                let due = retry_due(*at, attempt);
                if due <= now {
                    TaskProgress::Missing(next)
                } else {
                    TaskProgress::Failed(*reason, Some(due))
                }
            }
        };
    }
}

/// When a task whose attempt failed is replaced.
fn retry_due(failed: Timestamp, attempt: u32) -> Timestamp {
    let doublings = attempt.saturating_sub(1).min(10);
    let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    failed.saturating_add(wait).unwrap_or(failed)
}

/// The name of an attempt, which is how it survives the hub; the first has the bare name.
fn attempt_name(base: &str, attempt: u32) -> String {
    if attempt == 1 {
        base.to_owned()
    } else {
        format!("{base}{ATTEMPT}{attempt}")
    }
}

/// The attempts before the last one, which serve no purpose any more.
pub fn older_attempts<'o>(
    objects: &'o PipelineObjects,
    namespace: &str,
    base: &str,
) -> impl Iterator<Item = (ObjectKey, &'o str)> {
    let key = move |attempt| ObjectKey::new(namespace, &attempt_name(base, attempt));
    let attempts = (1..)
        .map(key)
        .map_while(|key| Some((objects.tasks.get(&key)?, key)));
    let mut known: Vec<_> = attempts
        .map(|(task, key)| (key, task.uid.as_str(), task.deleting))
        .collect();
    known.pop();
    known
        .into_iter()
        .filter(|(_, _, deleting)| !deleting)
        .map(|(key, uid, _)| (key, uid))
}

/// The name of the first attempt.
#[must_use]
pub fn base_name(name: &str) -> &str {
    name.rsplit_once(ATTEMPT)
        .filter(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        .map_or(name, |(base, _)| base)
}
