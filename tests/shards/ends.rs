//! Ends every Job of the hubs on every cluster, and holds those of one namespace until it is released.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow};
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use renderhub::api::labels::{HUB_ID, TASK_NAMESPACE, TASK_UID};
use renderhub_harness::finish::{self, Exit};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::fleet::{Fleet, Site};

/// Jobs of one cluster that are being ended.
const AT_ONCE: usize = 8;

/// A Job that runs.
#[derive(Clone)]
pub struct Running {
    client: Client,
    namespace: String,
    name: String,
    task: String,
}

#[derive(Default)]
struct State {
    /// UIDs of the Jobs of each task.
    jobs: BTreeMap<String, BTreeSet<String>>,
    /// The namespace whose Jobs are held.
    hold: Option<String>,
    held: Vec<Running>,
    /// Tasks whose Job was given a digest.
    with_digest: BTreeSet<String>,
    /// Why a Job could not be ended.
    failed: Option<String>,
}

/// Follows Jobs until it is dropped.
pub struct Ends {
    state: Arc<Mutex<State>>,
    _watches: JoinSet<()>,
}

impl Ends {
    /// Ends Jobs from now on but those of tasks in this namespace.
    pub fn start(fleet: &Fleet, hold: &str) -> Self {
        let state = Arc::new(Mutex::new(State {
            hold: Some(hold.to_owned()),
            ..State::default()
        }));
        let mut watches = JoinSet::new();
        for site in &fleet.sites {
            watches.spawn(follow(
                site.admin.clone(),
                site.namespace.clone(),
                Arc::clone(&state),
            ));
        }
        Self {
            state,
            _watches: watches,
        }
    }

    /// How many Jobs are held.
    ///
    /// # Errors
    /// If a Job could not be ended.
    pub fn held(&self) -> Result<usize> {
        let state = self.state();
        match &state.failed {
            Some(why) => Err(anyhow!("a Job could not be ended: {why}")),
            None => Ok(state.held.len()),
        }
    }

    /// Ends so many of the Jobs that are held, each with a digest of its own.
    pub async fn end_held(&self, count: usize) -> Result<()> {
        let some: Vec<_> = {
            let mut state = self.state();
            let count = count.min(state.held.len());
            let some: Vec<Running> = state.held.drain(..count).collect();
            state.with_digest.extend(some.iter().map(|job| job.task.clone()));
            some
        };
        for job in some {
            job.end_with_digest().await?;
        }
        Ok(())
    }

    /// Holds no Job from now on, and ends those that are held.
    pub async fn release(&self) -> Result<()> {
        self.state().hold = None;
        self.end_held(usize::MAX).await
    }

    /// Whether the Job of this task was held, and so has a digest.
    pub fn has_digest(&self, task: &str) -> bool {
        self.state().with_digest.contains(task)
    }

    /// UIDs of the Jobs that were seen of each task.
    pub fn jobs(&self) -> BTreeMap<String, BTreeSet<String>> {
        self.state().jobs.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow(client: Client, namespace: String, state: Arc<Mutex<State>>) {
    let api: Api<PartialObjectMeta<Job>> = Api::namespaced(client.clone(), &namespace);
    let of_hubs = watcher::Config::default().labels(HUB_ID);
    let events = watcher(api, of_hubs).default_backoff().applied_objects();
    let (mut events, mut seen) = (Box::pin(events), HashSet::new());
    let (slots, mut ending) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    while let Some(event) = events.next().await {
        // A watch that breaks starts again by itself.
        let Ok(job) = event else { continue };
        if job.metadata.deletion_timestamp.is_some() || !seen.insert(job.uid()) {
            continue;
        }
        let running = Running {
            client: client.clone(),
            namespace: namespace.clone(),
            name: job.name_any(),
            task: job.labels().get(TASK_UID).cloned().unwrap_or_default(),
        };
        let of = job.annotations().get(TASK_NAMESPACE);
        {
            let mut state = lock(&state);
            let jobs = state.jobs.entry(running.task.clone()).or_default();
            jobs.insert(job.uid().unwrap_or_default());
            if of.is_some() && of == state.hold.as_ref() {
                state.held.push(running);
                continue;
            }
        }
        let (slots, state) = (Arc::clone(&slots), Arc::clone(&state));
        ending.spawn(async move {
            let _slot = slots.acquire().await;
            if let Err(error) = running.end().await {
                lock(&state).failed = Some(format!("{error:#}"));
            }
        });
        while ending.try_join_next().is_some() {}
    }
}

impl Running {
    /// Completes it by the least that a hub takes for an end.
    async fn end(&self) -> Result<()> {
        let now = Timestamp::now().to_string();
        let condition = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": "CompletionsReached", "message": "",
                "lastProbeTime": now, "lastTransitionTime": now,
            })
        };
        let status = json!({"status": {
            "startTime": now, "completionTime": now, "active": 0, "ready": 0, "terminating": 0,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        }});
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(&status);
        jobs.patch_status(&self.name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    async fn end_with_digest(&self) -> Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let job = jobs
            .get(&self.name)
            .await
            .context("a Job that was held is not there any more")?;
        let digest = digest_of(&self.task);
        let message = json!({"phase": "Push", "reason": "Pushed", "digest": digest}).to_string();
        finish::pod_for_job(&self.client, &job, &[Exit::new("renderer", 0, message)]).await?;
        finish::complete_job(&self.client, &self.namespace, &self.name).await
    }
}

/// What the renderer of this task is made to report.
pub fn digest_of(task: &str) -> String {
    let hex: String = task.chars().filter(char::is_ascii_hexdigit).collect();
    format!("sha256:{hex:0<64}")
}

/// Whether a site is the hubs' own.
pub fn is_own(site: &Site) -> bool {
    site.cluster.is_none()
}
