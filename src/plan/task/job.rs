//! The config Secret and the Job of a task, from a fixed template: nothing of the tenant's reaches the pod's shape.
//!
//! The container that reads the tenant's configuration holds no credential; the one that holds the credential never
//! reads the configuration (class mode `Split`).

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};
use k8s_openapi::api::core::v1::{PodTemplateSpec, Secret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ObjectMeta;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::names::{HubId, TaskKind, hex, job_name};
use crate::api::termination::PERMANENT_FAILURE;
use crate::api::{RendererClassSpec, RendererMode, labels};

use super::job_state::{JobProgress, JobState};
use super::pod;
use super::pod::layout::{CA_KEY, CONFIG_KEY, PASSWORD_KEY, URL_KEY, USERNAME_KEY};
use super::tenant::TenantCredential;
use crate::plan::platform::catalog::{Catalog, CertificateSource, CredentialState, ResolvedTask};
use crate::plan::task::model::Task;

/// Seconds a finished Job outlives the hub's own clean-up, as a net for a hub that is gone.
const DEAD_HUB_NET: i32 = 86_400;
/// UID of the task of a specimen.
const SPECIMEN: &str = "00000000-0000-0000-0000-000000000000";
/// Seconds a Job may take where the class does not say.
const DEFAULT_DEADLINE: i64 = 600;
/// Time after its deadline for which a Job on another cluster keeps its slot of the queue, although that cluster has not ended it.
const OVERDUE: SignedDuration = SignedDuration::from_secs(300);
/// Pods that may fail where the class does not say.
const DEFAULT_BACKOFF_LIMIT: i32 = 3;

/// What a hub marks and places its objects with.
#[derive(Clone, Debug)]
pub struct JobPlacement {
    /// Which hub makes the objects.
    pub hub_id: HubId,
    /// The cluster, as people know it; `None` is the hub's own.
    pub cluster: Option<String>,
    /// Namespace the Jobs run in.
    pub namespace: String,
    /// ServiceAccount of the pods; it has no rights.
    pub service_account: String,
}

/// The two objects of a task; both have the same name.
#[derive(Clone, Debug)]
pub struct TaskManifests {
    /// Immutable; `config.json`, `url`, and of a tenant's own registry the credential and the certificates.
    pub secret: Secret,
    /// One pod that renders, then pushes.
    pub job: Job,
}

/// The objects of a task.
#[must_use]
pub fn manifests(place: &JobPlacement, task: &Task, resolved: &ResolvedTask) -> TaskManifests {
    let metadata = metadata(place, task, resolved);
    let name = metadata.name.clone().unwrap_or_default();
    let mut job = job(place, metadata.clone(), &name, task, resolved);
    // They keep the copies while the Job is there.
    let copies = resolved.pull_copies.iter();
    let copies = copies.map(|copy| (copy.job_label(), String::new()));
    job.metadata.labels.get_or_insert_default().extend(copies);
    TaskManifests {
        secret: secret(metadata, task, resolved),
        job,
    }
}

/// A Job as tasks of this class get it, to ask whether it would be accepted. It is never made.
#[must_use]
pub fn specimen(place: &JobPlacement, class: &RendererClassSpec) -> Option<Job> {
    let meta = ObjectMeta {
        name: Some("specimen".to_owned()),
        namespace: Some("specimen".to_owned()),
        uid: Some(SPECIMEN.to_owned()),
        ..ObjectMeta::default()
    };
    let task = Task::new(TaskKind::RenderTask, &meta, Value::Null, Value::Null)?;
    let resolved = ResolvedTask {
        reference: "registry.invalid/specimen:0".parse().ok()?,
        prefix: "specimen".parse().ok()?,
        plain_http: false,
        credential: CredentialState::BasicAuth("specimen".to_owned()),
        token_realm: None,
        ca: None,
        login: None,
        class: class.clone(),
        pull_secrets: Vec::new(),
        pull_copies: Vec::new(),
    };
    Some(manifests(place, &task, &resolved).job)
}

fn secret(metadata: ObjectMeta, task: &Task, resolved: &ResolvedTask) -> Secret {
    let url = resolved.reference.url();
    let mut parts = vec![(CONFIG_KEY, &*task.decoded.config), (URL_KEY, &url)];
    if let Some(TenantCredential { credential, .. }) = &resolved.login {
        parts.push((USERNAME_KEY, &credential.username));
        parts.push((PASSWORD_KEY, credential.password.expose_secret()));
    }
    if let Some(CertificateSource::Copied(certificates)) = &resolved.ca {
        parts.push((CA_KEY, certificates));
    }
    let data = parts
        .into_iter()
        .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret {
        metadata,
        immutable: Some(true),
        data: Some(data.collect()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// When the Job of a task that is not known to have ended is overdue, by the start that the hub recorded and the deadline of the class as it
/// is now. The controllers of another cluster may never end one.
#[must_use]
pub fn overdue_at(task: &Task, job: &JobState, catalog: &Catalog) -> Option<Timestamp> {
    if matches!(job, JobState::Read(job) if job.progress != JobProgress::Running) {
        return None;
    }
    let class = task.decoded.spec.as_ref().and_then(|spec| catalog.class_of(spec));
    let deadline = class.and_then(|class| class.spec.active_deadline_seconds);
    let longest = SignedDuration::from_secs(deadline.unwrap_or(DEFAULT_DEADLINE)) + OVERDUE;
    let start = task.status.start_time.as_ref()?;
    Some(start.0.checked_add(longest).unwrap_or(Timestamp::MAX))
}

fn job(place: &JobPlacement, metadata: ObjectMeta, name: &str, task: &Task, resolved: &ResolvedTask) -> Job {
    let class = &resolved.class;
    let pod_metadata = ObjectMeta {
        labels: metadata.labels.clone(),
        ..ObjectMeta::default()
    };
    let spec = JobSpec {
        backoff_limit: Some(class.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT)),
        active_deadline_seconds: Some(class.active_deadline_seconds.unwrap_or(DEFAULT_DEADLINE)),
        ttl_seconds_after_finished: Some(DEAD_HUB_NET.saturating_add(task.failed_job_seconds())),
        pod_replacement_policy: Some("Failed".to_owned()),
        pod_failure_policy: Some(failure_policy(class.mode)),
        template: PodTemplateSpec {
            metadata: Some(pod_metadata),
            spec: Some(pod::spec(
                &place.service_account,
                name,
                &task.decoded.config,
                resolved,
            )),
        },
        ..JobSpec::default()
    };
    Job {
        metadata,
        spec: Some(spec),
        status: None,
    }
}

/// A pod that its node took away does not count. A configuration that cannot be rendered stays so: our renderer says it by
/// its exit code, and the Job fails at once instead of after its retries. A foreign renderer's codes mean nothing here.
fn failure_policy(mode: RendererMode) -> PodFailurePolicy {
    let taken_away = PodFailurePolicyOnPodConditionsPattern {
        status: Some("True".to_owned()),
        type_: "DisruptionTarget".to_owned(),
    };
    let ignore = PodFailurePolicyRule {
        action: "Ignore".to_owned(),
        on_exit_codes: None,
        on_pod_conditions: Some(vec![taken_away]),
    };
    let permanent = PodFailurePolicyOnExitCodesRequirement {
        container_name: None,
        operator: "In".to_owned(),
        values: vec![PERMANENT_FAILURE.into()],
    };
    let fail = PodFailurePolicyRule {
        action: "FailJob".to_owned(),
        on_exit_codes: Some(permanent),
        on_pod_conditions: None,
    };
    let rules = match mode {
        RendererMode::Split => vec![ignore, fail],
        RendererMode::Single => vec![ignore],
    };
    PodFailurePolicy { rules }
}

fn metadata(place: &JobPlacement, task: &Task, resolved: &ResolvedTask) -> ObjectMeta {
    let (url, destination) = (resolved.reference.url(), destination(resolved));
    let marks = [
        (labels::MANAGED_BY, labels::MANAGED_BY_VALUE),
        (labels::HUB_ID, place.hub_id.as_str()),
        (labels::TASK_UID, task.id.uid.as_str()),
    ];
    let notes = [
        (labels::TASK_KIND, task.id.kind.as_str()),
        (labels::TASK_NAMESPACE, &task.id.namespace),
        (labels::TASK_NAME, &task.id.name),
        (labels::SPEC_HASH, &task.decoded.spec_hash),
        (labels::CHART_URL, &url),
        (labels::DESTINATION, &destination),
    ];
    ObjectMeta {
        name: Some(job_name(&task.id.name, &task.id.uid)),
        namespace: Some(place.namespace.clone()),
        labels: Some(pairs(&marks)),
        annotations: Some(pairs(&notes)),
        ..ObjectMeta::default()
    }
}

/// Everything that decides where the credential goes.
fn destination(resolved: &ResolvedTask) -> String {
    let ResolvedTask {
        reference,
        plain_http,
        credential,
        token_realm,
        ca,
        login,
        ..
    } = resolved;
    let version = login.as_ref().map(|login| &login.version);
    let all = format!(
        "{:?}",
        (reference.url(), plain_http, credential, token_realm, ca, version)
    );
    hex(&Sha256::digest(all.as_bytes()))
}

fn pairs(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}
