//! The bare writer of a fleet: the writes that a hub makes for it, as many of each as the hub made, and no watching, no waiting,
//! no deciding meanwhile.

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Resource};
use renderhub::api::RenderTask;
use renderhub::api::labels::{FIELD_MANAGER, PIPELINE_BOOTSTRAP, PIPELINE_RELEASE};
use renderhub::api::names::TaskKind;
use renderhub::api::pipeline::{ComponentVersion, HydratedTarget, Profile, Release, Target, TargetStatus};
use renderhub::kubernetes::apply::{NewObject, StatusWrite, lean_write};
use renderhub::kubernetes::object::SlimObject;
use renderhub::plan::pipeline::decide::NewTask;
use renderhub::plan::pipeline::object::ObjectKey;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::plan::{FleetPlan, TargetPlan};
use crate::bare::{Writer, manager, sealed};
use crate::options::Part;
use crate::{measure, objects, wire};

/// How often a hub wrote what it may write once or several times.
#[derive(Clone, Copy, Debug, Args)]
pub struct FleetWrites {
    /// Statuses of Targets.
    #[arg(long)]
    pub target_statuses: usize,
    /// Statuses of Releases.
    #[arg(long)]
    pub release_statuses: usize,
    /// Statuses of `ComponentVersion`s.
    #[arg(long)]
    pub component_version_statuses: usize,
    /// Statuses of Profiles.
    #[arg(long)]
    pub profile_statuses: usize,
    /// Targets themselves.
    #[arg(long)]
    pub target_patches: usize,
    /// Events.
    #[arg(long)]
    pub events: usize,
}

/// Makes all writes for the fleet that there is.
///
/// # Errors
/// If the API server refuses one of them.
pub async fn run(part: &Part, writes: FleetWrites, in_flight: usize) -> Result<()> {
    let client = wire::client().await?;
    let plan = FleetPlan::of(&client, &objects::catalog(&part.rendering_namespace)?).await?;
    let tasks = Writer::new(client.clone(), &part.hub_id, &part.rendering_namespace)?;
    let fleet = Arc::new(FleetWriter { client, tasks });
    let (early, late) = works(plan, writes);
    fleet.all(early, in_flight).await?;
    fleet.all(late, in_flight).await?;
    println!("{}", measure::cpu_seconds("self")?);
    Ok(())
}

/// Writes that follow one another.
enum Work {
    /// An event about the Target of this key and UID.
    Event(ObjectKey, String),
    Shared(String, Box<NewTask>),
    Status(Box<wire::Request>),
    Target(Box<TargetPlan>),
}

/// What is written before all charts of Releases are pushed, and what after.
fn works(plan: FleetPlan, writes: FleetWrites) -> (Vec<Work>, Vec<Work>) {
    let (mut early, mut late) = (Vec::new(), Vec::new());
    let targets = plan.targets.len();
    for (number, mut target) in plan.targets.into_iter().enumerate() {
        for _ in 0..share(writes.events, targets, number) {
            early.push(Work::Event(target.key.clone(), target.uid.clone()));
        }
        for _ in 0..share(writes.target_patches, targets, number) {
            early.push(Work::Status(Box::new(labelled(&target.key))));
        }
        let wanted = share(writes.target_statuses, targets, number).max(1);
        target.statuses = resized(target.statuses, wanted);
        if target.statuses.len() > 1 {
            let first = target.statuses.remove(0);
            early.push(Work::Status(Box::new(sealed_status::<Target, _>(
                &target.key,
                &target.uid,
                &first,
            ))));
        }
        late.push(Work::Target(Box::new(target)));
    }
    let shared = plan.shared.into_iter();
    early.extend(shared.map(|(namespace, task)| Work::Shared(namespace, Box::new(task))));
    early.extend(statuses::<Release, _>(&plan.releases, writes.release_statuses));
    early.extend(statuses::<ComponentVersion, _>(
        &plan.component_versions,
        writes.component_version_statuses,
    ));
    let count = plan.profiles.len();
    for (number, (key, uid, written)) in plan.profiles.iter().enumerate() {
        for turn in 0..share(writes.profile_statuses, count, number) {
            // Another content each time, as the hub never writes the same twice.
            let mut written = written.clone();
            written.matched_targets = written
                .matched_targets
                .map(|count| count + i32::from(turn % 2 == 1));
            early.push(Work::Status(Box::new(status::<Profile, _>(key, uid, &written))));
        }
    }
    (early, late)
}

/// So many writes of the statuses of a kind.
fn statuses<K, T>(planned: &[(ObjectKey, String, T)], writes: usize) -> impl Iterator<Item = Work>
where
    K: Resource<DynamicType = ()>,
    T: Serialize,
{
    planned
        .iter()
        .enumerate()
        .flat_map(move |(number, (key, uid, written))| {
            let times = share(writes, planned.len(), number);
            (0..times).map(move |_| Work::Status(Box::new(status::<K, _>(key, uid, written))))
        })
}

/// How many of all writes are of this one of so many objects.
fn share(all: usize, objects: usize, number: usize) -> usize {
    all / objects + usize::from(number < all % objects)
}

/// So many statuses, of which the last is the last. Where there are fewer, the first two take turns.
fn resized(statuses: Vec<TargetStatus>, wanted: usize) -> Vec<TargetStatus> {
    let missing = wanted.saturating_sub(statuses.len());
    let turns: Vec<TargetStatus> = statuses.iter().take(2).cycle().take(missing).cloned().collect();
    let surplus = statuses.len().saturating_sub(wanted);
    turns
        .into_iter()
        .chain(statuses.into_iter().skip(surplus))
        .collect()
}

fn status<K, T>(key: &ObjectKey, uid: &str, status: &T) -> wire::Request
where
    K: Resource<DynamicType = ()>,
    T: Serialize,
{
    let write = StatusWrite {
        key,
        uid,
        resource_version: None,
        status,
    };
    write.http_request::<K>()
}

/// A status of a kind whose statuses are sealed.
fn sealed_status<K, T>(key: &ObjectKey, uid: &str, status: &T) -> wire::Request
where
    K: Resource<DynamicType = ()>,
    T: Serialize,
{
    let sealed = sealed(status).map_err(kube::core::request::Error::SerializeBody)?;
    self::status::<K, _>(key, uid, &sealed)
}

/// The status of a version as it was made.
fn version_status<T: Serialize>(key: &ObjectKey, made: &ObjectMeta, status: &T) -> Result<wire::Request> {
    let version = made
        .resource_version
        .as_ref()
        .context("a version without a resource version")?;
    let write = StatusWrite {
        key,
        uid: made.uid.as_ref().context("a version without a UID")?,
        resource_version: Some(version.parse()?),
        status: &sealed(status)?,
    };
    Ok(write.http_request::<HydratedTarget>())
}

/// A change of a Target's metadata.
fn labelled(key: &ObjectKey) -> wire::Request {
    let body = serde_json::json!({"metadata": {"annotations": {"bench": "patched"}}});
    let patch = kube::api::Patch::Merge(body);
    Request::new(Target::url_path(&(), Some(&key.namespace))).patch(&key.name, &manager(), &patch)
}

/// An event about a Target, of the shape of the hub's.
fn event(target: &ObjectKey, uid: &str) -> wire::Request {
    let body = serde_json::json!({
        "metadata": {"generateName": format!("{}-", target.name)},
        "eventTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
        "type": "Normal",
        "reason": "Ready",
        "action": "Reconcile",
        "note": "the chart of version 1795713564 is pushed",
        "reportingController": "renderhub.dev/hub",
        "reportingInstance": "bare",
        "regarding": {
            "apiVersion": Target::api_version(&()), "kind": Target::kind(&()),
            "namespace": target.namespace, "name": target.name, "uid": uid,
        },
    });
    let body = serde_json::to_vec(&body).map_err(kube::core::request::Error::SerializeBody)?;
    Request::new(Event::url_path(&(), Some(&target.namespace))).create(&PostParams::default(), body)
}

struct FleetWriter {
    client: Client,
    tasks: Writer,
}

impl FleetWriter {
    async fn all(self: &Arc<Self>, works: Vec<Work>, in_flight: usize) -> Result<()> {
        futures::stream::iter(works)
            .map(Ok)
            .try_for_each_concurrent(in_flight, |work| {
                let fleet = Arc::clone(self);
                // A task of its own, so that all cores take part, as for the hub.
                async move { tokio::spawn(async move { fleet.one(work).await }).await? }
            })
            .await
    }

    async fn one(&self, work: Work) -> Result<()> {
        match work {
            Work::Event(target, uid) => wire::send(&self.client, event(&target, &uid)).await,
            Work::Status(request) => wire::write(&self.client, *request).await,
            Work::Shared(namespace, task) => {
                let key = ObjectKey::new(&namespace, &task.name);
                self.task(new_object(&key, PIPELINE_RELEASE, None, &task.spec))
                    .await
            }
            Work::Target(plan) => self.target(*plan).await,
        }
    }

    /// Everything for a Target once the charts of its Releases are pushed.
    async fn target(&self, mut plan: TargetPlan) -> Result<()> {
        let target = Some((plan.key.name.as_str(), plan.uid.as_str()));
        let last = plan.statuses.pop().context("a Target without a status")?;
        let version_key = ObjectKey::new(&plan.key.namespace, &plan.version.0);
        let version = new_object(&version_key, PIPELINE_BOOTSTRAP, None, &plan.version.1);
        let version: PartialObjectMeta<HydratedTarget> = self.create::<HydratedTarget, _, _>(version).await?;
        for status_before in &plan.statuses {
            let request = sealed_status::<Target, _>(&plan.key, &plan.uid, status_before);
            wire::write(&self.client, request).await?;
        }
        let task_key = ObjectKey::new(&plan.key.namespace, &plan.task.name);
        let task = new_object(&task_key, PIPELINE_BOOTSTRAP, target, &plan.task.spec);
        self.task(task).await?;
        wire::write(
            &self.client,
            version_status(&version_key, &version.metadata, &plan.version_status)?,
        )
        .await?;
        wire::write(
            &self.client,
            sealed_status::<Target, _>(&plan.key, &plan.uid, &last),
        )
        .await
    }

    /// A task from its creation to the end of what was made for it.
    async fn task<S: Serialize>(&self, mut new: NewObject<'_, S>) -> Result<()> {
        // As long as the hub's, which no hub is there to look at.
        new.seal = Some("0".repeat(64));
        let spec = serde_json::to_value(new.spec)?;
        let mut made: Value = self.create::<RenderTask, _, _>(new).await?;
        made["spec"] = spec;
        let task = serde_json::from_value::<SlimObject>(made)?
            .into_task(TaskKind::RenderTask, None)
            .context("a task without a UID")?;
        self.tasks.whole_life(task).await
    }

    async fn create<K, S, O>(&self, new: NewObject<'_, S>) -> Result<O>
    where
        K: Resource<DynamicType = ()>,
        S: Serialize,
        O: DeserializeOwned,
    {
        let parameters = PostParams {
            dry_run: false,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let path = K::url_path(&(), Some(&new.key.namespace));
        let request = Request::new(path).create(&parameters, new.body::<K>()?)?;
        Ok(self.client.request(lean_write(Ok(request))?).await?)
    }
}

fn new_object<'a, S>(
    key: &'a ObjectKey,
    label: &'static str,
    target: Option<(&'a str, &'a str)>,
    spec: &'a S,
) -> NewObject<'a, S> {
    NewObject {
        key,
        label,
        target,
        seal: None,
        spec,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_writes_are_shared_out() {
        let shares: Vec<usize> = (0..4).map(|number| share(10, 4, number)).collect();
        assert_eq!(shares, [3, 3, 2, 2]);
    }

    #[test]
    fn the_last_status_stays_the_last() {
        let numbered = |number| TargetStatus {
            bootstrap_version: Some(number),
            ..TargetStatus::default()
        };
        let all: Vec<TargetStatus> = (0..3).map(numbered).collect();
        for (wanted, expected) in [(1, vec![2]), (3, vec![0, 1, 2]), (6, vec![0, 1, 0, 0, 1, 2])] {
            let resized = resized(all.clone(), wanted);
            let numbers: Vec<i64> = resized
                .iter()
                .filter_map(|status| status.bootstrap_version)
                .collect();
            assert_eq!(numbers, expected);
        }
    }
}
