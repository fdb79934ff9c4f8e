//! Ending Jobs and Pods without running anything, by writing the status that their controllers would write.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::wait_for;

/// Longest that a pod may wait for others to be counted.
const COUNTED: Duration = Duration::from_secs(30);

/// How a container ended.
#[derive(Debug, Clone, Default)]
pub struct Exit {
    /// The container's name; init containers too.
    pub container: String,
    /// Its exit code.
    pub code: i32,
    /// What it wrote to its termination log.
    pub message: String,
}

impl Exit {
    /// A container that ended with `code` and left `message`.
    #[must_use]
    pub fn new(container: &str, code: i32, message: impl Into<String>) -> Self {
        Self {
            container: container.to_owned(),
            code,
            message: message.into(),
        }
    }
}

/// How a Job is to end.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Every container ended with 0; the last one left this termination message.
    Complete(String),
    /// A container ended as given, and the Job failed with this reason, e.g. `BackoffLimitExceeded`.
    Failed(String, Exit),
}

/// Ends a Job as the real controllers would: first a Pod of it that has ended, then the Job's conditions.
///
/// # Errors
/// If the API server refuses.
pub async fn end_job(client: &Client, job: &Job, outcome: &Outcome) -> Result<()> {
    let namespace = job.namespace().context("a Job without a namespace")?;
    let containers = job
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .map(|spec| &spec.containers);
    let last = containers
        .and_then(|containers| containers.last())
        .context("a Job without containers")?;
    match outcome {
        Outcome::Complete(message) => {
            pod_for_job(client, job, &[Exit::new(&last.name, 0, message)]).await?;
            complete_job(client, &namespace, &job.name_any()).await
        }
        Outcome::Failed(reason, exit) => {
            pod_for_job(client, job, std::slice::from_ref(exit)).await?;
            fail_job(client, &namespace, &job.name_any(), reason).await
        }
    }
}

/// Times that a call is made again whose connection ended.
const TRIES: usize = 3;
/// Jobs that are ended at a time.
const AT_ONCE: usize = 4;

/// Ends every Job of a namespace as `outcome` says, for ever: spawn it as a task and abort that at the end.
///
/// For control planes without the Job controller. Jobs that vanish meanwhile are left alone.
///
/// # Errors
/// If the API server refuses to let a Job end.
pub async fn every_job(client: Client, namespace: &str, outcome: impl Fn(&Job) -> Outcome) -> Result<()> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let events = watcher(jobs, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let mut seen = HashSet::new();
    let running = events.filter_map(|event| {
        // A watch that breaks starts again by itself.
        let job = event.ok().filter(|job| {
            job.metadata.deletion_timestamp.is_none() && seen.insert(job.uid()) && !has_ended(job)
        });
        futures::future::ready(job.map(|job| (outcome(&job), job)))
    });
    let ended = running.map(|(outcome, job)| {
        let client = client.clone();
        async move { Box::pin(end_job(&client, &job, &outcome)).await }
    });
    let mut ended = Box::pin(ended.buffer_unordered(AT_ONCE));
    while let Some(ended) = ended.next().await {
        match ended {
            Err(error) if !is_gone(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn has_ended(job: &Job) -> bool {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|c| c.status == "True" && ["Complete", "Failed"].contains(&c.type_.as_str()))
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.is_not_found())
}

/// Gives a Job the condition `Complete`, as the Job controller of Kubernetes 1.36 does: `SuccessCriteriaMet` with it.
///
/// # Errors
/// If the API server refuses.
pub async fn complete_job(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let now = Timestamp::now().to_string();
    let conditions = [
        condition("SuccessCriteriaMet", "CompletionsReached", &now),
        condition("Complete", "CompletionsReached", &now),
    ];
    let status = json!({ "completionTime": now, "succeeded": 1, "conditions": conditions });
    job_status(client, namespace, name, status, &now).await
}

/// Gives a Job the condition `Failed` with a reason such as `BackoffLimitExceeded` or `DeadlineExceeded`.
///
/// # Errors
/// If the API server refuses.
pub async fn fail_job(client: &Client, namespace: &str, name: &str, reason: &str) -> Result<()> {
    let now = Timestamp::now().to_string();
    let conditions = [
        condition("FailureTarget", reason, &now),
        condition("Failed", reason, &now),
    ];
    job_status(
        client,
        namespace,
        name,
        json!({ "failed": 1, "conditions": conditions }),
        &now,
    )
    .await
}

fn condition(kind: &str, reason: &str, now: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": reason, "message": "", "lastProbeTime": now, "lastTransitionTime": now })
}

async fn job_status(
    client: &Client,
    namespace: &str,
    name: &str,
    mut status: Value,
    now: &str,
) -> Result<()> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let before = jobs.get(name).await?.status.unwrap_or_default();
    // A Job that has ended must have started, and may not count pods that still run.
    let started = before
        .start_time
        .map_or_else(|| now.to_owned(), |time| time.0.to_string());
    for (field, value) in [
        ("startTime", json!(started)),
        ("active", json!(0)),
        ("ready", json!(0)),
        ("terminating", json!(0)),
    ] {
        status[field] = value;
    }
    let patch = Patch::Merge(json!({ "status": status }));
    let parameters = PatchParams::default();
    answered(|| jobs.patch_status(name, &parameters, &patch)).await?;
    Ok(())
}

/// The answer to a call that may be made twice; it is made again where the connection ends before the answer, as one that the API
/// server closes because it was idle does.
async fn answered<T, F: Future<Output = kube::Result<T>>>(call: impl Fn() -> F) -> kube::Result<T> {
    for _ in 0..TRIES {
        match Box::pin(call()).await {
            Err(kube::Error::Service(_) | kube::Error::HyperError(_)) => {}
            answer => return answer,
        }
    }
    Box::pin(call()).await
}

/// Makes the Pod that the Job controller would make for `job`, already ended as `exits` says.
///
/// For control planes without the Job controller; otherwise take the Job's own pod and use [`end_pod`].
///
/// # Errors
/// If the API server refuses.
pub async fn pod_for_job(client: &Client, job: &Job, exits: &[Exit]) -> Result<Pod> {
    let namespace = job.namespace().context("a Job without a namespace")?;
    let template = &job.spec.as_ref().context("a Job without a spec")?.template;
    let owner = OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: job.name_any(),
        uid: job.uid().context("a Job without a UID")?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let from = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(format!("{}-", job.name_any())),
        labels: from.labels,
        annotations: from.annotations,
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let pod = Pod {
        metadata,
        spec: template.spec.clone(),
        status: None,
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let created = wait_for("a pod to be counted by its quota", COUNTED, async || {
        match pods.create(&PostParams::default(), &pod).await {
            // Several pods at once are counted one after the other; the Job controller tries again as well.
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(None),
            created => Ok(Some(created?)),
        }
    });
    end_pod(client, &created.await?, exits).await
}

/// Ends a Pod: phase `Failed` if any container ended with another code than 0, else `Succeeded`.
///
/// Containers that `exits` does not name ended with 0; after an init container that failed, the others never started.
///
/// # Errors
/// If the API server refuses.
pub async fn end_pod(client: &Client, pod: &Pod, exits: &[Exit]) -> Result<Pod> {
    let namespace = pod.namespace().context("a Pod without a namespace")?;
    let spec = pod.spec.as_ref().context("a Pod without a spec")?;
    let now = Time(Timestamp::now());
    let (init, init_failed) = statuses(
        spec.init_containers.as_deref().unwrap_or_default(),
        exits,
        &now,
        false,
    );
    let (main, main_failed) = statuses(&spec.containers, exits, &now, init_failed);
    let phase = if init_failed || main_failed {
        "Failed"
    } else {
        "Succeeded"
    };
    let status = json!({
        "phase": phase,
        "startTime": now,
        "initContainerStatuses": init,
        "containerStatuses": main,
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let patch = Patch::Merge(json!({ "status": status }));
    let (name, parameters) = (pod.name_any(), PatchParams::default());
    Ok(answered(|| pods.patch_status(&name, &parameters, &patch)).await?)
}

fn statuses(containers: &[Container], exits: &[Exit], now: &Time, never_started: bool) -> (Vec<Value>, bool) {
    let mut failed = false;
    let mut statuses = Vec::new();
    for container in containers {
        let exit = exits
            .iter()
            .find(|exit| exit.container == container.name)
            .cloned()
            .unwrap_or_default();
        let state = if never_started || failed {
            json!({ "waiting": { "reason": "PodInitializing" } })
        } else {
            failed |= exit.code != 0;
            let reason = if exit.code == 0 { "Completed" } else { "Error" };
            json!({ "terminated": {
                "exitCode": exit.code, "reason": reason, "message": exit.message,
                "startedAt": now, "finishedAt": now,
            }})
        };
        statuses.push(json!({
            "name": container.name, "image": container.image, "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }));
    }
    (statuses, failed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_call_whose_connection_ends_is_made_again_and_one_that_is_refused_is_not() {
        let broken = || kube::Error::Service("connection closed before message completed".into());
        let refused = || kube::Error::Api(kube::core::Status::failure("no", "Forbidden").boxed());
        // How often the connection ends first, how the call ends, and how often it is made then.
        for (ends, is_refused, made) in [(0, false, 1), (2, false, 3), (9, false, TRIES + 1), (1, true, 2)] {
            let calls = AtomicUsize::new(0);
            let answer = answered(|| {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                let answer = match call {
                    _ if call < ends => Err(broken()),
                    _ if is_refused => Err(refused()),
                    _ => Ok(call),
                };
                futures::future::ready(answer)
            });
            let is_answered = answer.await.is_ok();
            assert_eq!(
                (calls.load(Ordering::Relaxed), is_answered),
                (made, ends < made && !is_refused)
            );
        }
    }
}
