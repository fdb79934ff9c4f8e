//! The Job finisher, a process of its own: completes each Job of its hubs by one status patch, and makes no pods.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use renderhub::api::labels::HUB_ID;
use renderhub::kubernetes::object::FetchedJob;
use serde_json::json;

use crate::options::FinisherArgs;
use crate::wire::{self, IN_FLIGHT};

/// Jobs that may be at work, far more than a hub allows.
const AT_WORK: usize = 2000;

/// Completes Jobs until it is killed.
///
/// # Errors
/// If the API server refuses to let a Job complete.
pub async fn run(args: &FinisherArgs) -> Result<()> {
    let part = &args.part;
    let client = wire::client().await?;
    // Whole objects, as the Job controller watches them: metadata alone cost the API server several times as much.
    let jobs: Api<FetchedJob> = Api::namespaced(client.clone(), &part.rendering_namespace);
    let own = watcher::Config::default().labels(&format!("{HUB_ID} in ({})", part.hub_id));
    let mut seen = HashSet::new();
    let new = watcher(jobs, own)
        .default_backoff()
        .applied_objects()
        // A watch that breaks is opened again by itself.
        .filter_map(async |event| event.ok())
        .filter(move |job| futures::future::ready(seen.insert(job.uid())));
    if args.only_watches {
        new.for_each(async |_| ()).await;
        return Ok(());
    }
    let lasts = Duration::from_millis(args.job_millis);
    let over = new.map(|job| async move {
        // A sleep of nothing takes a millisecond.
        if !lasts.is_zero() {
            tokio::time::sleep(lasts).await;
        }
        job
    });
    over.buffer_unordered(AT_WORK)
        .map(Ok)
        .try_for_each_concurrent(IN_FLIGHT, |job| {
            let request = complete(&part.rendering_namespace, &job.name_any());
            let client = client.clone();
            async move {
                match wire::send(&client, request).await {
                    Err(error) if !wire::is_not_found(&error) => Err(error),
                    _ => Ok(()),
                }
            }
        })
        .await
}

/// The status that the Job controller would write when the pod has succeeded, but for its count of pods: there is none.
pub fn complete(namespace: &str, job: &str) -> wire::Request {
    let now = Timestamp::now().to_string();
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "CompletionsReached", "message": "",
            "lastProbeTime": now, "lastTransitionTime": now,
        })
    };
    let body = json!({"status": {
        "startTime": now, "completionTime": now, "active": 0, "ready": 0, "terminating": 0,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    Request::new(Job::url_path(&(), Some(namespace))).patch_subresource(
        "status",
        job,
        &PatchParams::default(),
        &Patch::Merge(&body),
    )
}
