//! The watches of the hub's own Jobs and of their pods.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::mpsc;

use crate::api::labels::own_objects;
use crate::api::names::HubId;
use crate::base::metrics::Metrics;
use crate::kubernetes::pod_results::PodResults;
use crate::plan::task::job_state;

use super::endless::{change, run};
use super::event::{ReceivedEvent, TaskWatchEvent};
use super::job_metadata::{job_metadata, pod_task, task_of};

/// Watches the hub's Jobs by metadata until the channel closes.
pub async fn jobs(
    client: Client,
    namespace: String,
    hub_id: HubId,
    metrics: Metrics,
    out: mpsc::Sender<ReceivedEvent>,
) {
    let api: Api<PartialObjectMeta<Job>> = Api::namespaced(client, &namespace);
    let config = Config::default().labels(&own_objects(&hub_id));
    run(api, config, metrics, "jobs", out, |event| {
        let change = change(
            event,
            |o| job_metadata(&o.metadata),
            |o| job_metadata(&o.metadata).map(|mark| mark.task),
        )?;
        Some(TaskWatchEvent::Job(None, change))
    })
    .await;
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
