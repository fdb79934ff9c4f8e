//! The hub in its control group, its resident memory every second, and another one each time it ends.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use renderhub_harness::hub::AS_INSTALLED;
use renderhub_harness::{Hub, Identity, MemoryGroup};
use tokio::time::Instant;

use super::Ground;
use super::tenants::served;
use crate::burst::tail;
use crate::measure::memory;
use crate::objects;
use crate::share::{Own, Runs, Share};

/// Time between two reads of the hub's memory.
const LOOK: Duration = Duration::from_secs(1);
/// Pause before a hub that ended is started again, as a kubelet makes one.
const PAUSE: Duration = Duration::from_secs(5);

/// Resident memory at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds from the start.
    pub at: f64,
    /// MiB.
    pub mib: f64,
}

/// How the hub fared.
#[derive(Clone, Debug, Default)]
pub struct Fared {
    /// Its own share of what events of tasks on its own cluster waited, of all tenants; of its last process, where it ended before.
    pub own: Option<Own>,
    /// Times that it ended.
    pub restarts: u32,
    /// How often the kernel ended it because of its memory.
    pub kills: u64,
    /// Most resident memory of any of its processes, in MiB.
    pub peak_mib: f64,
    /// The end of the log of each that ended.
    pub last_words: Vec<String>,
}

/// Makes the control group, and says at once where it cannot be made.
///
/// # Errors
/// If this is not root, or no memory controller is mounted.
pub fn group(limit: u64) -> Result<MemoryGroup> {
    MemoryGroup::make(limit).context("the soak runs the hub under the chart's memory limit")
}

/// The hub, and what is seen of it.
pub struct Watched {
    // Before the group, which is removed only when it is empty.
    hub: Mutex<Option<Hub>>,
    group: MemoryGroup,
    program: PathBuf,
    user: Identity,
    flags: Vec<String>,
    begin: Instant,
    fared: Mutex<Fared>,
}

impl Watched {
    /// Starts the hub with the chart's defaults, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(ground: &Arc<Ground>, group: MemoryGroup, limit: u64) -> Result<Self> {
        let world = &ground.stage.world;
        let binary = std::env::current_exe()?.with_file_name("renderhub");
        ensure!(binary.is_file(), "the hub is not built: run `make soak`");
        let watched = Self {
            hub: Mutex::default(),
            program: group.enter_with(&binary)?,
            group,
            user: world.hub_user.clone(),
            flags: vec![
                format!("--rendering-namespace={}", world.rendering),
                format!("--shard-name={}", objects::SHARD),
                format!("--watch-namespaces={}", served(world).join(",")),
                crate::remote::stage::LOOPBACK.to_owned(),
                "--own-registry-hosts=*".to_owned(),
            ],
            begin: Instant::now(),
            fared: Mutex::default(),
        };
        let hub = watched.spawn()?;
        hub.wait_ready().await?;
        ensure!(
            watched.group.holds(hub.pid())?,
            "the hub is not in its control group of {limit} bytes"
        );
        *watched.hub() = Some(hub);
        Ok(watched)
    }

    fn spawn(&self) -> Result<Hub> {
        Hub::spawn_with(&self.program, &self.user.kubeconfig()?, &self.flags, AS_INSTALLED)
    }

    /// Reads it until then.
    ///
    /// # Errors
    /// If another one cannot be started.
    pub async fn until(&self, until: Instant) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        while Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            match self.look() {
                Some(sample) => samples.push(sample),
                None => self.again().await?,
            }
        }
        Ok(samples)
    }

    /// Its memory now; nothing where it has ended.
    fn look(&self) -> Option<Sample> {
        let hub = self.hub();
        let hub = hub.as_ref().filter(|hub| hub.exit_status().is_none())?;
        let memory = memory(hub.pid()).ok()?;
        let mut fared = self.fared();
        fared.peak_mib = fared.peak_mib.max(memory.peak_mib);
        Some(Sample {
            at: self.begin.elapsed().as_secs_f64(),
            mib: memory.now_mib,
        })
    }

    async fn again(&self) -> Result<()> {
        let ended = self.hub().take();
        {
            let mut fared = self.fared();
            fared.restarts += 1;
            fared.last_words.extend(ended.map(|hub| {
                let status = hub.exit_status();
                format!("{status:?}\n{}", tail(&hub.log()))
            }));
        }
        tokio::time::sleep(PAUSE).await;
        let hub = self.spawn()?;
        *self.hub() = Some(hub);
        Ok(())
    }

    /// Ends it; how it fared.
    ///
    /// # Errors
    /// If the control group or the hub's metrics cannot be read.
    pub async fn end(&self) -> Result<Fared> {
        let mut fared = self.fared().clone();
        fared.kills = self.group.kills()?;
        // With calls under way to servers that never answer it might drain for long, so it is killed when it is dropped.
        let hub = self.hub().take();
        if let Some(hub) = hub {
            fared.own = Some(Share::of(&hub, Runs::Here).await?.own()?);
        }
        Ok(fared)
    }

    fn hub(&self) -> MutexGuard<'_, Option<Hub>> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fared(&self) -> MutexGuard<'_, Fared> {
        self.fared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
