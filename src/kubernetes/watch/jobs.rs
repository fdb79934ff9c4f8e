//! The watches of the hub's own Jobs and of their pods.

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::mpsc;

use crate::api::labels::own_objects;
use crate::api::names::HubId;
use crate::base::metrics::Metrics;
use crate::kubernetes::object::FetchedJob;
use crate::kubernetes::pod_results::PodResults;
use crate::plan::task::job_state::{self, CompletionHint, JobProgress};

use super::endless::{change, run};
use super::event::{ReceivedEvent, TaskWatchEvent};
use super::job_metadata::{JobMetadata, job_metadata, pod_task, task_of};

/// Jobs in a page where a server cannot stream its lists. A Job is as large as its class makes it, and a page of 500, which is usual, is
/// decoded at once.
const JOB_PAGE: u32 = 50;

/// Watches the hub's Jobs until the channel closes: one that ended need not be read.
pub async fn jobs(
    client: Client,
    namespace: String,
    hub_id: HubId,
    metrics: Metrics,
    out: mpsc::Sender<ReceivedEvent>,
) {
    let api: Api<FetchedJob> = Api::namespaced(client, &namespace);
    let config = Config::default()
        .page_size(JOB_PAGE)
        .labels(&own_objects(&hub_id));
    run(api, config, metrics, "jobs", out, |event| {
        let change = change(event, |job| seen(&job), |job| seen(job).map(|mark| mark.task))?;
        Some(TaskWatchEvent::Job(None, change))
    })
    .await;
}

/// A Job that a watch shows: its conditions say whether it has ended, so nothing is left to a hint.
fn seen(job: &FetchedJob) -> Option<JobMetadata> {
    let ended =
        job_state::read_job(&job.metadata, &job.status).filter(|job| job.progress != JobProgress::Running);
    let hint = if ended.is_some() {
        CompletionHint::Now
    } else {
        CompletionHint::No
    };
    Some(JobMetadata {
        ended: ended.map(Box::new),
        ..job_metadata(&job.metadata, hint)?
    })
}

/// Watches the hub's ended pods until the channel closes, and stores their termination messages.
pub async fn pods(
    client: Client,
    namespace: String,
    hub_id: HubId,
    metrics: Metrics,
    notes: PodResults,
    out: mpsc::Sender<ReceivedEvent>,
) {
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let ended = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";
    let config = Config::default().labels(&own_objects(&hub_id)).fields(ended);
    run(api, config, metrics, "pods", out, move |event| {
        match event {
            Event::Init => notes.clear(),
            Event::InitDone => return Some(TaskWatchEvent::PodsSeen),
            Event::Apply(pod) | Event::InitApply(pod) => {
                let (task, note) = (pod_task(&pod.metadata)?, job_state::read_pod(&pod)?);
                notes.put(task, note);
            }
            Event::Delete(pod) => notes.remove(&task_of(&pod.metadata)?, pod.metadata.uid.as_deref()?),
        }
        None
    })
    .await;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::{TaskUid, job_name};

    /// What a watch shows of a Job with these conditions, all of which hold.
    fn shown(conditions: &[&str]) -> JobMetadata {
        let name = job_name("shop", &TaskUid::new("t1"));
        let held = |type_: &&str| json!({"type": type_, "status": "True", "lastTransitionTime": "2026-11-27T12:00:00Z"});
        let conditions: Vec<Value> = conditions.iter().map(held).collect();
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "uid": "j1", "labels": {"renderhub.dev/task-uid": "t1"},
                "annotations": {"renderhub.dev/spec-hash": "abc"}, "managedFields": []},
            "spec": {"template": {"spec": {"containers": [{"name": "renderer"}]}}},
            "status": {"conditions": conditions, "succeeded": 1, "ready": 0},
        });
        seen(&serde_json::from_value(job).unwrap()).unwrap()
    }

    #[test]
    fn a_job_that_ended_is_shown_whole_and_one_that_runs_is_not_read_at_all() {
        for running in [
            &[][..],
            &["Suspended"],
            &["SuccessCriteriaMet"],
            &["FailureTarget"],
        ] {
            let job = shown(running);
            assert_eq!((job.hint, job.ended), (CompletionHint::No, None), "{running:?}");
        }
        let job = shown(&["SuccessCriteriaMet", "Complete"]);
        let ended = job.ended.unwrap();
        assert_eq!(job.hint, CompletionHint::Now);
        assert!(matches!(ended.progress, JobProgress::Complete(_)), "{ended:?}");
        assert_eq!(
            (ended.uid.as_str(), ended.spec_hash.as_str(), ended.attempts),
            ("j1", "abc", 1)
        );
        let failed = shown(&["FailureTarget", "Failed"]).ended.unwrap();
        assert!(
            matches!(failed.progress, JobProgress::Failed(_, false)),
            "{failed:?}"
        );
    }
}
