//! Every result that any task ever had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobSucceeded};
use tokio::task::JoinHandle;

/// A task's end, as its status says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcome {
    pub is_success: bool,
    /// Why, as in the condition.
    pub reason: String,
    /// UID of the Job.
    pub job: Option<String>,
    pub digest: Option<String>,
    pub completed: Option<String>,
}

#[derive(Default)]
struct Known {
    /// Every recorded end of each task, by its UID.
    ends: BTreeMap<String, BTreeSet<Outcome>>,
    /// The state of each task that has not ended, by its UID.
    waiting: BTreeMap<String, String>,
}

type Seen = Arc<Mutex<Known>>;

/// Follows tasks until it is dropped.
pub struct Results {
    seen: Seen,
    watching: JoinHandle<()>,
}

impl Results {
    /// Records from now on the end in every task's status.
    pub fn start(client: &Client) -> Self {
        let seen = Seen::default();
        let watching = tokio::spawn(follow(client.clone(), Arc::clone(&seen)));
        Self { seen, watching }
    }

    /// Tasks that have ended.
    pub fn ended(&self) -> usize {
        lock(&self.seen).ends.len()
    }

    /// The states of some of the tasks that have not ended.
    pub fn waiting(&self) -> String {
        let known = lock(&self.seen);
        let some: Vec<_> = known.waiting.values().take(5).cloned().collect();
        format!(
            "{} tasks have not ended:\n{}",
            known.waiting.len(),
            some.join("\n")
        )
    }

    /// Every recorded end of each task, by its UID.
    pub fn all(&self) -> BTreeMap<String, BTreeSet<Outcome>> {
        lock(&self.seen).ends.clone()
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

async fn follow(client: Client, seen: Seen) {
    let api: Api<RenderTask> = Api::all(client);
    let events = watcher(api, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let mut events = Box::pin(events);
    while let Some(event) = events.next().await {
        // A watch that breaks starts again by itself.
        let Ok(task) = event else { continue };
        let (uid, mut known) = (task.uid().unwrap_or_default(), lock(&seen));
        if let Some(outcome) = outcome_of(&task) {
            known.waiting.remove(&uid);
            known.ends.entry(uid).or_default().insert(outcome);
        } else {
            known.waiting.insert(uid, stands(&task));
        }
    }
}

fn lock(seen: &Mutex<Known>) -> MutexGuard<'_, Known> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which task, where it is to run, and the reasons of its conditions.
fn stands(task: &RenderTask) -> String {
    let conditions = task.status.iter().flat_map(|status| &status.conditions);
    let reasons: Vec<_> = conditions
        .map(|c| format!("{}={} {}", c.type_, c.status, c.reason))
        .collect();
    let (namespace, name) = (task.namespace().unwrap_or_default(), task.name_any());
    format!(
        "{namespace}/{name} for {:?}: {}",
        task.spec.cluster_name,
        reasons.join(", ")
    )
}

/// What the status says of the end; `None` while there is none.
fn outcome_of(task: &RenderTask) -> Option<Outcome> {
    let status = task.status.as_ref()?;
    let is_so = |kind: &str| {
        let mut found = status.conditions.iter();
        found.find(|c| c.type_ == kind && c.status == "True")
    };
    let (is_success, condition) = match is_so(JobSucceeded.as_str()) {
        Some(condition) => (true, condition),
        None => (false, is_so(JobFailed.as_str())?),
    };
    Some(Outcome {
        is_success,
        reason: condition.reason.clone(),
        job: status.job_ref.as_ref().and_then(|job| job.uid.clone()),
        digest: status.digest.clone(),
        completed: status.completion_time.as_ref().map(|time| time.0.to_string()),
    })
}
