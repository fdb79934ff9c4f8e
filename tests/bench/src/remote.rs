//! What clusters elsewhere cost: one more control plane, reached as one cluster or as a thousand.
//!
//! Every case starts hubs of its own, so that no case pays for what another one left in the hub.

mod busy;
mod crowd;
mod dead;
pub mod follow;
pub mod gate;
mod idle;
pub mod load;
pub mod options;
mod pair;
mod report;
mod rotation;
pub mod stage;
mod turns;

use std::time::Duration;

use anyhow::Result;

use crate::options::Options;
pub use report::Report;
use stage::Stage;

/// Measures what the options ask for.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options) -> Result<Report> {
    let mut report = Report::new();
    let wanted = &options.remote;
    let stage = Stage::start(options).await?;
    if let Some(pace) = wanted.pace().filter(|_| !wanted.only_dead) {
        report.pair = Some(pair::beside_local(&stage, pace).await?);
        report.finish = Some(pair::finish(&stage, pace).await?);
    }
    if wanted.rotations > 0 && !wanted.only_dead {
        report.rotation = Some(rotation::measure(&stage, wanted.rotations).await?);
    }
    if let Some(pace) = wanted.dead_pace() {
        let (clusters, rounds) = (wanted.remotes, wanted.dead_rounds);
        report.dead = Some(dead::measure(&stage, clusters, pace, rounds).await?);
        report.idle = Some(idle::measure(&stage, clusters, pace, rounds).await?);
    }
    if wanted.idle_clusters > 0 && !wanted.only_dead {
        let watched = Duration::from_secs(wanted.idle_seconds);
        report.crowd = Some(crowd::measure(&stage, wanted.idle_clusters, watched).await?);
    }
    report.end();
    Ok(report)
}
