//! What a standby costs, next to an active instance with nothing to do, and a process that does nothing.

use std::time::{Duration, Instant};

use anyhow::Result;
use renderhub_harness::progress::Progress;
use serde::Serialize;

use super::failover::until_stands_by;
use crate::measure::{cpu_seconds, memory};
use crate::objects;
use crate::options::Options;
use crate::world::World;

/// How long it is left alone before it is watched, so that its start does not count.
const SETTLE: Duration = Duration::from_secs(5);

/// What it costs.
#[derive(Debug, Serialize)]
pub struct Standby {
    /// Seconds that it was watched.
    pub seconds: f64,
    /// Of a core.
    pub cpu_percent: f64,
    /// Resident memory.
    pub rss_mib: f64,
    /// That of a process that does nothing: the bench's own program, with the same libraries and the same runtime.
    pub idle_rss_mib: f64,
    /// CPU of the instance that works and has no task.
    pub active_cpu_percent: f64,
    /// Resident memory of that one.
    pub active_rss_mib: f64,
}

impl Standby {
    /// Its memory above that of a process that does nothing.
    pub fn over_idle(&self) -> f64 {
        self.rss_mib - self.idle_rss_mib
    }
}

/// Watches a standby.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options) -> Result<Standby> {
    let world = World::start(&options.sized(1, 1), true).await?;
    let spawn = |instance: &str| {
        let mut flags = objects::hub_flags(&world.rendering);
        flags.push(format!("--instance-name={instance}"));
        World::spawn_hub_as(&world.hub_user, &flags)
    };
    let idle = World::spawn_idle()?;
    let active = spawn("active")?;
    active.wait_ready().await?;
    let standby = spawn("standby")?;
    until_stands_by(&standby).await?;
    let _progress = Progress::start("an instance that stands by");
    tokio::time::sleep(SETTLE).await;
    let cpu = || anyhow::Ok([used(active.pid())?, used(standby.pid())?]);
    let (begin, before) = (Instant::now(), cpu()?);
    tokio::time::sleep(Duration::from_secs(options.instances.standby_seconds)).await;
    let (seconds, after) = (begin.elapsed().as_secs_f64(), cpu()?);
    // It must have been a standby all the time.
    until_stands_by(&standby).await?;
    idle.check_running()?;
    let percent = |process: usize| (after[process] - before[process]) / seconds * 100.0;
    Ok(Standby {
        seconds,
        cpu_percent: percent(1),
        rss_mib: memory(standby.pid())?.now_mib,
        idle_rss_mib: memory(idle.pid())?.now_mib,
        active_cpu_percent: percent(0),
        active_rss_mib: memory(active.pid())?.now_mib,
    })
}

fn used(pid: u32) -> Result<f64> {
    cpu_seconds(&pid.to_string())
}
