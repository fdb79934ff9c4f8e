//! A hub of several instances that divide twelve namespaces, a load of tasks for all of them, and what became of each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use renderhub::api::labels::LEASE_VIEW;
use renderhub::api::{RenderTask, RenderTaskStatus};
use renderhub::plan::shards::{Shard, View};
use renderhub_harness::audit::{Event, Mark, creations};
use renderhub_harness::{Hub, Identity, Turn, turn, wait_for};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::helpers::{end_jobs, note, spawn};
use crate::support::instances::INSTANCE;
use crate::support::plane::{admin, plane};
use crate::support::record::is_housekeeping;
use crate::support::{DIGEST, Stage, job_name_of};

/// Shards, and namespaces that fall to each of them while all are there.
pub const COUNT: u16 = 3;
pub const EACH: usize = 4;
/// Longest that anything may take.
pub const LIMIT: Duration = Duration::from_secs(240);
/// Longest until the namespaces of an instance that was killed are served: its record is watched for 15 seconds.
pub const FAILOVER: Duration = Duration::from_secs(60);
/// Jobs of tasks with such names run until the test ends them.
pub const HELD: &str = "held";

/// Each status of a task that ended, by its namespace and name.
pub type Ended = Arc<Mutex<HashMap<(String, String), Vec<RenderTaskStatus>>>>;

/// A stage without a hub, and its namespaces.
pub struct World {
    pub stage: Stage,
    pub namespaces: Vec<String>,
    start: Mark,
    ended: Ended,
    _helpers: Vec<AbortOnDropHandle<()>>,
    _turn: Turn,
}

/// An instance, with a user of its own, by which the audit log knows it.
pub struct Seat {
    pub name: String,
    pub user: Identity,
}

/// Tasks that are being submitted.
pub struct Load {
    stop: CancellationToken,
    submitting: tokio::task::JoinHandle<Result<Vec<RenderTask>>>,
}

impl Load {
    /// Submits nothing more; what was submitted.
    pub async fn end(self) -> Result<Vec<RenderTask>> {
        self.stop.cancel();
        self.submitting.await?
    }
}

pub fn all_shards() -> View {
    View((0..COUNT).map(Shard).collect())
}

/// Namespaces of which each shard gets as many as any other.
async fn make_namespaces(prefix: &str) -> Result<Vec<String>> {
    let api: Api<Namespace> = Api::all(admin().await?);
    let (mut shares, mut made) = (BTreeMap::<Shard, usize>::new(), Vec::new());
    for name in (0..).map(|number| format!("{prefix}-tenant-{number}")) {
        let share = shares
            .entry(all_shards().owner(&name).context("an owner")?)
            .or_default();
        if *share < EACH {
            *share += 1;
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            api.create(&PostParams::default(), &namespace).await?;
            made.push(name);
        }
        if made.len() == EACH * usize::from(COUNT) {
            break;
        }
    }
    Ok(made)
}

impl World {
    pub async fn new(prefix: &str) -> Result<Self> {
        let turn = turn().await?;
        plane().await?;
        let namespaces = make_namespaces(prefix).await?;
        let watched = format!("--watch-namespaces={}", namespaces.join(","));
        let count = format!("--shard-count={COUNT}");
        let stage = Stage::without_hub(prefix, &[&watched, &count]).await?;
        stage.make_registry().await?;
        let allowed = json!({"pushSecretRef": {"name": "push"}, "allowedNamespaces": namespaces});
        stage.put_registry(allowed).await?;
        let start = stage.plane.audit()?.mark().await?;
        let ended = Ended::default();
        let helpers = vec![
            spawn(note(
                Api::all(stage.admin.clone()),
                namespaces.clone(),
                Arc::clone(&ended),
            )),
            spawn(end_jobs(stage.admin.clone(), stage.scope.rendering.clone())),
        ];
        Ok(Self {
            stage,
            namespaces,
            start,
            ended,
            _helpers: helpers,
            _turn: turn,
        })
    }

    /// Starts an instance.
    pub async fn spawn(&mut self, name: &str) -> Result<(Seat, Hub)> {
        let user = format!("{name}-{}", self.stage.scope.shard);
        let user = self
            .stage
            .plane
            .user_with_rights(&user, &self.stage.rights)
            .await?;
        let hub = self
            .stage
            .spawn_hub_with(&user.kubeconfig()?, &[(INSTANCE, name)])?;
        let name = name.to_owned();
        Ok((Seat { name, user }, hub))
    }

    /// Starts an instance and waits until it divides with as many as are there then.
    pub async fn join(&mut self, name: &str, members: u16) -> Result<(Seat, Hub)> {
        let (seat, hub) = self.spawn(name).await?;
        hub.wait_ready().await?;
        self.until_divided(members).await?;
        Ok((seat, hub))
    }

    /// The holders of shards, and among whom each divides.
    pub async fn holders(&self) -> Result<BTreeMap<Shard, (String, String)>> {
        let hub = format!("renderhub-{}.", self.stage.hub_id().await?);
        let mut holders = BTreeMap::new();
        for lease in self.leases().list(&ListParams::default()).await? {
            let name = lease.name_any();
            let Some(Ok(number)) = name.strip_prefix(&hub).map(str::parse) else {
                continue;
            };
            let view = lease.annotations().get(LEASE_VIEW).cloned().unwrap_or_default();
            if let Some(holder) = lease
                .spec
                .and_then(|spec| spec.holder_identity)
                .filter(|h| !h.is_empty())
            {
                holders.insert(Shard(number), (holder, view));
            }
        }
        Ok(holders)
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.stage.admin.clone(), &self.stage.scope.rendering)
    }

    /// Waits until so many divide the namespaces, and all of them know all others.
    pub async fn until_divided(&self, members: u16) -> Result<()> {
        wait_for(&format!("{members} to divide"), LIMIT, async || {
            let holders = self.holders().await?;
            let numbers: Vec<String> = holders.keys().map(|shard| shard.0.to_string()).collect();
            let is_known = holders.values().all(|(_, view)| *view == numbers.join(","));
            Ok((holders.len() == usize::from(members) && is_known).then_some(()))
        })
        .await
    }

    /// The shard that an instance has.
    pub async fn shard_of(&self, seat: &Seat) -> Result<Shard> {
        let holders = self.holders().await?;
        let found = holders.into_iter().find(|(_, (holder, _))| *holder == seat.name);
        found
            .map(|(shard, _)| shard)
            .with_context(|| format!("{} has none", seat.name))
    }

    /// The namespaces that are a shard's while these are there.
    pub fn share(&self, shards: &View, shard: Shard) -> Vec<String> {
        let is_its = |name: &&String| shards.owner(name) == Some(shard);
        self.namespaces.iter().filter(is_its).cloned().collect()
    }

    fn tasks(&self, namespace: &str) -> Api<RenderTask> {
        Api::namespaced(self.stage.admin.clone(), namespace)
    }

    /// Submits a task of this name in each of the namespaces.
    pub async fn submit(&self, name: &str, namespaces: &[String]) -> Result<Vec<RenderTask>> {
        let mut all = Vec::new();
        for namespace in namespaces {
            let task = task(&self.stage, namespace, name)?;
            all.push(
                self.tasks(namespace)
                    .create(&PostParams::default(), &task)
                    .await?,
            );
        }
        Ok(all)
    }

    /// Submits a task in each namespace whose Job runs until the test ends it, and waits for the Jobs.
    pub async fn hold(&self) -> Result<Vec<RenderTask>> {
        let tasks = self.submit(HELD, &self.namespaces).await?;
        for task in &tasks {
            self.stage.job_of(task).await?;
        }
        Ok(tasks)
    }

    /// Ends the Jobs of such tasks.
    pub async fn release(&self, held: &[RenderTask]) -> Result<()> {
        for task in held {
            self.stage.complete(task).await?;
        }
        Ok(())
    }

    /// Submits tasks of these names from now on, so many a second, in every namespace in turn.
    pub fn load(&self, prefix: &'static str, per_second: u32) -> Result<Load> {
        let stop = CancellationToken::new();
        let (stopped, admin) = (stop.clone(), self.stage.admin.clone());
        let mut templates = Vec::new();
        for namespace in &self.namespaces {
            templates.push((namespace.clone(), task(&self.stage, namespace, "name")?));
        }
        let submitting = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
            let (mut all, mut number) = (JoinSet::new(), 0);
            while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
                let (namespace, mut task) = templates[number % templates.len()].clone();
                task.metadata.name = Some(format!("{prefix}-{number:04}"));
                let api: Api<RenderTask> = Api::namespaced(admin.clone(), &namespace);
                all.spawn(async move { api.create(&PostParams::default(), &task).await });
                number += 1;
            }
            let made: kube::Result<Vec<RenderTask>> = all.join_all().await.into_iter().collect();
            Ok(made?)
        });
        Ok(Load { stop, submitting })
    }

    fn count(&self) -> usize {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub async fn until_more_ended(&self, more: usize) -> Result<()> {
        let enough = self.count() + more;
        wait_for("more tasks to end", LIMIT, async || {
            Ok((self.count() >= enough).then_some(()))
        })
        .await
    }

    /// Waits until all of these have ended.
    pub async fn until_ended(&self, tasks: &[RenderTask]) -> Result<Instant> {
        wait_for("tasks to end", LIMIT, async || {
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let has_ended = |task: &RenderTask| ended.contains_key(&key(task));
            Ok(tasks.iter().all(has_ended).then(Instant::now))
        })
        .await
    }

    /// Waits for the last of these tasks, and makes sure that each had exactly one Job, and one result, the right one. Whose
    /// user made the Jobs in each namespace, in order.
    pub async fn each_once(
        &self,
        load: Vec<RenderTask>,
        others: &[&[RenderTask]],
    ) -> Result<BTreeMap<String, Vec<String>>> {
        let mut tasks = load;
        tasks.extend(others.iter().flat_map(|more| more.iter().cloned()));
        self.until_ended(&tasks).await?;
        let made = self.jobs_made().await?;
        let mut makers = BTreeMap::<String, Vec<String>>::new();
        let mut by_name: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in &made {
            by_name.entry(&event.name).or_default().push(event);
        }
        ensure!(
            by_name.len() == tasks.len(),
            "{} Jobs of {} tasks",
            by_name.len(),
            tasks.len()
        );
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        for task in &tasks {
            let jobs = by_name
                .get(job_name_of(task).as_str())
                .map_or(&[][..], Vec::as_slice);
            ensure!(jobs.len() == 1, "{:?} had {jobs:#?}", key(task));
            let results = &ended[&key(task)];
            let digests: BTreeSet<_> = results.iter().map(|status| status.digest.as_deref()).collect();
            ensure!(
                results.len() == 1 && digests == BTreeSet::from([Some(DIGEST)]),
                "{results:#?}"
            );
        }
        let spaces = tasks.iter().map(|task| (job_name_of(task), key(task).0));
        let space_of: BTreeMap<String, String> = spaces.collect();
        for event in made {
            makers
                .entry(space_of[&event.name].clone())
                .or_default()
                .push(event.user);
        }
        Ok(makers)
    }

    async fn jobs_made(&self) -> Result<Vec<Event>> {
        let all = self.stage.plane.audit()?.since(self.start).await?;
        Ok(creations(all, &self.stage.scope.rendering, "jobs"))
    }

    /// What an instance wrote, its Leases and questions about itself left out.
    pub async fn writes(&self, seat: &Seat) -> Result<Vec<Event>> {
        let mut all = self.stage.plane.audit()?.since(self.start).await?;
        all.retain(|event| {
            let is_its = event.user == seat.user.name() && event.stage == "ResponseComplete";
            is_its && event.is_write() && !is_housekeeping(event)
        });
        Ok(all)
    }
}

pub fn key(task: &RenderTask) -> (String, String) {
    (task.namespace().unwrap_or_default(), task.name_any())
}

fn task(stage: &Stage, namespace: &str, name: &str) -> Result<RenderTask> {
    let mut task = stage.task(name);
    task["metadata"]["namespace"] = json!(namespace);
    task["spec"]["repository"] = json!(format!("{namespace}/shop"));
    Ok(serde_json::from_value(task)?)
}
