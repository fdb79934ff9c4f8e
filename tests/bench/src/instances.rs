//! What many tenants and many instances cost: a flood beside a quiet tenant, one hub and three, hubs that die, one that
//! stands by.
//!
//! Every case has a control plane of its own, which ends with it, so that none pays for what another one left; and a case
//! that cannot be measured takes none of the others with it.

mod failover;
mod fair;
pub mod options;
mod report;
mod shards;
mod standby;

use crate::options::Options;
pub use report::Report;

/// Measures what the options ask for; what could not be measured is in the report too.
pub async fn measure(options: &Options) -> Report {
    let mut report = Report::new();
    let wanted = &options.instances;
    if wanted.standby_seconds > 0 {
        let measured = standby::measure(options).await;
        report.standby = report.note("standby", measured);
    }
    if wanted.flood_tasks > 0 {
        let measured = fair::measure(options).await;
        report.fair = report.note("a flood", measured);
    }
    if wanted.shard_tasks > 0 {
        let measured = shards::measure(options, shards::Kind::Lists).await;
        report.lists = report.note("shards by lists", measured);
    }
    if wanted.shard_tasks > 0 && !wanted.without_automatic {
        let measured = shards::measure(options, shards::Kind::Automatic).await;
        report.automatic = report.note("automatic shards", measured);
    }
    if wanted.kills > 0 {
        let measured = failover::measure(options).await;
        report.failover = report.note("failover", measured);
    }
    report.end();
    report
}
