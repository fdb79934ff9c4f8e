//! Ends every Job of the hub's on both sides a moment after it came: those of the failing tenant as failed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{PartialObjectMeta, Request};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use renderhub::api::labels::{HUB_ID, TASK_NAMESPACE};
use serde_json::json;
use tokio::task::JoinSet;

use super::Ground;
use super::tenants::Whose;
use crate::{finisher, wire};

/// How long a Job runs.
const RUNS: Duration = Duration::from_millis(300);
/// Jobs that are ended at once.
const AT_ONCE: usize = 64;

/// Ends Jobs until it is dropped.
pub fn start(ground: &Arc<Ground>) -> JoinSet<()> {
    let world = &ground.stage.world;
    let failing = world.namespaces()[Whose::Failing as usize].clone();
    let mut all = JoinSet::new();
    for client in [&world.admin, &ground.stage.admin] {
        all.spawn(end_all(client.clone(), world.hub_id.clone(), failing.clone()));
    }
    all
}

async fn end_all(client: Client, hub: String, failing: String) {
    let jobs: Api<PartialObjectMeta<Job>> = Api::all(client.clone());
    let own = watcher::Config::default().labels(&format!("{HUB_ID}={hub}"));
    let mut seen = HashSet::new();
    watcher(jobs, own)
        .default_backoff()
        .applied_objects()
        // A watch that breaks is opened again by itself.
        .filter_map(async |event| event.ok())
        .filter(move |job| std::future::ready(seen.insert(job.uid())))
        .for_each_concurrent(AT_ONCE, |job| {
            let request = if job.annotations().get(TASK_NAMESPACE) == Some(&failing) {
                fail(&job)
            } else {
                finisher::complete(&job.namespace().unwrap_or_default(), &job.name_any())
            };
            let client = client.clone();
            async move {
                tokio::time::sleep(RUNS).await;
                // A Job that is gone meanwhile has ended as well.
                _ = wire::send(&client, request).await;
            }
        })
        .await;
}

/// The status that the Job controller would write after the last attempt.
fn fail(job: &PartialObjectMeta<Job>) -> wire::Request {
    let now = Timestamp::now().to_string();
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "",
            "lastProbeTime": now, "lastTransitionTime": now,
        })
    };
    let body = json!({"status": {
        "startTime": now, "active": 0, "ready": 0, "terminating": 0, "failed": 1,
        "conditions": [condition("FailureTarget"), condition("Failed")],
    }});
    let path = Job::url_path(&(), Some(&job.namespace().unwrap_or_default()));
    Request::new(path).patch_subresource(
        "status",
        &job.name_any(),
        &PatchParams::default(),
        &Patch::Merge(&body),
    )
}
