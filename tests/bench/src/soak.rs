//! The soak: everything that one cluster or tenant can do to all others, at once, against one hub under its chart's limit.
//!
//! A program, not a test: a missed target is a line of the table, and an error is what could not be measured.

mod clusters;
mod finish;
mod hub;
mod picture;
mod quiet;
mod report;
mod script;
mod tenants;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use renderhub_harness::progress::Progress;
use tokio::time::Instant;

use crate::options::{Options, beside_program};
use crate::remote::stage::Stage;
use clusters::Clusters;
use hub::Watched;
use quiet::Quiet;
use report::Report;
use tenants::{TENANTS, Tenants};

/// Where the chart says what it gives a hub.
const VALUES: &str = include_str!("../../../charts/renderhub/values.yaml");
/// Longest wait for what the quiet tenant asked for last.
const LAST: Duration = Duration::from_secs(120);

/// How long it takes.
#[derive(Clone, Debug, Args)]
pub struct SoakOptions {
    /// Minutes that everything goes on.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub minutes: u64,
}

/// What everything that takes part must know.
pub struct Ground {
    /// Both control planes.
    pub stage: Stage,
    /// When everything ends.
    pub until: Instant,
}

impl Ground {
    /// Waits for a while; returns whether it goes on.
    pub async fn goes_on_after(&self, pause: Duration) -> bool {
        let next = Instant::now() + pause;
        tokio::time::sleep_until(next.min(self.until)).await;
        Instant::now() < self.until
    }
}

/// Runs it, prints the table, and writes the figures and the picture.
///
/// # Errors
/// If something cannot be measured.
pub async fn run(options: &Options, soak: &SoakOptions) -> Result<()> {
    let limit = limit(VALUES).context("the chart gives the hub no memory limit")?;
    // First of all, because most machines lack what it needs.
    let group = hub::group(limit)?;
    let machine = crate::report::Ground::look();
    let lasts = Duration::from_secs(60) * u32::try_from(soak.minutes)?;
    let stage = Stage::start(&options.sized(1, TENANTS)).await?;
    let clusters = Clusters::start(&stage).await?;
    let until = Instant::now() + lasts;
    let ground = Arc::new(Ground { stage, until });
    let watched = Watched::start(&ground, group, limit).await?;
    let quiet = Quiet::start(Arc::clone(&ground)).await?;
    let _finishing = finish::start(&ground);
    let tenants = Tenants::start(&ground, clusters.names());
    let progress = Progress::start(format!("the soak, {} minutes", soak.minutes));
    let dying = clusters.one_dies(ground.until - lasts / 6 * 5);
    let ((), samples) = tokio::join!(dying, watched.until(ground.until));
    let samples = samples?;
    drop(progress);
    let refused = tenants.end().await;
    let progress = Progress::start("waiting for the quiet tenant's last Jobs");
    let waits = quiet.end(LAST).await?;
    drop(progress);
    let fared = watched.end().await?;
    let report = Report::new(
        soak.minutes,
        machine,
        limit,
        samples.clone(),
        fared,
        waits,
        refused,
    )?;
    println!("{report}");
    report.write(&beside_program("soak.json")?)?;
    let picture = beside_program("soak.svg")?;
    std::fs::write(&picture, picture::draw(&samples, limit))?;
    println!("\n{}", picture.display());
    Ok(())
}

/// Bytes of memory that the chart gives a hub.
fn limit(values: &str) -> Option<u64> {
    let values: serde_json::Value = serde_saphyr::from_str(values).ok()?;
    let text = values["resources"]["limits"]["memory"].as_str()?;
    text.strip_suffix("Mi")?.parse::<u64>().ok().map(|mib| mib << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_that_of_the_chart() {
        assert!(limit(VALUES).unwrap() >= 64 << 20);
        assert_eq!(limit("resources: {limits: {memory: 256Mi}}"), Some(256 << 20));
        assert_eq!(limit("resources: {}"), None);
    }
}
