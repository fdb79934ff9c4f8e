//! What runs beside a test: who ends Jobs, and who notes what became of tasks.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use renderhub::api::RenderTask;
use renderhub::api::labels::TASK_NAME;
use renderhub_harness::finish::{self, Outcome};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::support::DIGEST;
use crate::world::{Ended, HELD, key};

/// Jobs that are ended at once.
const AT_ONCE: usize = 8;

/// Notes every status of tasks that ended; one that never changes counts once.
pub async fn note(tasks: Api<RenderTask>, namespaces: Vec<String>, ended: Ended) {
    let events = watcher(tasks, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let Ok(task) = event else { continue };
        let key = key(&task);
        let Some(status) = task.status.filter(|_| namespaces.contains(&key.0)) else {
            continue;
        };
        let ends = ["JobSucceeded", "JobFailed"];
        let mut conditions = status.conditions.iter();
        let has_ended = conditions.any(|c| c.status == "True" && ends.contains(&c.type_.as_str()));
        let mut all = ended.lock().unwrap_or_else(PoisonError::into_inner);
        if has_ended || all.contains_key(&key) {
            let results = all.entry(key).or_default();
            if !results.contains(&status) {
                results.push(status);
            }
        }
    }
}

/// Lets every Job succeed but those that are held, several at once: a busy API server is not to be waited for in line.
pub async fn end_jobs(client: kube::Client, namespace: String) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    let said = json!({"phase": "Push", "reason": "Pushed", "digest": DIGEST}).to_string();
    let outcome = Outcome::Complete(said);
    let mut seen = BTreeSet::new();
    let fresh = watcher(jobs, watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .filter_map(|event| std::future::ready(event.ok()))
        .filter(|job| {
            let name = job.annotations().get(TASK_NAME);
            let is_held = name.is_some_and(|name| name.starts_with(HELD));
            let is_fresh = !is_held && job.metadata.deletion_timestamp.is_none() && seen.insert(job.uid());
            std::future::ready(is_fresh)
        });
    fresh
        .for_each_concurrent(AT_ONCE, |job| {
            let (client, outcome) = (&client, &outcome);
            async move {
                let ended = finish::end_job(client, &job, outcome).await;
                ended.expect("Jobs can be ended");
            }
        })
        .await;
}

pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(work))
}
