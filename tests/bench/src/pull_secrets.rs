//! What the program costs that gives operators the pull Secrets of their catalogs: a rotation beside the same writes without it, and a
//! restart.

mod clusters;
mod fleet;
mod follow;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use renderhub_harness::audit::Event;
use renderhub_harness::progress::Progress;
use serde_json::{Value, json};

use clusters::ClusterRotation;
use fleet::OperatorFleet;
use follow::FollowedChange;

use crate::measure::{Latency, load, memory, number};
use crate::options::{Options, beside_program};
use crate::report::{Ground, Row, write_json};

/// Rotations of the program and of the bare writer each.
const ROUNDS: u32 = 3;
/// How long a program that has seen everything is watched for writes.
const WATCHED: Duration = Duration::from_secs(5);
/// Seconds from a rotation to all but one copy in a hundred, at most.
const P99: f64 = 5.0;
/// Seconds from any other change to the last write that follows it, at most.
const FOLLOWED: f64 = 5.0;
/// A rotation of the bare writer as a part of the program's, at least.
const RATIO: f64 = 0.8;
/// Memory of the program, at most.
const RSS_MIB: f64 = 48.0;
/// Writes for one destination and one change, at most.
const WRITES: f64 = 2.0;

/// How much of it is measured.
#[derive(Clone, Debug, Args)]
pub struct PullSecretOptions {
    /// Measures the copies of pull Secrets for operators and nothing else; no other run does.
    #[arg(long, conflicts_with_all = ["only_remote", "only_instances", "only_names", "only_pipeline"])]
    pub only_pull_secrets: bool,
    /// Namespaces with an operator, each with two Deployments and their `ServiceAccounts`.
    #[arg(long, default_value_t = 500)]
    pull_secret_namespaces: usize,
    /// Catalogs that name the Secret.
    #[arg(long, default_value_t = 20)]
    pull_secret_catalogs: usize,
    /// Clusters that render while the pull Secret of their Jobs is rotated.
    #[arg(long, default_value_t = 100)]
    pull_secret_clusters: usize,
    /// File that the figures are written to as JSON [default: bench/pull-secrets.json in cargo's target directory].
    #[arg(long)]
    pull_secret_output: Option<PathBuf>,
}

/// One rotation.
struct Rotation {
    /// From the write of the Secret to the answer to the write of each copy.
    copies: Vec<Duration>,
    /// From the first of these writes to the last.
    seconds: f64,
    /// Most writes in one namespace.
    writes: usize,
}

/// What was measured.
struct Figures {
    namespaces: usize,
    catalogs: usize,
    ground: Ground,
    /// Writes for each namespace at first, when there is nothing.
    install_writes: f64,
    install_seconds: f64,
    rotations: Vec<Rotation>,
    bare: Vec<f64>,
    followed: Vec<FollowedChange>,
    /// Of the renderers' half; `None` before it is measured.
    clusters: Option<ClusterRotation>,
    restart_writes: usize,
    restart_seconds: f64,
    peak_mib: f64,
    rss_mib: f64,
}

/// Measures, prints the figures and writes them as JSON.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options) -> Result<()> {
    let ground = Ground {
        load_before: load(),
        ..Ground::look()
    };
    let sizes = &options.pull_secrets;
    let fleet = OperatorFleet::make(sizes.pull_secret_namespaces, sizes.pull_secret_catalogs).await?;
    let mut figures = figures(&fleet, ground, sizes).await?;
    drop(fleet);
    figures.clusters = Some(clusters::measure(options, sizes.pull_secret_clusters).await?);
    println!("{figures}");
    let path = sizes
        .pull_secret_output
        .clone()
        .map_or_else(|| beside_program("pull-secrets.json"), Ok)?;
    write_json(&figures.to_json(), &path)
}

async fn figures(fleet: &OperatorFleet, ground: Ground, sizes: &PullSecretOptions) -> Result<Figures> {
    let (mark, begin) = (fleet.mark().await?, Instant::now());
    let program = fleet.spawn().await?;
    fleet.until_linked().await?;
    let install_seconds = begin.elapsed().as_secs_f64();
    let install = fleet.writes(mark).await?.len();
    let rotations = rotate_all(fleet).await?;
    let followed = fleet.follow_all().await?;
    let before = memory(program.pid())?;
    drop(program);
    let bare = write_all_bare(fleet).await?;
    // The bare writer's last value is the Secret's, so that a program that starts finds everything as it should be.
    fleet.write_secret(&format!("bare-{ROUNDS}")).await?;
    let (mark, begin) = (fleet.mark().await?, Instant::now());
    let program = fleet.spawn().await?;
    fleet.until_read(&program).await?;
    let restart_seconds = begin.elapsed().as_secs_f64();
    tokio::time::sleep(WATCHED).await;
    let after = memory(program.pid())?;
    Ok(Figures {
        namespaces: sizes.pull_secret_namespaces,
        catalogs: sizes.pull_secret_catalogs,
        ground,
        install_writes: number(install) / number(sizes.pull_secret_namespaces),
        install_seconds,
        rotations,
        bare,
        followed,
        clusters: None,
        restart_writes: fleet.writes(mark).await?.len(),
        restart_seconds,
        peak_mib: before.peak_mib.max(after.peak_mib),
        rss_mib: before.now_mib.max(after.now_mib),
    })
}

async fn rotate_all(fleet: &OperatorFleet) -> Result<Vec<Rotation>> {
    let _progress = Progress::start("rotations");
    let mut rotations = Vec::new();
    for round in 1..=ROUNDS {
        rotations.push(rotate(fleet, &format!("rotation-{round}")).await?);
    }
    Ok(rotations)
}

/// The seconds of each rotation without the program.
async fn write_all_bare(fleet: &OperatorFleet) -> Result<Vec<f64>> {
    let _progress = Progress::start("the same writes without the program");
    let mut all = Vec::new();
    for round in 1..=ROUNDS {
        all.push(fleet.write_bare(&format!("bare-{round}")).await?);
    }
    Ok(all)
}

/// Has the program follow another value.
async fn rotate(fleet: &OperatorFleet, value: &str) -> Result<Rotation> {
    let mark = fleet.mark().await?;
    let begin = Timestamp::now();
    fleet.write_secret(value).await?;
    fleet.until_copied(value).await?;
    let writes = fleet.writes(mark).await?;
    let copies: Vec<&Event> = writes
        .iter()
        .filter(|event| event.resource == "secrets")
        .collect();
    ensure!(
        copies.len() >= fleet.namespaces.len(),
        "only {} copies",
        copies.len()
    );
    let mut of_namespace = BTreeMap::new();
    for event in &writes {
        *of_namespace.entry(event.namespace.clone()).or_insert(0) += 1;
    }
    let latency =
        |event: &&Event| Duration::try_from(event.reached.duration_since(begin)).unwrap_or_default();
    Ok(Rotation {
        seconds: seconds(&copies)?,
        copies: copies.iter().map(latency).collect(),
        writes: of_namespace.into_values().max().context("nothing was written")?,
    })
}

/// From the first of these requests to the last answer.
fn seconds(events: &[&Event]) -> Result<f64> {
    let first = events.iter().map(|event| event.received).min();
    let last = events.iter().map(|event| event.reached).max();
    let (first, last) = first.zip(last).context("nothing was written")?;
    Ok(Duration::try_from(last.duration_since(first))?.as_secs_f64())
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

impl Figures {
    fn p99(&self) -> f64 {
        let all = self.rotations.iter().flat_map(|rotation| rotation.copies.clone());
        Latency::of(all.collect()).map_or(f64::INFINITY, |latency| latency.p99 / 1000.0)
    }

    fn rotation_seconds(&self) -> f64 {
        median(self.rotations.iter().map(|rotation| rotation.seconds).collect())
    }

    fn ratio(&self) -> f64 {
        median(self.bare.clone()) / self.rotation_seconds()
    }

    fn writes(&self) -> f64 {
        number(
            self.rotations
                .iter()
                .map(|rotation| rotation.writes)
                .max()
                .unwrap_or_default(),
        )
    }

    fn to_json(&self) -> Value {
        let mut json = json!({
            "namespaces": self.namespaces,
            "catalogs": self.catalogs,
            "cores": self.ground.cores,
            "load_before": self.ground.load_before,
            "install_seconds": self.install_seconds,
            "install_writes_per_namespace": self.install_writes,
            "rotation_p99_seconds": self.p99(),
            "rotation_seconds": self.rotations.iter().map(|rotation| rotation.seconds).collect::<Vec<_>>(),
            "bare_rotation_seconds": self.bare,
            "rotation_ratio": self.ratio(),
            "writes_per_destination": self.writes(),
            "clusters": self.clusters.as_ref().map(|rotation| rotation.clusters),
            "cluster_rotation_failed": self.clusters.as_ref().map(|rotation| rotation.failed),
            "restart_seconds": self.restart_seconds,
            "restart_writes": self.restart_writes,
            "rss_mib": self.rss_mib,
            "peak_mib": self.peak_mib,
        });
        for change in &self.followed {
            json[change.key] = json!(change.seconds);
        }
        json
    }

    fn rows(&self) -> Vec<Row> {
        let row = |what: &str, measured: f64| Row::new(what, format!("{measured:.2}"));
        let bare = median(self.bare.clone());
        let failed = self
            .clusters
            .as_ref()
            .map_or(f64::NAN, |rotation| number(rotation.failed));
        let followed = self.followed.iter();
        let followed =
            followed.map(|change| row(change.what, change.seconds).at_most(FOLLOWED, change.seconds, ""));
        let mut rows = vec![
            row("from nothing to all links, seconds", self.install_seconds),
            row("writes for each namespace meanwhile", self.install_writes),
            row("rotation, p99 of copies, seconds", self.p99()).at_most(P99, self.p99(), ""),
            row("rotation, first write to last, seconds", self.rotation_seconds()),
            row("the same by the bare writer", bare),
            row("ratio", self.ratio()).at_least(RATIO, self.ratio(), ""),
            row("writes in one namespace, most", self.writes()).at_most(WRITES, self.writes(), ""),
            row("restart, seconds until all is read", self.restart_seconds),
            row("writes after a restart", number(self.restart_writes)).at_most(
                0.0,
                number(self.restart_writes),
                "",
            ),
            row("resident memory, MiB", self.rss_mib).at_most(RSS_MIB, self.rss_mib, ""),
            row("at most, MiB", self.peak_mib),
            row("failed of a rotation on clusters that render", failed).at_most(0.0, failed, ""),
        ];
        rows.extend(followed);
        rows
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespaces, catalogs) = (self.namespaces, self.catalogs);
        writeln!(f, "\n{}", self.ground)?;
        writeln!(
            f,
            "One Secret that {catalogs} catalogs name, operators in {namespaces} namespaces, two accounts each"
        )?;
        self.rows().iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}
