//! What many tenants and many instances cost: a flood next to a quiet tenant, one hub and three, hubs that die, a standby.
//!
//! Every case has a control plane of its own, which ends with it, so that none pays for what another one left; and a case that
//! cannot be measured takes none of the others with it.

mod failover;
mod fair;
pub mod options;
mod report;
mod shards;
mod standby;

use std::time::Duration;

use crate::options::Options;
use fair::Flood;
pub use report::Report;

/// How long its Jobs take: about as long as a pod needs to start, render a small chart and push it.
const LASTING: Duration = Duration::from_secs(2);

/// Measures what the options ask for; what could not be measured is in the report too.
pub async fn measure(options: &Options) -> Report {
    let mut report = Report::new();
    let wanted = &options.instances;
    if wanted.standby_seconds > 0 {
        let measured = standby::measure(options).await;
        report.standby = report.note("standby", measured);
    }
    if wanted.flood_tasks > 0 {
        let flood = Flood {
            tasks: wanted.flood_tasks,
            job: Duration::ZERO,
        };
        let measured = fair::measure(options, flood).await;
        report.fair = report.note("a flood", measured);
        // Where the hub's bounds and not the API server are what the flood waits for, as with Jobs that render something.
        let lasting = Flood {
            tasks: wanted.flood_tasks,
            job: LASTING,
        };
        let measured = fair::measure(options, lasting).await;
        report.fair_lasting = report.note("a flood of Jobs that last", measured);
    }
    if wanted.shard_tasks > 0 {
        let measured = shards::measure(options).await;
        report.lists = report.note("shards by lists", measured);
    }
    if wanted.kills > 0 {
        let measured = failover::measure(options).await;
        report.failover = report.note("failover", measured);
    }
    report.end();
    report
}
