//! Looks from a pod of another namespace: a Job of this program's own image, whose pod says what it saw by its exit code alone.
//!
//! The Job is removed at the end. One that stays, because this process was ended before, is removed by Kubernetes, as its
//! manifest says.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use tokio::time::{sleep, timeout};

use super::error::{ProbeError, REACHED};

/// Longest that a call may take.
const CALL: Duration = Duration::from_secs(10);
/// Pause between two looks, and before a call is made again that was not answered.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest that a Job without a deadline of its own is waited for.
const LIMIT: Duration = Duration::from_secs(120);
/// Label of a Job's pods with the Job's UID.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// Why nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeJobError {
    Refused,
    Unanswered,
    Unfinished,
    Unclear,
}

/// A Job as the flag holds it.
pub(super) fn parse(text: &str) -> Result<Box<Job>, &'static str> {
    let job: Job = serde_json::from_str(text).map_err(|_| "it is no Job in JSON")?;
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    if job.metadata.namespace.is_none() || pod.is_none_or(|pod| pod.containers.len() != 1) {
        return Err("the Job must have a namespace, and one container");
    }
    Ok(Box::new(job))
}

/// Finds out whether the places are reached from the Job's pod.
pub(super) async fn unreachable(client: &Client, job: &Job, places: &[String]) -> Result<String, ProbeError> {
    let namespace = job.namespace().unwrap_or_default();
    let reported = places.join(" or ");
    match is_reached(client, &namespace, &asked(job, places)).await {
        Ok(false) => Ok(format!(
            "{reported} cannot be reached from pods of {namespace}: the cluster's network enforces NetworkPolicy"
        )),
        Ok(true) => Err(ProbeError::Reached(reported)),
        Err(ProbeJobError::Refused) => Err(ProbeError::Refused(namespace)),
        Err(ProbeJobError::Unanswered) => Err(ProbeError::Unanswered(namespace)),
        Err(ProbeJobError::Unfinished) => Err(ProbeError::Unfinished(namespace)),
        Err(ProbeJobError::Unclear) => Err(ProbeError::Unclear(namespace)),
    }
}

/// The Job with the question for its pod.
fn asked(job: &Job, places: &[String]) -> Job {
    let mut job = job.clone();
    let flags = places.iter().map(|place| format!("--unreachable={place}"));
    let args: Vec<String> = std::iter::once("probe".to_owned()).chain(flags).collect();
    let pod = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
    for container in pod.into_iter().flat_map(|pod| &mut pod.containers) {
        container.args = Some(args.clone());
    }
    job
}

async fn is_reached(client: &Client, namespace: &str, job: &Job) -> Result<bool, ProbeJobError> {
    let seconds = job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    let limit = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let end = Instant::now() + limit.map_or(LIMIT, Duration::from_secs);
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let made = insist(end, async || jobs.create(&PostParams::default(), job).await).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let code = ended(&pods, &made.uid().unwrap_or_default(), end).await;
    _ = timeout(CALL, jobs.delete(&made.name_any(), &DeleteParams::background())).await;
    verdict(code?)
}

/// The exit code of the Job's pod, once it has ended.
async fn ended(pods: &Api<Pod>, job: &str, end: Instant) -> Result<i32, ProbeJobError> {
    let own = ListParams::default().labels(&format!("{JOB_UID}={job}"));
    loop {
        let listed = insist(end, async || pods.list(&own).await).await?;
        if let Some(code) = listed.items.iter().find_map(exit_code) {
            return Ok(code);
        }
        if Instant::now() >= end {
            return Err(ProbeJobError::Unfinished);
        }
        sleep(PAUSE).await;
    }
}

/// Makes a call until it is answered, or time is up: a new pod's network may take a moment.
async fn insist<T>(end: Instant, call: impl AsyncFn() -> kube::Result<T>) -> Result<T, ProbeJobError> {
    loop {
        match timeout(CALL, call()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => {
                return Err(ProbeJobError::Refused);
            }
            _ if Instant::now() >= end => return Err(ProbeJobError::Unanswered),
            _ => sleep(PAUSE).await,
        }
    }
}

/// The code of a pod's container, once that has ended.
fn exit_code(pod: &Pod) -> Option<i32> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}

/// Whether something was reached; any other end of the pod shows nothing.
fn verdict(code: i32) -> Result<bool, ProbeJobError> {
    match code {
        0 => Ok(false),
        code if code == i32::from(REACHED) => Ok(true),
        _ => Err(ProbeJobError::Unclear),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_has_a_namespace_and_one_container_and_is_asked_of_every_place() {
        let container = json!({"name": "test", "image": "hub"});
        let job = |namespace, containers| {
            let pod = json!({"spec": {"containers": containers}});
            let job = json!({"metadata": {"namespace": namespace}, "spec": {"template": pod}});
            parse(&job.to_string())
        };
        for refused in [
            parse("{"),
            parse("{}"),
            job(json!(null), json!([container])),
            job(json!("rendering"), json!([])),
            job(json!("rendering"), json!([container, container])),
        ] {
            assert!(refused.is_err(), "{refused:?}");
        }
        let job = job(json!("rendering"), json!([container])).unwrap();
        let asked = asked(&job, &["a:1".to_owned(), "b:2".to_owned()]);
        let container = asked.spec.unwrap().template.spec.unwrap().containers.remove(0);
        let args = container.args.unwrap();
        assert_eq!(args, ["probe", "--unreachable=a:1", "--unreachable=b:2"]);
        assert_eq!(container.image.as_deref(), Some("hub"));
    }

    #[test]
    fn only_a_pod_that_ended_by_itself_tells_something() {
        for (state, expected) in [
            (json!({"waiting": {"reason": "ImagePullBackOff"}}), None),
            (json!({"running": {}}), None),
            (json!({"terminated": {"exitCode": 0}}), Some(Ok(false))),
            (json!({"terminated": {"exitCode": 3}}), Some(Ok(true))),
            (
                json!({"terminated": {"exitCode": 1}}),
                Some(Err(ProbeJobError::Unclear)),
            ),
            (
                json!({"terminated": {"exitCode": 137}}),
                Some(Err(ProbeJobError::Unclear)),
            ),
        ] {
            let container = json!({
                "name": "test", "image": "hub", "imageID": "", "ready": false, "restartCount": 0, "state": state,
            });
            let pod = json!({"metadata": {}, "status": {"containerStatuses": [container]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(exit_code(&pod).map(verdict), expected, "{state}");
        }
        assert_eq!(exit_code(&Pod::default()), None);
    }
}
