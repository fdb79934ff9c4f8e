//! The active instance is killed again and again under a load, and a standby takes over.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::JobSucceeded;
use renderhub_harness::audit::{Event, Mark};
use renderhub_harness::progress::Progress;
use renderhub_harness::{Hub, Identity, wait_for};
use serde::Serialize;

use crate::burst::{in_phase, patience, tail};
use crate::measure::Latency;
use crate::objects;
use crate::options::Options;
use crate::rights;
use crate::world::World;

/// Tasks a second.
const PER_SECOND: u32 = 20;
/// Namespaces of the tasks.
const NAMESPACES: usize = 10;
/// Creations that may be under way.
const CREATES_AT_ONCE: usize = 64;
/// Tasks that have not ended when a hub counts as having caught up: two seconds' worth.
const CAUGHT_UP: usize = 40;
/// Longest until another instance has made a Job.
const LIMIT: Duration = Duration::from_secs(120);
/// Longest that a hub is left to catch up: on a machine that is slower than the load it never would.
const CATCH_UP: Duration = Duration::from_secs(15);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Tasks in a page.
const PAGE: u32 = 500;

/// What became of tasks while the instance at work was killed.
#[derive(Debug, Serialize)]
pub struct Failover {
    /// Times that it was killed.
    pub kills: u32,
    /// Tasks made meanwhile.
    pub tasks: usize,
    /// From each kill to the answer to the first Job that another instance made, in seconds.
    pub seconds: Vec<f64>,
    /// What counts of them, in milliseconds.
    pub latency: Latency,
    /// Times that the one at work had not caught up when it was killed, or at the end: the machine is slower than the load.
    pub behind: usize,
    /// Jobs that were made more than once.
    pub duplicates: usize,
    /// Tasks that did not succeed.
    pub lost: usize,
}

/// An instance, and which of the two users it is.
struct Instance {
    hub: Hub,
    user: usize,
}

struct Scene {
    world: World,
    /// Two, so that the audit log shows which of two instances did something.
    users: [Identity; 2],
    /// Tasks that were made.
    made: AtomicUsize,
    /// Whether no more are.
    over: AtomicBool,
    /// Times that a hub had not caught up when its time was over.
    behind: AtomicUsize,
}

/// Kills and measures.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options) -> Result<Failover> {
    let kills = options.instances.kills;
    let world = World::start(&options.sized(1, NAMESPACES), true).await?;
    let rights = rights::hub(&world.rendering).await?;
    let scene = Scene {
        users: [
            world.plane.user_with_rights("first", &rights).await?,
            world.plane.user_with_rights("second", &rights).await?,
        ],
        world,
        made: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        behind: AtomicUsize::new(0),
    };
    let finisher = scene.world.spawn_finisher()?;
    let (active, standby) = scene.first_two().await?;
    let ((), (seconds, last)) = tokio::try_join!(scene.load(), scene.kill_all(kills, active, standby))?;
    let tasks = scene.made.load(Ordering::Relaxed);
    // What has not ended by then counts as lost.
    let _progress = Progress::start("the last tasks");
    _ = scene.until_left(&last.hub, 0, patience(tasks)).await;
    finisher.check_running()?;
    let latency = Latency::of(seconds.iter().map(|s| Duration::from_secs_f64(*s)).collect())?;
    Ok(Failover {
        kills,
        tasks,
        latency,
        behind: scene.behind.load(Ordering::Relaxed),
        duplicates: scene.duplicates().await?,
        lost: tasks - scene.succeeded().await?,
        seconds,
    })
}

impl Scene {
    /// The active instance, and the standby.
    async fn first_two(&self) -> Result<(Instance, Instance)> {
        let active = self.spawn(0, 0)?;
        active.hub.wait_ready().await?;
        let standby = self.spawn(1, 1)?;
        until_stands_by(&standby.hub).await?;
        Ok((active, standby))
    }

    /// Each instance has a name of its own, as each pod has: one that came again under its name would not have to wait.
    fn spawn(&self, instance: u32, user: usize) -> Result<Instance> {
        let mut flags = objects::hub_flags(&self.world.rendering);
        flags.push(format!("--instance-name=instance-{instance}"));
        let hub = World::spawn_hub_as(&self.users[user], &flags)?;
        Ok(Instance { hub, user })
    }

    /// Makes tasks at a rate that does not slow down when the answers do, until it is over.
    async fn load(&self) -> Result<()> {
        let begin = Instant::now();
        stream::iter(0..u32::MAX)
            .map(|number| async move {
                let at = begin + Duration::from_secs(1) * number / PER_SECOND;
                tokio::time::sleep_until(at.into()).await;
                if self.over.load(Ordering::Relaxed) {
                    return anyhow::Ok(false);
                }
                self.world.create_task(usize::try_from(number)?).await?;
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            })
            .buffered(CREATES_AT_ONCE)
            .try_take_while(|made| futures::future::ready(Ok(*made)))
            .try_for_each(|_| futures::future::ready(Ok(())))
            .await
    }

    /// Kills the one at work, as soon as it has caught up; the seconds until another one worked, and who works at the end.
    async fn kill_all(
        &self,
        kills: u32,
        mut active: Instance,
        mut standby: Instance,
    ) -> Result<(Vec<f64>, Instance)> {
        let mut seconds = Vec::new();
        for kill in 0..kills {
            let _progress = Progress::start(format!("kill {} of {kills}", kill + 1));
            until_stands_by(&standby.hub).await?;
            self.catch_up(&active.hub).await?;
            seconds.push(self.kill(&active, &standby).await?);
            let next = self.spawn(kill + 2, active.user)?;
            active = standby;
            standby = next;
        }
        // The load goes on until the last one works as the first one did.
        self.catch_up(&active.hub).await?;
        self.over.store(true, Ordering::Relaxed);
        Ok((seconds, active))
    }

    /// Kills one; seconds until the other one has made a Job.
    async fn kill(&self, active: &Instance, standby: &Instance) -> Result<f64> {
        let mark = self.world.plane.audit()?.mark().await?;
        let killed = Timestamp::now();
        active.hub.kill9();
        let user = self.users[standby.user].name();
        let first = wait_for("the other instance's first Job", LIMIT, async || {
            tokio::time::sleep(LOOK).await;
            if let Some(status) = standby.hub.exit_status() {
                return Ok(Some(Err(anyhow::anyhow!("it ended with {status}"))));
            }
            let jobs = self.jobs_made(mark).await?;
            let mut theirs = jobs.into_iter().filter(|job| job.user == user);
            Ok(theirs.next().map(Ok))
        });
        let first = first.await.and_then(|job| job);
        let first = first.with_context(|| tail(&standby.hub.log()))?;
        Ok(first.reached.duration_since(killed).as_secs_f64())
    }

    /// Jobs that instances made since then.
    async fn jobs_made(&self, since: Mark) -> Result<Vec<Event>> {
        let mut events = self.world.plane.audit()?.since(since).await?;
        let is_ours = |user: &str| self.users.iter().any(|ours| ours.name() == user);
        events.retain(|e| e.action() == "create jobs" && e.code == 201 && is_ours(&e.user));
        Ok(events)
    }

    /// Gives a hub time to catch up.
    async fn catch_up(&self, hub: &Hub) -> Result<()> {
        match self.until_left(hub, CAUGHT_UP, CATCH_UP).await {
            Err(error) if hub.exit_status().is_some() => Err(error),
            Err(_) => {
                self.behind.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Waits until no more than so many of the tasks made so far have not ended.
    async fn until_left(&self, hub: &Hub, most: usize, limit: Duration) -> Result<()> {
        let waited = wait_for("the hub to catch up", limit, async || {
            tokio::time::sleep(LOOK).await;
            if let Some(status) = hub.exit_status() {
                return Ok(Some(Err(anyhow::anyhow!("it ended with {status}"))));
            }
            let made = self.made.load(Ordering::Relaxed);
            let metrics = hub.metrics().await?;
            let ended = in_phase(&metrics, "succeeded") + in_phase(&metrics, "failed");
            let left = made.saturating_sub(ended);
            if ended == 0 || left > most {
                bail!("{left} of {made} tasks are left");
            }
            Ok(Some(Ok(())))
        });
        let waited = waited.await.and_then(|ended| ended);
        waited.with_context(|| tail(&hub.log()))
    }

    /// How many Jobs were made again.
    async fn duplicates(&self) -> Result<usize> {
        let mut times = HashMap::<String, usize>::new();
        for job in self.jobs_made(Mark::START).await? {
            *times.entry(job.name).or_default() += 1;
        }
        Ok(times.values().map(|times| times - 1).sum())
    }

    /// How many tasks succeeded.
    async fn succeeded(&self) -> Result<usize> {
        let api: Api<RenderTask> = Api::all(self.world.admin.clone());
        let (mut page, mut succeeded) = (ListParams::default().limit(PAGE), 0);
        loop {
            let listed = api.list(&page).await?;
            succeeded += listed.items.iter().filter(|task| has_succeeded(task)).count();
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(succeeded),
            }
        }
    }
}

fn has_succeeded(task: &RenderTask) -> bool {
    let conditions = task.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let mut succeeded = conditions.iter().filter(|c| c.type_ == JobSucceeded.as_str());
    succeeded.any(|condition| condition.status == "True")
}

/// Waits until a hub is ready as a standby.
///
/// # Errors
/// If it ends, or is not.
pub async fn until_stands_by(hub: &Hub) -> Result<()> {
    hub.wait_ready().await?;
    let waited = wait_for("the other instance to stand by", LIMIT, async || {
        if let Some(status) = hub.exit_status() {
            return Ok(Some(Err(anyhow::anyhow!("it ended with {status}"))));
        }
        let (code, body) = hub.get("/readyz").await?;
        Ok((code == 200 && body.contains("standby")).then_some(Ok(())))
    });
    let waited = waited.await.and_then(|ended| ended);
    waited.with_context(|| tail(&hub.log()))
}
