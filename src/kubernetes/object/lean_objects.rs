//! What is read of a single object, and of the pods of one task.

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, LocalObjectReference,
    Pod, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

use crate::api::termination::MAX_BYTES;
use crate::plan::task::job_state::CompletionHint;

use super::lean::{BoundedItem, BoundedList, LeanMetadata, ShortText};

/// Pods of one Job that are read: far more than a class lets a Job start.
pub(crate) const PODS: u16 = 100;
/// Containers of a pod that are read. Its own are two; admission may add others.
const CONTAINERS: usize = 16;
/// Pull Secrets of a pod that are read: a class names no more, and admission may add others.
const PULL_SECRETS: usize = 16;
/// Conditions of a Job that are read: one of either kind.
const CONDITIONS: usize = 2;

/// A Job as it was read or watched.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Job)]
#[serde(from = "LeanJob")]
pub struct FetchedJob {
    /// The metadata that is read.
    pub metadata: ObjectMeta,
    /// What they say of its end.
    pub hint: CompletionHint,
    /// The conditions that end it, and its counters.
    pub status: JobStatus,
}

/// An object by its metadata.
#[derive(Deserialize)]
pub(crate) struct LeanObject {
    #[serde(default)]
    pub(crate) metadata: LeanMetadata,
}

#[derive(Deserialize)]
struct LeanJob {
    #[serde(default)]
    metadata: LeanMetadata,
    status: Option<LeanJobStatus>,
}

#[derive(Default, Deserialize)]
struct LeanJobStatus {
    conditions: Option<BoundedList<LeanCondition>>,
    succeeded: Option<i32>,
    failed: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanCondition {
    #[serde(rename = "type")]
    kind: ShortText,
    status: ShortText,
    reason: Option<ShortText>,
    last_transition_time: Option<Time>,
}

impl BoundedItem for LeanCondition {
    const MOST: usize = CONDITIONS;

    fn is_kept(&self) -> bool {
        let is_end = matches!(self.kind.0.as_deref(), Some("Complete" | "Failed"));
        is_end && self.status.0.as_deref() == Some("True")
    }
}

impl From<LeanJob> for FetchedJob {
    fn from(read: LeanJob) -> Self {
        let (metadata, hint) = read.metadata.read();
        let status = read.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default().kept.into_iter();
        let condition = |c: LeanCondition| JobCondition {
            type_: c.kind.0.unwrap_or_default(),
            status: c.status.0.unwrap_or_default(),
            reason: c.reason.and_then(|reason| reason.0),
            last_transition_time: c.last_transition_time,
            ..JobCondition::default()
        };
        Self {
            metadata,
            hint,
            status: JobStatus {
                conditions: Some(conditions.map(condition).collect()),
                succeeded: status.succeeded,
                failed: status.failed,
                ..JobStatus::default()
            },
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct LeanPods {
    items: Option<BoundedList<LeanPod>>,
}

#[derive(Deserialize)]
struct LeanPod {
    #[serde(default)]
    metadata: LeanMetadata,
    spec: Option<LeanPodSpec>,
    status: Option<LeanPodStatus>,
}

impl BoundedItem for LeanPod {
    const MOST: usize = PODS as usize;
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanPodSpec {
    image_pull_secrets: Option<BoundedList<LeanReference>>,
}

#[derive(Deserialize)]
struct LeanReference {
    #[serde(default)]
    name: ShortText,
}

impl BoundedItem for LeanReference {
    const MOST: usize = PULL_SECRETS;
}

impl LeanPodSpec {
    fn spec(self) -> PodSpec {
        let names = self.image_pull_secrets.unwrap_or_default().kept.into_iter();
        let reference = |named: LeanReference| LocalObjectReference {
            name: named.name.0.unwrap_or_default(),
        };
        PodSpec {
            image_pull_secrets: Some(names.map(reference).collect()),
            ..PodSpec::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanPodStatus {
    phase: Option<ShortText>,
    reason: Option<ShortText>,
    init_container_statuses: Option<BoundedList<LeanContainer>>,
    container_statuses: Option<BoundedList<LeanContainer>>,
}

#[derive(Deserialize)]
struct LeanContainer {
    name: ShortText,
    state: Option<LeanContainerState>,
}

impl BoundedItem for LeanContainer {
    const MOST: usize = CONTAINERS;

    fn is_kept(&self) -> bool {
        self.state
            .as_ref()
            .is_some_and(|state| state.terminated.is_some() || state.waiting.is_some())
    }
}

#[derive(Deserialize)]
struct LeanContainerState {
    waiting: Option<LeanWaiting>,
    terminated: Option<LeanTermination>,
}

#[derive(Deserialize)]
struct LeanWaiting {
    reason: Option<ShortText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanTermination {
    exit_code: i32,
    reason: Option<ShortText>,
    message: Option<ShortText<MAX_BYTES>>,
}

impl LeanContainer {
    fn status(self) -> ContainerStatus {
        let state = self.state.map(|state| ContainerState {
            waiting: state.waiting.map(|waiting| ContainerStateWaiting {
                reason: waiting.reason.and_then(|reason| reason.0),
                ..ContainerStateWaiting::default()
            }),
            terminated: state.terminated.map(|end| ContainerStateTerminated {
                exit_code: end.exit_code,
                reason: end.reason.and_then(|reason| reason.0),
                message: end.message.and_then(|message| message.0),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        });
        ContainerStatus {
            name: self.name.0.unwrap_or_default(),
            state,
            ..ContainerStatus::default()
        }
    }
}

impl LeanPod {
    fn pod(self) -> Pod {
        let all = |few: Option<BoundedList<LeanContainer>>| {
            let kept = few.unwrap_or_default().kept.into_iter();
            Some(kept.map(LeanContainer::status).collect())
        };
        let status = self.status.map(|status| PodStatus {
            phase: status.phase.and_then(|phase| phase.0),
            reason: status.reason.and_then(|reason| reason.0),
            init_container_statuses: all(status.init_container_statuses),
            container_statuses: all(status.container_statuses),
            ..PodStatus::default()
        });
        Pod {
            metadata: self.metadata.read().0,
            spec: self.spec.map(LeanPodSpec::spec),
            status,
        }
    }
}

impl LeanPods {
    /// The pods, one at a time: decoded, each is far larger than what is read of it.
    pub(crate) fn pods(self) -> impl Iterator<Item = Pod> {
        self.items.unwrap_or_default().kept.into_iter().map(LeanPod::pod)
    }
}
