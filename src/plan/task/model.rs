//! A task as the hub works on it: either kind, with its spec decoded and its raw configuration kept.

use std::io;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::conditions::{self, ConditionType, Reason};
use crate::api::names::{TaskKind, TaskUid, hex};
use crate::api::{RenderTaskSpec, RenderTaskStatus};

use super::finalizer_summary::FinalizerSummary;
use super::status_digest::StatusDigest;
use super::target_seal::TargetSeal;

/// Seconds a failed Job and its config Secret are kept where the task does not say.
const DEFAULT_FAILED_JOB_TTL: i32 = 3600;

/// Who a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskId {
    /// Which of the two kinds.
    pub kind: TaskKind,
    /// The tenant's namespace; empty for a `ClusterRenderTask`.
    pub namespace: String,
    /// Name in the namespace.
    pub name: String,
    /// UID, which a second task of the same name does not share.
    pub uid: TaskUid,
}

/// The phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskPhase {
    /// No Job yet.
    Pending,
    /// A Job is recorded in the status.
    Running,
    /// The result is recorded.
    Succeeded,
    /// The failure is recorded.
    Failed,
}

impl TaskPhase {
    /// Whether the outcome is recorded.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// What others may change of a task while the hub works on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRevision {
    /// Version of the object.
    pub resource_version: String,
    /// Generation of the spec, where the API server sent it.
    pub generation: Option<i64>,
    /// When its deletion was requested.
    pub deleted_at: Option<Timestamp>,
    /// The finalizers on the object.
    pub finalizers: FinalizerSummary,
}

/// What is decoded of a spec.
#[derive(Clone, Debug)]
pub struct DecodedSpec {
    /// The spec without what only the renderer reads, or `None` where the Rust type cannot decode it. Boxed, so that who only knows of
    /// a spec that is not in use any more holds little.
    pub spec: Option<Box<RenderTaskSpec>>,
    /// Whether the spec has more values than are decoded; nothing of it is known then.
    pub is_oversized: bool,
    /// `spec.config` as stored, as JSON: with its free-form parts and the fields that only a renderer class understands.
    pub config: Arc<str>,
    /// SHA-256 of the canonical spec.
    pub spec_hash: String,
}

impl DecodedSpec {
    /// What is decoded of a spec; `None` is one with more values than are decoded.
    #[must_use]
    pub fn of(spec: Option<Value>) -> Self {
        let is_oversized = spec.is_none();
        let spec = spec.unwrap_or_default();
        // serde_json keeps object keys sorted, so equal specs have equal bytes.
        let spec_hash = hex(&Sha256::digest(serde_json::to_vec(&spec).unwrap_or_default()));
        let config = spec.get("config").unwrap_or(&Value::Null);
        Self {
            config: serde_json::to_string(config).unwrap_or_default().into(),
            spec: lean(spec).map(Box::new),
            is_oversized,
            spec_hash,
        }
    }

    /// Bytes of memory that it takes.
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<RenderTaskSpec>() + self.config.len() + json_bytes(&self.spec)
    }
}

/// A whole task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Who it is.
    pub id: TaskId,
    /// Version of the object that this was read from; empty after a local change whose answer gave none.
    pub resource_version: String,
    /// Generation of the spec; 1 until it is changed.
    pub generation: i64,
    /// When the object was made.
    pub created: Timestamp,
    /// Whether its deletion was requested.
    pub deleting: bool,
    /// When, where the API server sent it.
    pub deleted_at: Option<Timestamp>,
    /// The finalizers on the object.
    pub finalizers: FinalizerSummary,
    /// The seal of a task that the hub made for Targets.
    pub target_seal: TargetSeal,
    /// Its spec as decoded, which all states of one generation share.
    pub decoded: Arc<DecodedSpec>,
    /// Bytes that are kept of all but the status.
    pub bare_bytes: usize,
    /// The status that the hub wrote.
    pub status: RenderTaskStatus,
    /// Digest of the status on the object.
    pub status_digest: Option<StatusDigest>,
}

impl Task {
    /// Makes a task from an object's parts. `None` when the object has no name or UID, which no API server gives out.
    ///
    /// Of a status that a newer hub wrote and this one cannot decode, the conditions and the Job are kept: what ended stays
    /// ended, and what was started is not started again.
    #[must_use]
    pub fn new(kind: TaskKind, meta: &ObjectMeta, spec: Value, status: Value) -> Option<Self> {
        Self::with_spec(kind, meta, Arc::new(DecodedSpec::of(Some(spec))), status)
    }

    /// The same with a spec that is decoded.
    #[must_use]
    pub fn with_spec(
        kind: TaskKind,
        meta: &ObjectMeta,
        decoded: Arc<DecodedSpec>,
        status: Value,
    ) -> Option<Self> {
        let id = TaskId {
            kind,
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone()?,
            uid: TaskUid::new(meta.uid.as_deref()?),
        };
        let names = meta.finalizers.iter().flatten().map(String::as_str);
        let bare_bytes = size_of::<Self>() + decoded.bytes() + id.namespace.len() + id.name.len();
        Some(Self {
            id,
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or(1),
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            deleting: meta.deletion_timestamp.is_some(),
            deleted_at: meta.deletion_timestamp.as_ref().map(|t| t.0),
            finalizers: FinalizerSummary::of(names),
            target_seal: TargetSeal::default(),
            decoded,
            bare_bytes,
            status_digest: StatusDigest::of(&status),
            status: status_of(status),
        })
    }

    /// Records the state of the object after a write of the hub. The event of that write also shows what other writers changed
    /// just before, so no later event shows it.
    pub fn set_revision(&mut self, standing: TaskRevision) {
        self.resource_version = standing.resource_version;
        self.generation = standing.generation.unwrap_or(self.generation);
        self.deleting = standing.deleted_at.is_some();
        self.deleted_at = standing.deleted_at;
        self.finalizers = standing.finalizers;
    }

    /// Puts a status on the task.
    pub fn set_status(&mut self, status: RenderTaskStatus) {
        let digest = StatusDigest::of_typed(&status);
        self.set_sealed_status(status, digest);
    }

    /// Puts a status on the task whose digest is known since it was sealed.
    pub fn set_sealed_status(&mut self, status: RenderTaskStatus, digest: Option<StatusDigest>) {
        self.status_digest = digest;
        self.status = status;
    }

    /// Whether the hub's finalizer is on the object.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.hub_index.is_some()
    }

    /// Bytes of memory that the task takes, by which budgets count: its text, its decoded spec and its status.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.bare_bytes + json_bytes(&self.status)
    }

    /// The phase that is recorded in the task's status.
    #[must_use]
    pub fn phase(&self) -> TaskPhase {
        phase_of(&self.status)
    }

    /// When a failed task's Job and config Secret are removed: after the task's time, or the longest that the platform lets them
    /// stay. Those of a task whose Job was lost are removed at once: they show no failure, and the Job could still push.
    #[must_use]
    pub fn failure_cleanup_due(&self, longest: SignedDuration) -> Timestamp {
        if self.has_lost_its_job() {
            return self.ended();
        }
        after(self.ended(), seconds(self.failed_job_seconds()).min(longest))
    }

    /// Whether the task asks for more time than the platform lets a failed Job stay.
    #[must_use]
    pub fn asks_to_be_kept_beyond(&self, longest: SignedDuration) -> bool {
        self.failed_job_ttl().is_some_and(|ttl| seconds(ttl) > longest)
    }

    /// Seconds that a failed Job and its config Secret are kept, as the task says or by default.
    #[must_use]
    pub fn failed_job_seconds(&self) -> i32 {
        self.failed_job_ttl().unwrap_or(DEFAULT_FAILED_JOB_TTL).max(0)
    }

    fn has_lost_its_job(&self) -> bool {
        conditions::has_reason(&self.status.conditions, ConditionType::JobFailed, Reason::JobLost)
    }

    fn failed_job_ttl(&self) -> Option<i32> {
        self.decoded.spec.as_ref().and_then(|s| s.failed_job_ttl)
    }

    /// When a finished task itself is removed, if it is.
    #[must_use]
    pub fn removal_due(&self) -> Option<Timestamp> {
        let ttl = self
            .decoded
            .spec
            .as_ref()
            .and_then(|s| s.ttl_seconds_after_finished)?;
        Some(after(self.ended(), seconds(ttl)))
    }

    /// The recorded end; a status without one counts as ended when the task was made, so that nothing is kept for ever.
    fn ended(&self) -> Timestamp {
        self.status.completion_time.as_ref().map_or(self.created, |t| t.0)
    }
}

/// The spec without what only the renderer reads: that is kept as text, because decoded it can be a hundred times larger.
fn lean(spec: Value) -> Option<RenderTaskSpec> {
    let mut spec: RenderTaskSpec = serde_json::from_value(without_free_form(spec)).ok()?;
    if let Some(release) = &mut spec.config.release {
        release.input.resources.clear();
    }
    if let Some(bootstrap) = &mut spec.config.bootstrap {
        bootstrap.input.releases.clear();
    }
    Some(spec)
}

/// Bytes of a value as JSON, which is at least what it takes in memory: every string is in it, and the field names make up for
/// the structs.
#[must_use]
pub fn json_bytes(value: &impl Serialize) -> usize {
    let mut counter = ByteCounter::default();
    // Nothing that the hub keeps fails to be written.
    _ = serde_json::to_writer(&mut counter, value);
    counter.bytes
}

/// Counts what is written to it.
#[derive(Default)]
pub(in crate::plan) struct ByteCounter {
    pub bytes: usize,
}

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A spec before it is decoded, without what tenants write freely.
fn without_free_form(mut spec: Value) -> Value {
    for (parent, field) in [
        ("/config/release", "values"),
        ("/config/bootstrap/input", "userdata"),
    ] {
        if let Some(parent) = spec.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.remove(field);
        }
    }
    spec
}

fn status_of(status: Value) -> RenderTaskStatus {
    let field = |name: &str| status.get(name).cloned().unwrap_or_default();
    let (conditions, job_ref, ended) = (field("conditions"), field("jobRef"), field("completionTime"));
    serde_json::from_value(status).unwrap_or_else(|_| RenderTaskStatus {
        conditions: serde_json::from_value(conditions).unwrap_or_default(),
        job_ref: serde_json::from_value(job_ref).unwrap_or_default(),
        completion_time: serde_json::from_value(ended).unwrap_or_default(),
        ..RenderTaskStatus::default()
    })
}

/// The phase of a task with this status.
#[must_use]
pub fn phase_of(status: &RenderTaskStatus) -> TaskPhase {
    if conditions::is_true(&status.conditions, ConditionType::JobSucceeded) {
        TaskPhase::Succeeded
    } else if conditions::is_true(&status.conditions, ConditionType::JobFailed) {
        TaskPhase::Failed
    } else if status.job_ref.is_some() {
        TaskPhase::Running
    } else {
        TaskPhase::Pending
    }
}

/// So many seconds, negative counted as 0.
fn seconds(count: i32) -> SignedDuration {
    SignedDuration::from_secs(count.max(0).into())
}

/// So long after `start`, at the end of time where the sum leaves it.
#[must_use]
pub fn after(start: Timestamp, time: SignedDuration) -> Timestamp {
    start.checked_add(time).unwrap_or(Timestamp::MAX)
}
