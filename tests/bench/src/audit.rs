//! What the API server says that a user asked of it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use renderhub::api::labels::GROUP;
use renderhub::kubernetes::seal_key;
use renderhub_harness::audit::{Event, Mark};
use renderhub_harness::{Audit, Identity};

use crate::measure::number;
use crate::objects::PUSH_SECRET;

/// Whether a request is about one task, its Job, its config Secret or its pods; all others are of the hub as a whole.
fn is_of_one_task(event: &Event) -> bool {
    match event.resource.as_str() {
        "rendertasks" | "jobs" => event.verb != "list" && event.verb != "watch",
        // The platform's credential and the hub's key are Secrets too, read at its start.
        "secrets" => {
            ![PUSH_SECRET, seal_key::NAME].contains(&event.name.as_str())
                && event.verb != "list"
                && event.verb != "watch"
        }
        // The hub watches pods; it lists those of a task where their event is late.
        "pods" => event.verb != "watch",
        _ => false,
    }
}

/// A user's completed requests.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// How many of each verb and resource, e.g. `patch rendertasks/status`.
    pub counts: BTreeMap<String, usize>,
    /// Writes on tasks, config Secrets and Jobs.
    pub writes: usize,
    /// Writes on anything but the Lease, which a hub renews while it does nothing, and the questions about rights and about who
    /// it is, which are asked by a create and leave nothing behind.
    pub all_writes: usize,
    /// Every write but those questions, by verb, resource and name; the Lease among them.
    pub written: BTreeMap<String, usize>,
    /// Reads of such an object, or of a task's pods.
    pub reads: usize,
    /// From the arrival of the first such write to the answer of the last, in seconds.
    pub seconds: f64,
    /// Arrival of the first write to an object of renderhub's kinds.
    first_own: Option<Timestamp>,
    /// Answer of the last write of each verb and resource.
    last: BTreeMap<String, Timestamp>,
}

impl Requests {
    /// Those of `user` since `from`.
    ///
    /// # Errors
    /// If the audit log cannot be read.
    pub async fn since(audit: &Audit, from: Mark, user: &Identity) -> Result<Self> {
        Self::of_users(audit, from, &[user]).await
    }

    /// Those of all these users together.
    ///
    /// # Errors
    /// If the audit log cannot be read.
    pub async fn of_users(audit: &Audit, from: Mark, users: &[&Identity]) -> Result<Self> {
        let events = audit.since(from).await?;
        let is_theirs = |e: &Event| users.iter().any(|user| user.name() == e.user);
        let completed = |e: &&Event| is_theirs(e) && e.stage == "ResponseComplete";
        Ok(Self::of(events.iter().filter(completed)))
    }

    fn of<'a>(events: impl Iterator<Item = &'a Event>) -> Self {
        let mut requests = Self::default();
        let (mut first, mut last) = (None, None);
        for event in events {
            *requests.counts.entry(event.action()).or_default() += 1;
            if event.is_write() && !is_question(event) {
                let what = format!("{} {}", event.action(), event.name);
                *requests.written.entry(what).or_default() += 1;
                requests.all_writes += usize::from(event.resource != "leases");
                if event.group == GROUP {
                    let known = requests.first_own.into_iter();
                    requests.first_own = known.chain([event.received]).min();
                }
                let last = requests.last.entry(event.action()).or_insert(event.reached);
                *last = event.reached.max(*last);
            }
            if !is_of_one_task(event) {
                continue;
            }
            if event.is_write() {
                requests.writes += 1;
                first = first.into_iter().chain([event.received]).min();
                last = last.into_iter().chain([event.reached]).max();
            }
            requests.reads += usize::from(!event.is_write());
        }
        if let (Some(first), Some(last)) = (first, last) {
            requests.seconds = last.duration_since(first).as_secs_f64();
        }
        requests
    }

    /// How many there are but for those that a hub makes as a hub: on Leases and about rights, whether there are tasks or not,
    /// and for events, of which it makes a few a second however many tasks there are.
    pub fn of_tasks(&self) -> usize {
        let housekeeping = |action: &str| HOUSEKEEPING.iter().any(|resource| action.ends_with(resource));
        let of_tasks = self.counts.iter().filter(|(action, _)| !housekeeping(action));
        of_tasks.map(|(_, count)| count).sum()
    }

    /// Counts those of another run too.
    pub fn add_counts(&mut self, other: &Self) {
        for (action, count) in &other.counts {
            *self.counts.entry(action.clone()).or_default() += count;
        }
    }

    /// How many there are of a verb and resource.
    pub fn count(&self, action: &str) -> usize {
        self.counts.get(action).copied().unwrap_or_default()
    }

    /// From the arrival of the first write to an object of renderhub's kinds to the answer of the last of this verb and resource.
    ///
    /// # Errors
    /// If there was none.
    pub fn seconds_until(&self, action: &str) -> Result<f64> {
        let ends = self.first_own.zip(self.last.get(action));
        let (first, last) = ends.context("the audit log has no writes of this run")?;
        Ok(last.duration_since(first).as_secs_f64())
    }

    /// Tasks a second, if these are the writes of so many tasks.
    ///
    /// # Errors
    /// If there were no writes.
    pub fn pace(&self, tasks: usize) -> Result<f64> {
        let seconds = Some(self.seconds).filter(|seconds| *seconds > 0.0);
        Ok(number(tasks) / seconds.context("the audit log has no writes of this run")?)
    }
}

/// Ends of the actions that are a hub's and no task's.
const HOUSEKEEPING: [&str; 6] = [
    " leases",
    " events",
    " selfsubjectreviews",
    " selfsubjectrulesreviews",
    " selfsubjectaccessreviews",
    " localsubjectaccessreviews",
];

/// What leaves nothing behind, although it is asked by a create.
fn is_question(event: &Event) -> bool {
    let groups = ["authentication.k8s.io", "authorization.k8s.io"];
    groups.contains(&event.group.as_str()) && event.resource.ends_with("reviews")
}
