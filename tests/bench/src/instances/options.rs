//! What is measured of many instances and tenants, and how much of it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::options::beside_program;

/// What is measured of many instances and tenants.
#[derive(Clone, Debug, Args)]
pub struct InstanceOptions {
    /// Measures nothing but many instances and tenants.
    #[arg(long, conflicts_with_all = ["without_instances", "only_remote"])]
    pub only_instances: bool,
    /// Leaves out everything about many instances and tenants.
    #[arg(long)]
    pub without_instances: bool,
    /// Tasks that one tenant makes at once beside a quiet one; 0 leaves this part out.
    #[arg(long, default_value_t = 5000)]
    pub flood_tasks: usize,
    /// Seconds that the quiet tenant is measured before the flood.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub calm_seconds: u32,
    /// Tasks of one hub, and of three; 0 leaves this part out.
    #[arg(long, default_value_t = 3000)]
    pub shard_tasks: usize,
    /// Namespaces of these tasks.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(3..=300))]
    pub shard_namespaces: u16,
    /// Times that the hub at work is killed during a load; 0 leaves this part out.
    #[arg(long, default_value_t = 20)]
    pub kills: u32,
    /// Seconds that a standby is watched; 0 leaves this part out.
    #[arg(long, default_value_t = 30)]
    pub standby_seconds: u64,
    /// File that these figures are written to as JSON [default: bench/instances.json in cargo's target directory].
    #[arg(long)]
    instances_output: Option<PathBuf>,
}

impl InstanceOptions {
    /// Where the figures go.
    ///
    /// # Errors
    /// If the place of the running program is unknown.
    pub fn output(&self) -> Result<PathBuf> {
        match &self.instances_output {
            Some(path) => Ok(path.clone()),
            None => beside_program("instances.json"),
        }
    }
}
