//! What is measured of clusters elsewhere, and how much of it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::options::{Rate, beside_program};

/// The pace of every load on remote clusters, in tasks per second.
pub const PER_SECOND: u32 = 20;

/// What is measured of clusters elsewhere.
#[derive(Clone, Debug, Args)]
pub struct RemoteOptions {
    /// Measures nothing but remote clusters.
    #[arg(long, conflicts_with = "without_remote")]
    pub only_remote: bool,
    /// Measures nothing but the loads on many clusters, of which some are dead or do no work.
    #[arg(long, conflicts_with_all = ["only_remote", "without_remote"])]
    pub only_dead: bool,
    /// Leaves out everything about remote clusters.
    #[arg(long)]
    pub without_remote: bool,
    /// Seconds of the load on a local and a remote cluster in turns, and of the one that finishes; 0 leaves both out.
    #[arg(long, default_value_t = 30)]
    pub remote_seconds: usize,
    /// Times that one kubeconfig is replaced during a load; 0 leaves this part out.
    #[arg(long, default_value_t = 1000)]
    pub rotations: usize,
    /// Seconds of each load on many clusters, with dead ones among them or without, and of as many with some that do no work or
    /// without; 0 leaves this part out.
    #[arg(long, default_value_t = 30)]
    pub dead_seconds: usize,
    /// Rounds of four such loads each, two with and two without; the p99 that counts is the median of the loads.
    #[arg(long, default_value_t = 3, value_parser = rounds)]
    pub dead_rounds: usize,
    /// Clusters of that load, the five that die included.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(6..=1000))]
    pub remotes: u16,
    /// Idle clusters at once; 0 leaves this part out.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(..=10_000))]
    pub idle_clusters: u16,
    /// Seconds that the hub of idle clusters is watched.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub idle_seconds: u64,
    /// File that the figures of remote clusters are written to as JSON [default: bench/remote.json in cargo's target
    /// directory].
    #[arg(long)]
    remote_output: Option<PathBuf>,
}

impl RemoteOptions {
    /// The load on one cluster.
    pub fn pace(&self) -> Option<Rate> {
        rate(self.remote_seconds)
    }

    /// The load on many.
    pub fn dead_pace(&self) -> Option<Rate> {
        rate(self.dead_seconds)
    }

    /// Where the figures go.
    ///
    /// # Errors
    /// If the place of the running program is unknown.
    pub fn output(&self) -> Result<PathBuf> {
        match &self.remote_output {
            Some(path) => Ok(path.clone()),
            None => beside_program("remote.json"),
        }
    }
}

fn rate(seconds: usize) -> Option<Rate> {
    (seconds > 0).then(|| Rate::over(PER_SECOND, seconds))
}

fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds @ 1..=100) => Ok(rounds),
        _ => Err("must be a number from 1 to 100".to_owned()),
    }
}
