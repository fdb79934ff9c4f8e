//! What the pipeline remembers of a task.

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::{ConditionType, Reason, reason_of};
use crate::api::termination::PERMANENT_FAILURE;
use crate::api::{FailurePhase, RegistryReference, RenderTaskSpec, TaskFailure, TaskOwner};
use crate::plan::task::model::{Task, TaskPhase};

/// Where a task pushes its chart to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskChart {
    /// The registry as the task names it.
    pub registry: Option<RegistryReference>,
    /// Repository of the chart.
    pub repository: String,
    /// Tag of the chart.
    pub tag: String,
}

impl TaskChart {
    /// Where a task pushes to.
    #[must_use]
    pub fn of(spec: &RenderTaskSpec) -> Self {
        Self {
            registry: spec.registry_ref.clone(),
            repository: spec.repository.clone(),
            tag: spec.tag.clone(),
        }
    }
}

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
    /// Where it pushes its chart to.
    pub chart: TaskChart,
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
    /// A task that the hub made just now, until a watch shows it.
    #[must_use]
    pub fn made(uid: String, spec: &RenderTaskSpec, spec_hash: &str) -> Self {
        Self {
            uid,
            spec_hash: spec_hash.to_owned(),
            deleting: false,
            owner: spec.owner.clone(),
            chart: TaskChart::of(spec),
            state: PipelineTaskState::Running,
        }
    }

    /// Whether it is the task that ran before, and nothing is new but that its chart is pushed.
    #[must_use]
    pub fn is_pushed_since(&self, before: &Self) -> bool {
        let is_pushed = matches!(self.state, PipelineTaskState::Succeeded { .. });
        let ran = before.state == PipelineTaskState::Running;
        is_pushed && ran && (&self.uid, self.deleting) == (&before.uid, before.deleting)
    }

    /// Whether Targets share it, and it runs.
    #[must_use]
    pub fn is_shared_and_runs(&self) -> bool {
        self.is_shared() && !self.deleting && self.state == PipelineTaskState::Running
    }

    /// Whether Targets share it: its chart is that of a Release.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.kind == "Release")
    }

    /// What the pipeline knows of a task; of a status that the hub did not write it believes nothing.
    #[must_use]
    pub fn of(task: &Task, is_genuine: bool) -> Self {
        Self {
            uid: task.id.uid.as_str().to_owned(),
            spec_hash: task.decoded.spec_hash.clone(),
            deleting: task.deleting,
            owner: task.decoded.spec.as_ref().and_then(|spec| spec.owner.clone()),
            chart: task
                .decoded
                .spec
                .as_deref()
                .map(TaskChart::of)
                .unwrap_or_default(),
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
            at,
        },
        TaskPhase::Failed => {
            let reason =
                reason_of(&task.status.conditions, ConditionType::JobFailed).unwrap_or(Reason::JobFailed);
            // The same configuration fails the same way again, and a tag is not taken back.
            let is_permanent = |failure: &TaskFailure| {
                failure.phase == FailurePhase::Render
                    && failure.exit_code == Some(i32::from(PERMANENT_FAILURE))
            };
            let is_final =
                reason == Reason::TagConflict || task.status.failure.as_ref().is_some_and(is_permanent);
            PipelineTaskState::Failed { reason, at, is_final }
        }
        TaskPhase::Pending => match reason_of(&task.status.conditions, ConditionType::Ready) {
            None | Some(Reason::Queued) => PipelineTaskState::Running,
            Some(reason) => PipelineTaskState::Blocked(reason),
        },
        TaskPhase::Running => PipelineTaskState::Running,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::TaskKind;

    fn seen(status: Value, is_genuine: bool) -> PipelineTaskState {
        let meta = ObjectMeta {
            name: Some("task".to_owned()),
            uid: Some("uid".to_owned()),
            ..ObjectMeta::default()
        };
        let task = Task::new(TaskKind::RenderTask, &meta, json!({}), status).unwrap();
        PipelineTask::of(&task, is_genuine).state
    }

    fn condition(type_: &str, reason: &str) -> Value {
        let status = if type_ == "Ready" { "False" } else { "True" };
        json!({
            "type": type_, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": "2026-11-26T12:00:00Z",
        })
    }

    fn failed(reason: &str, phase: &str, exit_code: i32) -> Value {
        json!({
            "conditions": [condition("JobFailed", reason)],
            "completionTime": "2026-11-26T12:00:00Z",
            "failure": {"phase": phase, "exitCode": exit_code, "message": "m"},
        })
    }

    /// A failure that only a person can mend is final, and what may pass is tried again.
    #[test]
    fn only_a_bad_configuration_and_a_tag_of_another_content_are_final() {
        let cases = [
            (failed("JobFailed", "Render", 2), Reason::JobFailed, true),
            (failed("JobFailed", "Render", 3), Reason::JobFailed, false),
            (failed("JobFailed", "Push", 2), Reason::JobFailed, false),
            (failed("JobFailed", "Push", 3), Reason::JobFailed, false),
            (failed("TagConflict", "Push", 3), Reason::TagConflict, true),
            (
                failed("DeadlineExceeded", "Render", 3),
                Reason::DeadlineExceeded,
                false,
            ),
        ];
        let at = "2026-11-26T12:00:00Z".parse().unwrap();
        for (status, reason, is_final) in cases {
            let expected = PipelineTaskState::Failed { reason, at, is_final };
            assert_eq!(seen(status.clone(), true), expected, "{status}");
        }
    }

    #[test]
    fn a_task_that_waits_for_a_person_is_blocked_and_one_in_the_queue_runs() {
        let waits = |reason: &str| json!({"conditions": [condition("Ready", reason)]});
        assert_eq!(seen(json!({}), true), PipelineTaskState::Running);
        assert_eq!(seen(waits("Queued"), true), PipelineTaskState::Running);
        let blocked = PipelineTaskState::Blocked(Reason::NotGranted);
        assert_eq!(seen(waits("NotGranted"), true), blocked);
        let succeeded =
            json!({"conditions": [condition("JobSucceeded", "JobSucceeded")], "digest": "sha256:1"});
        let digest = Some("sha256:1".to_owned());
        let at = Timestamp::UNIX_EPOCH;
        assert_eq!(
            seen(succeeded.clone(), true),
            PipelineTaskState::Succeeded { digest, at }
        );
        assert_eq!(
            seen(succeeded, false),
            PipelineTaskState::Running,
            "a status without the hub's seal is not believed"
        );
    }
}
