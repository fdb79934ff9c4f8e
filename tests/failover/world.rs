//! A hub of several instances, a cluster that is not its own, a load of tasks for both, and what became of each.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use renderhub::api::labels::LEASE_STATE;
use renderhub::api::{RenderTask, RenderTaskStatus};
use renderhub::plan::lease::RENEW_DEADLINE;
use renderhub_harness::audit::{Event, Mark, creations};
use renderhub_harness::finish::{self, Outcome};
use renderhub_harness::{ControlPlane, Hub, Identity, Rights, apply, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use support::away::{Cluster, LOOPBACK, away};
use support::record::is_housekeeping;
use support::rights::chart_values;
use support::{DIGEST, Stage, job_name_of};

/// Longest that a load takes to end once an instance works on it.
const ENDS: Duration = Duration::from_secs(600);
/// Tasks of a load that have not ended at a time, at most: a machine that is busy with other things gets no more than it can end.
const UNENDED: usize = 60;
/// Requests that were sent just before are received a little later, on a busy machine; less than the time from the end of a claim until
/// another instance may begin.
pub const SENT: SignedDuration = SignedDuration::from_secs(3);

/// Each status of a task that ended, by the task's name.
type Ended = Arc<Mutex<HashMap<String, Vec<RenderTaskStatus>>>>;

/// A stage without a hub, its cluster, and the finisher of Jobs there.
pub struct World {
    pub stage: Stage,
    pub cluster: Cluster<'static>,
    start: Mark,
    ended: Ended,
    _helpers: Vec<AbortOnDropHandle<()>>,
}

/// Where an instance runs: it has a name, and users of its own in both clusters, by which the audit logs know it.
pub struct Seat {
    pub name: String,
    pub user: Identity,
    pub remote_user: String,
    /// Namespace of its kubeconfigs.
    kubeconfigs: String,
}

/// Tasks that are being submitted.
pub struct Load {
    stop: CancellationToken,
    submitting: tokio::task::JoinHandle<Result<Vec<RenderTask>>>,
}

impl Load {
    /// Submits nothing more.
    pub fn pause(&self) {
        self.stop.cancel();
    }
}

impl World {
    /// `spec` is laid over that of the cluster.
    pub async fn new(prefix: &str, spec: Value) -> Result<Self> {
        let stage = Stage::without_hub(prefix, &[LOOPBACK]).await?;
        stage.make_registry().await?;
        let mut fast = json!({"qps": 200, "burst": 200});
        for (key, value) in spec.as_object().context("no object")? {
            fast[key] = value.clone();
        }
        let cluster = stage.register(away().await?, fast).await?;
        let start = stage.plane.audit()?.mark().await?;
        let ended = Ended::default();
        let helpers = vec![
            spawn(note(stage.tasks(), Arc::clone(&ended))),
            spawn(end_jobs(stage.admin.clone(), stage.scope.rendering.clone())),
            spawn(end_jobs(cluster.admin.clone(), cluster.remote.namespace.clone())),
        ];
        Ok(Self {
            stage,
            cluster,
            start,
            ended,
            _helpers: helpers,
        })
    }

    /// A place for an instance.
    pub async fn seat(&self, name: &str) -> Result<Seat> {
        let plane = self.stage.plane;
        let kubeconfigs = plane.namespace("kubeconfigs").await?;
        let flags = [LOOPBACK.to_owned(), format!("--cluster-namespace={kubeconfigs}")];
        let rights = Rights::of_chart(&chart_values(&self.stage.scope, &flags, &[])).await?;
        let user_name = format!("{name}-{}", self.stage.scope.shard);
        let user = plane.user_with_rights(&user_name, &rights).await?;
        let remote = self.cluster.remote.certificate_identity(&user_name).await?;
        let secret = self
            .cluster
            .remote
            .secret(&kubeconfigs, &self.cluster.name, &remote.kubeconfig_text()?);
        apply::object(&self.stage.admin, secret).await?;
        Ok(Seat {
            name: name.to_owned(),
            user,
            remote_user: user_name,
            kubeconfigs,
        })
    }

    /// Starts an instance.
    pub fn spawn(&mut self, seat: &Seat) -> Result<Hub> {
        self.spawn_by(seat, &seat.user.kubeconfig()?)
    }

    /// The same with another way to the API server.
    pub fn spawn_by(&mut self, seat: &Seat, kubeconfig: &Path) -> Result<Hub> {
        let env = [
            ("RENDERHUB_INSTANCE_NAME", seat.name.as_str()),
            ("RENDERHUB_CLUSTER_NAMESPACE", seat.kubeconfigs.as_str()),
        ];
        self.stage.spawn_hub_with(kubeconfig, &env)
    }

    /// Name of the instance that works, if one does.
    pub async fn active(&self) -> Result<Option<String>> {
        let leases: Api<Lease> = Api::namespaced(self.stage.admin.clone(), &self.stage.scope.rendering);
        let name = format!("renderhub-{}", self.stage.hub_id().await?);
        let Some(lease) = leases.get_opt(&name).await? else {
            return Ok(None);
        };
        let is_active = lease
            .annotations()
            .get(LEASE_STATE)
            .is_some_and(|s| s == "active");
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        Ok(holder.filter(|holder| is_active && !holder.is_empty()))
    }

    /// Waits until this instance works.
    pub async fn until_active(&self, name: &str, limit: Duration) -> Result<()> {
        let what = format!("{name} to be active");
        wait_for(&what, limit, async || {
            Ok((self.active().await?.as_deref() == Some(name)).then_some(()))
        })
        .await
    }

    /// Submits tasks from now on, so many a second, every other one for the cluster; so many at most, and fewer while
    /// [`UNENDED`] have not ended.
    pub fn load(&self, per_second: u32, most: u32) -> Load {
        self.load_for(per_second, most, |number| number % 2 == 1)
    }

    /// The same, with those for the cluster for which `is_abroad` says so.
    pub fn load_for(&self, per_second: u32, most: u32, is_abroad: fn(u32) -> bool) -> Load {
        let stop = CancellationToken::new();
        let (api, template, cluster) = (
            self.stage.tasks(),
            self.stage.task("name"),
            self.cluster.name.clone(),
        );
        let (stopped, ended) = (stop.clone(), Arc::clone(&self.ended));
        let submitting = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
            let (mut all, mut number) = (JoinSet::new(), 0_u32);
            while number < most && stopped.run_until_cancelled(ticks.tick()).await.is_some() {
                let has_ended = ended.lock().unwrap_or_else(PoisonError::into_inner).len();
                if usize::try_from(number)? >= has_ended + UNENDED {
                    continue;
                }
                let mut task = template.clone();
                task["metadata"]["name"] = json!(format!("t{number:04}"));
                if is_abroad(number) {
                    task["spec"]["clusterName"] = json!(cluster);
                }
                let (api, task) = (api.clone(), serde_json::from_value::<RenderTask>(task)?);
                all.spawn(async move {
                    let made = api.create(&PostParams::default(), &task).await;
                    made.expect("a task can be submitted")
                });
                number += 1;
            }
            Ok(all.join_all().await)
        });
        Load { stop, submitting }
    }

    /// How many tasks have ended.
    pub fn ended(&self) -> usize {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until so many tasks more than now have ended.
    pub async fn until_more_ended(&self, more: usize) -> Result<()> {
        let enough = self.ended() + more;
        wait_for("more tasks to end", ENDS, async || {
            Ok((self.ended() >= enough).then_some(()))
        })
        .await
    }

    /// Ends the load, waits for the last of its tasks, and makes sure that each had exactly one Job and one result.
    pub async fn each_once(&self, load: Load) -> Result<usize> {
        load.stop.cancel();
        let tasks = load.submitting.await??;
        let all = tasks.len();
        let what = format!("all {all} tasks to end");
        wait_for(&what, ENDS, async || Ok((self.ended() >= all).then_some(())))
            .await
            .with_context(|| format!("{} of {all} ended", self.ended()))?;
        let is_abroad = |task: &&RenderTask| task.spec.cluster_name.is_some();
        let (abroad, here): (Vec<_>, Vec<_>) = tasks.iter().partition(is_abroad);
        for (plane, start, namespace, tasks) in [
            (self.stage.plane, self.start, &self.stage.scope.rendering, here),
            (
                self.cluster.remote.plane,
                self.cluster.start,
                &self.cluster.remote.namespace,
                abroad,
            ),
        ] {
            let made = jobs_made(plane, start, namespace).await?;
            let expected = tasks.iter().map(|task| (job_name_of(task), 1)).collect();
            ensure!(
                made == expected,
                "Jobs made in {namespace}: {:#?}",
                odd(&made, &expected)
            );
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        for task in &tasks {
            let results = ended.get(&task.name_any()).context("a result")?;
            ensure!(results.len() == 1, "{} had {results:#?}", task.name_any());
            ensure!(results[0].digest.as_deref() == Some(DIGEST), "{:#?}", results[0]);
        }
        Ok(all)
    }

    /// The writes of the instance's user on both clusters, its Leases and access reviews left out, in the order of time.
    pub async fn writes(&self, seat: &Seat) -> Result<Vec<Event>> {
        let here = seat.user.name();
        let audit = self.stage.plane.audit()?;
        let mut all = audit.since_with(self.start, here).await?;
        all.retain(|event| event.user == here);
        let mut there = self.remote_writes(seat).await?;
        all.retain(is_work);
        all.append(&mut there);
        all.sort_by_key(|event| event.received);
        Ok(all)
    }

    /// What it wrote on the cluster that is not the hub's.
    pub async fn remote_writes(&self, seat: &Seat) -> Result<Vec<Event>> {
        let audit = self.cluster.remote.plane.audit()?;
        let user = &seat.remote_user;
        let mut all = audit.since_with(self.cluster.start, user).await?;
        all.retain(|event| event.user == *user && is_work(event));
        all.sort_by_key(|event| event.received);
        Ok(all)
    }

    /// The requests of the instance's user on either cluster after this time, and a moment for those in flight.
    pub async fn late(&self, seat: &Seat, end: Timestamp) -> Result<Vec<String>> {
        let mut all = self.stage.plane.audit()?.since(self.start).await?;
        all.extend(
            self.cluster
                .remote
                .plane
                .audit()?
                .since(self.cluster.start)
                .await?,
        );
        let late = self
            .writes(seat)
            .await?
            .into_iter()
            .filter(|write| write.received > end + SENT && !was_broken_off(write, &all));
        let said = late.map(|e| format!("{} {} {} {}", e.received, e.action(), e.name, e.code));
        Ok(said.collect())
    }

    /// When the instance renewed its Lease, or took it, as the API server received it.
    pub async fn renewals(&self, seat: &Seat) -> Result<Vec<Timestamp>> {
        let name = format!("renderhub-{}", self.stage.hub_id().await?);
        let audit = self.stage.plane.audit()?;
        let mut all = audit.since_with(self.start, &name).await?;
        all.retain(|e| {
            e.user == seat.user.name()
                && e.resource == "leases"
                && e.name == name
                && e.is_write()
                && e.code < 300
        });
        let mut all: Vec<Timestamp> = all.into_iter().map(|event| event.received).collect();
        all.sort();
        Ok(all)
    }
}

/// When a claim that was renewed then ends at the latest.
pub fn end_of(renewed: Timestamp) -> Result<Timestamp> {
    Ok(renewed + SignedDuration::try_from(RENEW_DEADLINE)?)
}

/// Whether a write was broken off and did nothing: another instance did the same, which for one object can be done once, or did it later
/// where it can be done again.
///
/// On the way to another cluster reads and writes share a connection, so the head of a request may leave it before its body is
/// refused; the server breaks off there, with a code of its own failure. Of an object to be made it does not know the name then.
fn was_broken_off(write: &Event, all: &[Event]) -> bool {
    let has_no_name = write.name.is_empty() && write.verb == "create";
    let is_done_once = matches!(write.verb.as_str(), "create" | "delete");
    let did_it = |other: &Event| {
        other.user != write.user
            && other.action() == write.action()
            && other.namespace == write.namespace
            && (has_no_name || other.name == write.name)
            && (is_done_once || other.received > write.received)
            && other.code < 300
    };
    write.code >= 500 && all.iter().any(did_it)
}

/// Waits until an instance is a ready standby.
pub async fn until_standby(hub: &Hub) -> Result<()> {
    hub.wait_ready().await?;
    let (code, body) = hub.get("/readyz").await?;
    ensure!(code == 200 && body.contains("standby"), "{code} {body}");
    Ok(())
}

/// Whether a request may change something that is not the hub's own housekeeping.
fn is_work(event: &Event) -> bool {
    event.is_write() && event.stage == "ResponseComplete" && !is_housekeeping(event)
}

/// How often each Job was made in a namespace, by whomever.
async fn jobs_made(plane: &ControlPlane, from: Mark, namespace: &str) -> Result<BTreeMap<String, usize>> {
    let mut made = BTreeMap::new();
    for event in creations(plane.audit()?.since(from).await?, namespace, "jobs") {
        *made.entry(event.name).or_default() += 1;
    }
    Ok(made)
}

/// Jobs that were not made as often as they should.
fn odd(made: &BTreeMap<String, usize>, expected: &BTreeMap<String, usize>) -> Vec<(String, usize)> {
    let names = made.keys().chain(expected.keys());
    let count = |name: &String| made.get(name).copied().unwrap_or_default();
    let mut odd: Vec<_> = names
        .filter(|name| made.get(*name) != expected.get(*name))
        .map(|name| (name.clone(), count(name)))
        .collect();
    odd.dedup();
    odd
}

/// Records every status of a task that ended; one that never changes counts once.
async fn note(tasks: Api<RenderTask>, ended: Ended) {
    let events = watcher(tasks, watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let Ok(task) = event else { continue };
        let name = task.name_any();
        let Some(status) = task.status else { continue };
        let ends = ["JobSucceeded", "JobFailed"];
        let is_end = |c: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
            c.status == "True" && ends.contains(&c.type_.as_str())
        };
        let mut all = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&name).is_some();
        if !before && !status.conditions.iter().any(|c| is_end(&c)) {
            continue;
        }
        let results = all.entry(name).or_default();
        if !results.contains(&status) {
            results.push(status);
        }
    }
}

/// Lets every Job of a namespace succeed.
async fn end_jobs(client: kube::Client, namespace: String) {
    let said = json!({"phase": "Push", "reason": "Pushed", "digest": DIGEST}).to_string();
    let ended = finish::every_job(client, &namespace, |_| Outcome::Complete(said.clone())).await;
    ended.expect("Jobs can be ended");
}

fn spawn(work: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(work))
}
