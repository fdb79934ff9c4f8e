//! One tenant makes thousands of tasks at once, another one now and then: how long that one waits for its Jobs.
//!
//! While thousands of objects are made, the API server itself answers late to every client. So a bare writer makes a Job at the
//! same moments as the quiet tenant: it waits in no queue, and shows what the API server costs alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use renderhub::plan::task::model::Task;
use renderhub_harness::process::Process;
use renderhub_harness::progress::Progress;
use renderhub_harness::{Hub, wait_for};
use serde::Serialize;

use crate::bare::Writer;
use crate::burst::{in_phase, patience, tail};
use crate::measure::Latency;
use crate::objects;
use crate::options::Options;
use crate::paced::JobWatch;
use crate::world::World;

/// Time between two tasks of the quiet tenant.
const PAUSE: Duration = Duration::from_millis(250);
/// Tasks of the flood that are made at the same moment.
const AT_ONCE: usize = 32;
/// Tasks of the quiet tenant that may be under way, far more than ever are.
const PROBES_AT_ONCE: usize = 64;
/// Tasks that are left when the flood counts as over: what one namespace may have at work at once.
const LEFT: usize = 32;
/// Pause between two reads of the hub's metrics, which cost it a little.
const LOOK: Duration = Duration::from_millis(500);

/// Which namespace a task is in: `World` assigns the tasks to the namespaces in rotation.
#[derive(Clone, Copy)]
enum Whose {
    /// The tenant that floods.
    Flood = 0,
    /// The one that does not.
    Quiet = 1,
    /// A namespace that no hub serves; the bare writer serves it.
    Bare = 2,
}

/// How many there are.
const TENANTS: usize = 3;

impl Whose {
    const fn number(self, count: usize) -> usize {
        count * TENANTS + self as usize
    }
}

/// From the answer to a task's creation to its Job as a watch sees it.
#[derive(Debug, Serialize)]
pub struct Waits {
    /// Tasks of either.
    pub tasks: usize,
    /// The quiet tenant's, by the hub.
    pub hub: Latency,
    /// The bare writer's at the same moments: config Secret and Job, without a queue.
    pub bare: Latency,
}

/// A flood.
#[derive(Clone, Copy)]
pub struct Flood {
    /// Its tasks.
    pub tasks: usize,
    /// How long each Job takes, be it the quiet tenant's.
    pub job: Duration,
}

/// What a flood did to the quiet tenant.
#[derive(Debug, Serialize)]
pub struct Fair {
    /// Seconds that each Job took.
    pub job_seconds: f64,
    /// Tasks of the flood.
    pub flood_tasks: usize,
    /// Seconds until all were made.
    pub creating_seconds: f64,
    /// Seconds until they were done.
    pub flood_seconds: f64,
    /// Before the flood.
    pub calm: Waits,
    /// From its first task until it was done.
    pub flood: Waits,
    /// That part of it in which its tasks were made; `None` where that took no time.
    pub while_creating: Option<Waits>,
    /// That part of it in which they waited.
    pub while_queued: Option<Waits>,
}

impl Fair {
    /// The quiet tenant's median in the flood as a multiple of the one before.
    pub fn ratio(&self) -> f64 {
        self.flood.hub.p50 / self.calm.hub.p50
    }

    /// The quiet tenant's p99 in the flood as a multiple of the one before.
    pub fn ratio_p99(&self) -> f64 {
        self.flood.hub.p99 / self.calm.hub.p99
    }

    /// The bare writer's median in the flood as a multiple of the one before: what the API server costs alone.
    pub fn of_api_server(&self) -> f64 {
        self.flood.bare.p50 / self.calm.bare.p50
    }

    /// The median of a part of the flood as a multiple of the one before.
    pub fn part(&self, part: Option<&Waits>) -> Option<f64> {
        part.map(|waits| waits.hub.p50 / self.calm.hub.p50)
    }
}

/// Measures the quiet tenant before a flood and in it.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options, flood: Flood) -> Result<Fair> {
    let wanted = &options.instances;
    let world = World::start(&options.sized(flood.tasks, TENANTS), true).await?;
    let finisher = world.spawn_finisher_after(flood.job)?;
    let hub = World::spawn_hub_as(&world.hub_user, &flags(&world))?;
    hub.wait_ready().await?;
    let prober = Prober::new(&world, &hub, &finisher).await?;
    let progress = Progress::start("a quiet tenant");
    let (never, calm) = (AtomicBool::new(false), wanted.calm_seconds * 4);
    let calm = prober.probe(0..calm, &never).await?;
    drop(progress);
    let progress = Progress::start(format!("a flood of {} tasks", flood.tasks));
    let (over, from) = (AtomicBool::new(false), calm.len());
    let begin = Instant::now();
    let (asked, created) = tokio::try_join!(
        prober.probe(u32::try_from(from)?..u32::MAX, &over),
        prober.flood(flood.tasks, &over)
    )?;
    let flood_seconds = begin.elapsed().as_secs_f64();
    drop(progress);
    let (early, late): (Vec<_>, Vec<_>) = asked.iter().cloned().partition(|probe| probe.quiet.1 <= created);
    Ok(Fair {
        job_seconds: flood.job.as_secs_f64(),
        flood_tasks: flood.tasks,
        creating_seconds: (created - begin).as_secs_f64(),
        flood_seconds,
        calm: prober.waits(&calm).await?,
        flood: prober.waits(&asked).await?,
        while_creating: prober.some_waits(&early).await?,
        while_queued: prober.some_waits(&late).await?,
    })
}

/// As a hub is installed, with its own bounds, for the tenants' namespaces.
fn flags(world: &World) -> Vec<String> {
    let served = [Whose::Flood, Whose::Quiet].map(|whose| world.namespaces()[whose as usize].as_str());
    vec![
        format!("--rendering-namespace={}", world.rendering),
        format!("--shard-name={}", objects::SHARD),
        format!("--watch-namespaces={}", served.join(",")),
    ]
}

/// A task of the quiet tenant and one of the bare writer's, with the answers to their creation.
#[derive(Clone)]
struct Probe {
    quiet: (Task, Instant),
    bare: (Task, Instant),
}

struct Prober<'a> {
    world: &'a World,
    hub: &'a Hub,
    finisher: &'a Process,
    writer: Writer,
    jobs: JobWatch,
    /// Tasks that the hub was given.
    given: AtomicUsize,
}

impl<'a> Prober<'a> {
    async fn new(world: &'a World, hub: &'a Hub, finisher: &'a Process) -> Result<Self> {
        let client = world.bare_user.client().await?;
        Ok(Self {
            world,
            hub,
            finisher,
            writer: Writer::new(client, &world.hub_id_of("bare")?, &world.rendering)?,
            jobs: JobWatch::open(world).await?,
            given: AtomicUsize::new(0),
        })
    }

    /// Makes a task of each at a steady pace, whatever the answers take, until it is over or so many were made.
    async fn probe(&self, numbers: std::ops::Range<u32>, over: &AtomicBool) -> Result<Vec<Probe>> {
        let (begin, first) = (Instant::now(), numbers.start);
        stream::iter(numbers)
            .map(|number| async move {
                tokio::time::sleep_until((begin + PAUSE * (number - first)).into()).await;
                if over.load(Ordering::Relaxed) {
                    return anyhow::Ok(None);
                }
                Ok(Some(self.one(usize::try_from(number)?).await?))
            })
            .buffered(PROBES_AT_ONCE)
            .try_take_while(|probe| futures::future::ready(Ok(probe.is_some())))
            .try_filter_map(|probe| futures::future::ready(Ok(probe)))
            .try_collect()
            .await
    }

    async fn one(&self, number: usize) -> Result<Probe> {
        let quiet = async {
            let task = self.world.create_task(Whose::Quiet.number(number)).await?;
            self.given.fetch_add(1, Ordering::Relaxed);
            anyhow::Ok((task, Instant::now()))
        };
        let bare = async {
            let task = self.world.create_task(Whose::Bare.number(number)).await?;
            let answered = Instant::now();
            self.writer.start(&task).await?;
            anyhow::Ok((task, answered))
        };
        let (quiet, bare) = tokio::try_join!(quiet, bare)?;
        Ok(Probe { quiet, bare })
    }

    /// Makes the flood, and waits until the hub is done with it; when its last task was made.
    async fn flood(&self, tasks: usize, over: &AtomicBool) -> Result<Instant> {
        stream::iter(0..tasks)
            .map(|number| self.world.create_task(Whose::Flood.number(number)))
            .buffer_unordered(AT_ONCE)
            .try_for_each(|_| {
                self.given.fetch_add(1, Ordering::Relaxed);
                futures::future::ready(Ok(()))
            })
            .await?;
        let created = Instant::now();
        let waited = wait_for("the flood to be over", patience(tasks), async || {
            tokio::time::sleep(LOOK).await;
            Ok(match self.left().await {
                Ok(left) if left > LEFT => anyhow::bail!("{left} tasks are left"),
                Ok(_) => Some(Ok(())),
                Err(error) if self.hub.exit_status().is_some() => Some(Err(error)),
                Err(error) => return Err(error),
            })
        });
        waited.await.and_then(|ended| ended).map_err(|error| {
            self.finisher
                .check_running()
                .err()
                .unwrap_or_else(|| error.context(tail(&self.hub.log())))
        })?;
        over.store(true, Ordering::Relaxed);
        Ok(created)
    }

    /// Tasks that the hub was given and that have not ended.
    async fn left(&self) -> Result<usize> {
        let metrics = self.hub.metrics().await?;
        let (succeeded, failed) = (in_phase(&metrics, "succeeded"), in_phase(&metrics, "failed"));
        anyhow::ensure!(failed == 0, "{failed} tasks failed");
        Ok(self.given.load(Ordering::Relaxed).saturating_sub(succeeded))
    }

    async fn waits(&self, probes: &[Probe]) -> Result<Waits> {
        let quiet: Vec<_> = probes.iter().map(|probe| probe.quiet.clone()).collect();
        let bare: Vec<_> = probes.iter().map(|probe| probe.bare.clone()).collect();
        Ok(Waits {
            tasks: probes.len(),
            hub: Latency::of(self.jobs.took(&quiet).await?)?,
            bare: Latency::of(self.jobs.took(&bare).await?)?,
        })
    }

    async fn some_waits(&self, probes: &[Probe]) -> Result<Option<Waits>> {
        match probes {
            [] => Ok(None),
            some => Ok(Some(self.waits(some).await?)),
        }
    }
}
