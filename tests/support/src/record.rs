//! What happened, read back: every status of a task, every request of the hub, and all of its output.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::discovery::ApiResource;
use kube::{Resource, ResourceExt};
use renderhub::api::{ClusterRegistry, ClusterRenderTask, RenderTask, RenderTaskStatus};
use renderhub_harness::audit::{self, Mark};
use renderhub_harness::wait_for;
use serde_json::Value;

use super::{LIMIT, Stage};

impl Stage {
    /// Every status the task has had since it was submitted, in order. A task that is gone ends with its last one.
    pub async fn history(&self, task: &RenderTask) -> Result<Vec<RenderTaskStatus>> {
        let name = task.name_any();
        let now = self.tasks().get_opt(&name).await?;
        let last = now
            .filter(|t| t.uid() == task.uid())
            .and_then(|t| t.resource_version());
        let begin = task.resource_version().context("a task that was submitted")?;
        if last.as_ref() == Some(&begin) {
            return Ok(Vec::new());
        }
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = self.tasks().watch(&only, &begin).await?.boxed();
        let mut all = Vec::new();
        loop {
            let event = tokio::time::timeout(LIMIT, events.next()).await?;
            match event.context("the watch ended early")?? {
                WatchEvent::Added(t) | WatchEvent::Modified(t) => {
                    let is_last = t.resource_version() == last;
                    all.extend(t.status);
                    if is_last {
                        return Ok(all);
                    }
                }
                WatchEvent::Deleted(t) => {
                    all.extend(t.status);
                    return Ok(all);
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => anyhow::bail!("the watch broke with code {}", status.code),
            }
        }
    }

    /// Every request that this stage's hub has made so far for its tasks and that was answered, in order.
    pub async fn requests(&self) -> Result<Vec<audit::Event>> {
        let audit = self.plane.audit()?;
        let mut events = audit.since_with(Mark::START, self.hub_user.name()).await?;
        // The harness asks in the hub's name whether the hub's rights are in force; a hub asks before it starts, and keeps
        // its Lease as long as it runs, whatever there is to do.
        let is_hubs = |e: &audit::Event| {
            e.user == self.hub_user.name() && e.stage == "ResponseComplete" && !is_housekeeping(e)
        };
        events.retain(is_hubs);
        Ok(events)
    }

    /// Namespaces in which this stage's hub has sent a request since then, or with `writes` has changed something. Housekeeping
    /// does not count, nor reads of a namespace itself.
    pub async fn namespaces_since(&self, begin: Mark, writes: bool) -> Result<BTreeSet<String>> {
        let audit = self.plane.audit()?;
        let events = audit.since_with(begin, self.hub_user.name()).await?;
        let of_hub = events
            .into_iter()
            .filter(|e| e.user == self.hub_user.name() && e.resource != "namespaces" && !is_housekeeping(e));
        let asked = of_hub.filter(|e| !e.namespace.is_empty() && (e.is_write() || !writes));
        Ok(asked.map(|e| e.namespace).collect())
    }

    /// How often the hub was answered with success to requests of this action on objects of this name.
    pub async fn successes(&self, action: &str, name: &str) -> Result<usize> {
        let is_one = |e: &&audit::Event| e.action() == action && e.name == name && e.code < 300;
        Ok(self.requests().await?.iter().filter(is_one).count())
    }

    /// All output of the hub that a person could read: statuses, events, its log, its metrics.
    pub async fn everything_said(&self) -> Result<String> {
        let mut text = String::new();
        let tasks: Api<DynamicObject> =
            Api::namespaced_with(self.admin.clone(), &self.scope.tenant, &raw::<RenderTask>());
        let own = ListParams::default();
        for object in tasks.list(&own).await? {
            writeln!(text, "{}", object.data["status"])?;
        }
        for kind in [raw::<ClusterRegistry>(), raw::<ClusterRenderTask>()] {
            let api: Api<DynamicObject> = Api::all_with(self.admin.clone(), &kind);
            for object in api.list(&own).await? {
                writeln!(text, "{}", object.data["status"])?;
            }
        }
        for event in self.events().await? {
            writeln!(text, "{}", serde_json::to_string(&event)?)?;
        }
        if let Some(hub) = &self.hub {
            writeln!(text, "{}\n{}", hub.log(), hub.metrics().await?)?;
        }
        Ok(text)
    }

    /// The events in the tenant's namespace about renderhub's kinds.
    pub async fn events(&self) -> Result<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.admin.clone(), &self.scope.tenant);
        let mut events = api.list(&ListParams::default()).await?.items;
        let speaks_of_ours = |e: &Event| {
            let kind = e.regarding.as_ref().and_then(|r| r.kind.clone());
            kind.is_some_and(|kind| kind == "RenderTask")
        };
        events.retain(speaks_of_ours);
        Ok(events)
    }
}

impl Stage {
    /// How often the hub counted this, summed over the series whose labels hold all of these.
    pub async fn counted(&self, name: &str, labels: &[&str]) -> Result<u64> {
        let text = self.hub().metrics().await?;
        let series = text
            .lines()
            .filter(|l| l.starts_with(name) && labels.iter().all(|label| l.contains(label)));
        Ok(series
            .filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
            .sum())
    }
}

/// Whether a request belongs to no task.
pub fn is_housekeeping(event: &audit::Event) -> bool {
    let groups = [
        "authorization.k8s.io",
        "authentication.k8s.io",
        "coordination.k8s.io",
    ];
    groups.contains(&event.group.as_str())
}

/// A kind whose objects are read as they are, whatever the Rust type thinks of them.
pub fn raw<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

/// The status and reason of a condition of any object.
pub fn condition_of(object: &DynamicObject, type_: &str) -> Option<(String, String)> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|c| c["type"] == type_)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some((text(&found["status"]), text(&found["reason"])))
}

/// Waits until a condition of any object has this status and reason; its message.
pub async fn until_condition(
    api: &Api<DynamicObject>,
    name: &str,
    type_: &str,
    wanted: (&str, &str),
) -> Result<String> {
    wait_for(
        &format!("{type_} of {name} to be {wanted:?}"),
        LIMIT,
        async || {
            let object = api.get(name).await?;
            let conditions = object.data["status"]["conditions"].as_array();
            let found = conditions.and_then(|all| all.iter().find(|c| c["type"] == type_));
            let is_so = |c: &&Value| c["status"] == wanted.0 && c["reason"] == wanted.1;
            let message = found.filter(is_so).and_then(|c| c["message"].as_str());
            Ok(message.map(str::to_owned))
        },
    )
    .await
}
