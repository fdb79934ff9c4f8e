//! Command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use crate::instances::options::InstanceOptions;
use crate::names::NamesOptions;
use crate::pipeline::{FleetWrites, PipelineOptions};
use crate::pull_secrets::PullSecretOptions;
use crate::remote::options::RemoteOptions;
use crate::soak::SoakOptions;

/// Measures the hub against a bare writer on a real control plane.
#[derive(Debug, Parser)]
#[command(name = "renderhub-bench", version)]
pub struct Cli {
    /// The soak, or one of the processes that the bench itself starts.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What is measured.
    #[command(flatten)]
    pub options: Options,
}

/// The soak, and parts of a run that are processes of their own, so that their CPU time is not the hub's or the bench's.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Completes each Job of a hub as soon as it appears.
    #[command(hide = true)]
    Finisher(FinisherArgs),
    /// Makes the writes of a hub for each task that exists, and nothing else.
    #[command(hide = true)]
    Bare {
        /// What every part must know.
        #[command(flatten)]
        part: Part,
        /// Requests in flight.
        #[arg(long)]
        in_flight: usize,
    },
    /// Makes the writes of a hub for the fleet that exists, and nothing else.
    #[command(hide = true)]
    BareFleet {
        /// What every part must know.
        #[command(flatten)]
        part: Part,
        /// How often the hub wrote.
        #[command(flatten)]
        writes: FleetWrites,
        /// Requests in flight.
        #[arg(long)]
        in_flight: usize,
    },
    /// Lets hostile clusters and tenants at one hub under its chart's memory limit for half an hour, as root.
    Soak(SoakOptions),
    /// Waits, and does nothing else: what a process costs at the least.
    #[command(hide = true)]
    Idle,
}

/// What a part must know; its cluster and user come from `KUBECONFIG`.
#[derive(Debug, Args)]
pub struct Part {
    /// Hub id on the objects; the finisher takes several, separated by commas.
    #[arg(long)]
    pub hub_id: String,
    /// Namespace of the Jobs.
    #[arg(long)]
    pub rendering_namespace: String,
}

/// How the finisher completes Jobs.
#[derive(Debug, Args)]
pub struct FinisherArgs {
    /// What every part must know.
    #[command(flatten)]
    pub part: Part,
    /// Milliseconds from when it sees a Job until it completes it.
    #[arg(long, default_value_t = 0)]
    pub job_millis: u64,
    /// Watches only, where a bare writer completes the Jobs: a Job controller watches the Jobs of both.
    #[arg(long)]
    pub only_watches: bool,
}

/// What is measured, and how much of it.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Tasks in a burst.
    #[arg(long, default_value_t = 1000)]
    pub tasks: usize,
    /// Namespaces that tasks are spread over.
    #[arg(long, default_value_t = 10)]
    pub namespaces: usize,
    /// Bursts of the hub and of the bare writer each, in turns; every other pair begins with the hub.
    #[arg(long, default_value_t = 2)]
    pub rounds: usize,
    /// Requests that the bare writer has in flight in a burst [default: as the hub's workers and the finisher together].
    #[arg(long, default_value_t = 24, hide_default_value = true)]
    pub bare_in_flight: usize,
    /// Seconds that a pace is kept up; 0 leaves this part out.
    #[arg(long, default_value_t = 30)]
    pub paced_seconds: usize,
    /// Finished tasks that a hub finds when it starts; 0 leaves this part out.
    #[arg(long, default_value_t = 5000)]
    pub restart_tasks: usize,
    /// Leaves out the bursts on a cluster without the chart's `MutatingAdmissionPolicy`.
    #[arg(long)]
    pub only_with_policy: bool,
    /// File that the figures are written to as JSON [default: bench/local.json in cargo's target directory].
    #[arg(long)]
    output: Option<PathBuf>,
    /// Clusters elsewhere.
    #[command(flatten)]
    pub remote: RemoteOptions,
    /// Several instances and tenants.
    #[command(flatten)]
    pub instances: InstanceOptions,
    /// Names that come and go.
    #[command(flatten)]
    pub names: NamesOptions,
    /// Targets and what is bound to them.
    #[command(flatten)]
    pub pipeline: PipelineOptions,
    /// Copies of pull Secrets for operators.
    #[command(flatten)]
    pub pull_secrets: PullSecretOptions,
}

impl Options {
    /// Paces, in tasks per second, with the number of tasks of each.
    pub fn rates(&self) -> impl Iterator<Item = Rate> + use<> {
        let seconds = self.paced_seconds;
        [10, 20]
            .into_iter()
            .map(move |per_second| Rate::over(per_second, seconds))
            .filter(|rate| rate.tasks > 0)
    }

    /// The same for a world with other tasks and namespaces.
    pub fn sized(&self, tasks: usize, namespaces: usize) -> Self {
        let mut sized = self.clone();
        (sized.tasks, sized.namespaces) = (tasks, namespaces);
        sized
    }

    /// Where the figures go.
    ///
    /// # Errors
    /// If the place of the running program is unknown.
    pub fn output(&self) -> Result<PathBuf> {
        match &self.output {
            Some(path) => Ok(path.clone()),
            None => beside_program("local.json"),
        }
    }
}

/// A file in cargo's target directory.
///
/// # Errors
/// If the place of the running program is unknown.
pub fn beside_program(name: &str) -> Result<PathBuf> {
    // Cargo puts the program into <target>/<profile>/.
    let program = std::env::current_exe()?;
    let target = program
        .ancestors()
        .nth(2)
        .context("the bench has no target directory")?;
    Ok(target.join("bench").join(name))
}

/// A pace.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Tasks created in a second.
    pub per_second: u32,
    /// Tasks created in all.
    pub tasks: usize,
}

impl Rate {
    /// So many a second, for so many seconds.
    pub fn over(per_second: u32, seconds: usize) -> Self {
        Self {
            per_second,
            tasks: usize::try_from(per_second).unwrap_or(0) * seconds,
        }
    }

    /// How long it takes.
    pub fn duration(self) -> Duration {
        Duration::from_secs(1) * u32::try_from(self.tasks).unwrap_or(u32::MAX) / self.per_second
    }
}
