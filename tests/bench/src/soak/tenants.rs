//! Tenants of each hostile kind, each in a namespace of its own, at paces that leave a small machine time for the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt as _, stream};
use kube::Resource as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use renderhub::api::names::TaskKind;
use renderhub::kubernetes::object::{SlimObject, task_resource};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Ground;
use crate::objects;
use crate::wire::{self, IN_FLIGHT};
use crate::world::World;

/// Whose namespace a task is in, by the number of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Makes a task now and then.
    Quiet = 0,
    /// Of no tenant: the bare writer serves it.
    Bare = 1,
    /// Makes floods of tasks.
    Flood = 2,
    /// Makes tasks with huge finalizers.
    Finalizers = 3,
    /// Names what was never named before.
    Names = 4,
    /// Makes tasks that fail.
    Failing = 5,
    /// Writes to finished tasks.
    Writes = 6,
    /// Writes huge values.
    Values = 7,
    /// Deletes what it made at once.
    Deletes = 8,
    /// Has its tasks run on hostile clusters.
    Abroad = 9,
}

/// How many there are.
pub const TENANTS: usize = 10;

impl Whose {
    /// Those that the hub serves.
    pub const SERVED: [Self; TENANTS - 1] = [
        Self::Quiet,
        Self::Flood,
        Self::Finalizers,
        Self::Names,
        Self::Failing,
        Self::Writes,
        Self::Values,
        Self::Deletes,
        Self::Abroad,
    ];

    /// The number of a task that `World` puts into this namespace.
    pub const fn number(self, count: usize) -> usize {
        count * TENANTS + self as usize
    }
}

/// Namespaces that the hub serves.
pub fn served(world: &World) -> Vec<&str> {
    let name = |whose: Whose| world.namespaces()[whose as usize].as_str();
    Whose::SERVED.into_iter().map(name).collect()
}

/// Tasks of a flood, and the time between two floods.
const FLOOD: (usize, Duration) = (100, Duration::from_secs(30));
/// Seconds after which finished tasks of those go that make many.
const GONE_AFTER: u32 = 30;
/// Finalizers of a task: 0.6 MB of them.
const FINALIZERS: usize = 9_000;
/// Values of a task in many parts, as many as the hub decodes.
const PARTS: usize = 95_000;
/// Bytes of a task in one part.
const PART: usize = 900 << 10;
/// Seconds that a failed Job is to be kept: the most that the schema takes.
const A_WEEK: u32 = 604_800;
/// Tasks on hostile clusters whose deletion waits, before the platform operator takes the hub's finalizer off the oldest: else
/// there would be ever more tasks, and memory that is theirs.
const STUCK: usize = 120;
/// Finished tasks that are written to.
const WRITTEN_TO: usize = 20;

const HALF_A_SECOND: Duration = Duration::from_millis(500);
/// What a tenant writes into its task of a number.
type With = fn(usize) -> Value;
/// Tenants that make one task after the other: the time between two, how many they leave, and what they write into them.
const STEADY: [(Whose, Duration, usize, With); 5] = [
    (Whose::Finalizers, Duration::from_secs(10), 20, finalizers),
    (Whose::Names, Duration::from_millis(250), 200, unheard_of),
    (Whose::Failing, Duration::from_secs(1), 300, kept_for_a_week),
    (Whose::Values, Duration::from_secs(10), 20, huge),
    (Whose::Deletes, HALF_A_SECOND, 1, |_| Value::Null),
];

/// All of them.
pub struct Tenants {
    all: JoinSet<()>,
    refused: Arc<AtomicUsize>,
}

impl Tenants {
    /// Starts them.
    pub fn start(ground: &Arc<Ground>, clusters: Vec<String>) -> Self {
        let refused = Arc::<AtomicUsize>::default();
        let mut all = JoinSet::new();
        let tenant = |whose| Tenant {
            ground: Arc::clone(ground),
            whose,
            refused: Arc::clone(&refused),
        };
        all.spawn(flood(tenant(Whose::Flood)));
        all.spawn(writes(tenant(Whose::Writes)));
        for (whose, pause, most, with) in STEADY {
            all.spawn(steady(tenant(whose), pause, most, with));
        }
        let abroad = move |n: usize| json!({"spec": {"clusterName": clusters[n % clusters.len()]}});
        all.spawn(steady(tenant(Whose::Abroad), HALF_A_SECOND, 300, abroad));
        Self { all, refused }
    }

    /// Waits until all have ended; how many of their requests the API server refused.
    pub async fn end(mut self) -> usize {
        while self.all.join_next().await.is_some() {}
        self.refused.load(Ordering::Relaxed)
    }
}

/// One of them.
struct Tenant {
    ground: Arc<Ground>,
    whose: Whose,
    refused: Arc<AtomicUsize>,
}

impl Tenant {
    fn namespace(&self) -> &str {
        &self.ground.stage.world.namespaces()[self.whose as usize]
    }

    fn tasks(&self) -> Request {
        let resource = task_resource(TaskKind::RenderTask);
        Request::new(SlimObject::url_path(&resource, Some(self.namespace())))
    }

    /// Sends a request; one that is refused is counted, because a hostile tenant goes on.
    async fn send(&self, request: wire::Request) {
        let sent: Result<()> = wire::send(&self.ground.stage.world.admin, request).await;
        if sent.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn make(&self, name: &str, with: &Value) {
        let mut task = objects::task(self.namespace(), name);
        if with.is_object() {
            merge(&mut task, with);
        }
        let body = serde_json::to_vec(&task).unwrap_or_default();
        self.send(self.tasks().create(&PostParams::default(), body)).await;
    }

    async fn patch(&self, name: &str, body: &Value) {
        let patch = Patch::Merge(body);
        self.send(self.tasks().patch(name, &PatchParams::default(), &patch))
            .await;
    }

    /// Deletes a task, without its own finalizers; the hub's own goes when the hub lets it go.
    async fn delete(&self, name: &str) {
        if self.whose == Whose::Finalizers {
            self.patch(
                name,
                &json!({"metadata": {"finalizers": [renderhub::api::labels::FINALIZER]}}),
            )
            .await;
        }
        self.send(self.tasks().delete(name, &DeleteParams::default()))
            .await;
    }
}

impl Tenant {
    /// Takes all finalizers off a task that was deleted long ago; most are gone already.
    async fn let_go(&self, name: &str) {
        let body = json!({"metadata": {"finalizers": null}});
        let patch = self
            .tasks()
            .patch(name, &PatchParams::default(), &Patch::Merge(&body));
        if self.whose == Whose::Abroad {
            _ = wire::send(&self.ground.stage.world.admin, patch).await;
        }
    }
}

/// Makes a task in each period, and deletes the oldest when there are more than may be.
async fn steady(tenant: Tenant, period: Duration, most: usize, with: impl Fn(usize) -> Value + Send + Sync) {
    let (mut names, mut deleted) = (VecDeque::new(), VecDeque::new());
    for number in 0.. {
        let name = format!("task-{number}");
        tenant.make(&name, &with(number)).await;
        names.push_back(name);
        if names.len() > most
            && let Some(oldest) = names.pop_front()
        {
            tenant.delete(&oldest).await;
            deleted.push_back(oldest);
        }
        if deleted.len() > STUCK
            && let Some(oldest) = deleted.pop_front()
        {
            tenant.let_go(&oldest).await;
        }
        if !tenant.ground.goes_on_after(period).await {
            return;
        }
    }
}

async fn flood(tenant: Tenant) {
    let (tasks, period) = FLOOD;
    let with = json!({"spec": {"ttlSecondsAfterFinished": GONE_AFTER}});
    for round in 0.. {
        stream::iter(0..tasks)
            .map(|number| (format!("task-{round}-{number}"), &with))
            .for_each_concurrent(IN_FLIGHT, |(name, with)| {
                let tenant = &tenant;
                async move { tenant.make(&name, with).await }
            })
            .await;
        if !tenant.ground.goes_on_after(period).await {
            return;
        }
    }
}

/// Makes some tasks, and writes to them for ever.
async fn writes(tenant: Tenant) {
    for number in 0..WRITTEN_TO {
        tenant.make(&format!("task-{number}"), &json!({})).await;
    }
    for number in 0_usize.. {
        if !tenant.ground.goes_on_after(Duration::from_millis(100)).await {
            return;
        }
        let body = json!({"metadata": {"annotations": {"soak": number.to_string()}}});
        tenant
            .patch(&format!("task-{}", number % WRITTEN_TO), &body)
            .await;
    }
}

/// Finalizers of no controller, as many as fit.
fn finalizers(number: usize) -> Value {
    let name = |n: usize| format!("soak.test/{number:08}-{n:08}-{}", "x".repeat(30));
    json!({"metadata": {"finalizers": (0..FINALIZERS).map(name).collect::<Vec<_>>()}})
}

/// What a task of the failing tenant says of its failed Job.
fn kept_for_a_week(_: usize) -> Value {
    json!({"spec": {"failedJobTTL": A_WEEK}})
}

/// Names that do not exist, of three kinds in rotation.
fn unheard_of(number: usize) -> Value {
    match number % 3 {
        0 => json!({"spec": {"clusterName": format!("cluster-{number}")}}),
        1 => json!({"spec": {"registryRef": {
            "kind": "Registry", "name": format!("registry-{number}"), "namespace": format!("namespace-{number}"),
        }}}),
        _ => json!({"spec": {
            "serviceAccountName": format!("account-{number}"),
            "registryRef": {"kind": "Registry", "name": format!("registry-{number}")},
        }}),
    }
}

/// Values of one huge part and of very many small ones, alternately.
fn huge(number: usize) -> Value {
    let values = if number.is_multiple_of(2) {
        json!({"text": "x".repeat(PART)})
    } else {
        json!({"list": vec![json!({}); PARTS]})
    };
    json!({"spec": {"config": {"release": {"values": values}}}})
}

/// Puts the fields of one object into another, nested ones too.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_adds_leaves_the_rest_as_it_is() {
        let mut task = objects::task("team", "task-1");
        merge(&mut task, &huge(1));
        assert_eq!(task["spec"]["config"]["release"]["chart"]["name"], "shop");
        assert_eq!(
            task["spec"]["config"]["release"]["values"]["list"]
                .as_array()
                .map(Vec::len),
            Some(PARTS)
        );
        merge(&mut task, &unheard_of(1));
        assert_eq!(task["spec"]["registryRef"]["namespace"], "namespace-1");
    }

    #[test]
    fn every_tenant_has_a_namespace_of_its_own() {
        let mut all: Vec<usize> = Whose::SERVED.iter().map(|whose| *whose as usize).collect();
        all.push(Whose::Bare as usize);
        all.sort_unstable();
        assert!(all.into_iter().eq(0..TENANTS));
        assert!(!Whose::SERVED.contains(&Whose::Bare) && Whose::SERVED.contains(&Whose::Quiet));
        assert_eq!(Whose::Abroad.number(3) % TENANTS, Whose::Abroad as usize);
    }

    #[test]
    fn a_task_of_a_hostile_tenant_fits_an_object() {
        for with in [huge(0), huge(1)] {
            assert!(with.to_string().len() < 1 << 20);
        }
    }
}
