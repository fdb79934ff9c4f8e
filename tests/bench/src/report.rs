//! What was measured, as a table for people and as JSON for programs.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use renderhub_harness::tools::KUBERNETES_VERSION;
use serde_json::{Value, json};

use crate::burst::{Burst, Run};
use crate::measure::{Latency, load, number};
use crate::options::Options;
use crate::paced::Paced;
use crate::restart::Restart;
use crate::share::Own;

/// The hub's burst as a part of the bare writer's, at least.
const RATIO: f64 = 0.8;
/// Hub CPU seconds per 1,000 tasks, at most.
const HUB_CPU: f64 = 4.0;
/// Writes per task, at most; the finalizer is one of them where no policy sets it.
const WRITES: f64 = 7.0;
/// Reads per task, at most.
const READS: f64 = 1.0;
/// p99 of the hub's own share as a multiple of the bare writer's create → Job, at most, at [`PACE`]: with it the whole is at most
/// twice as long.
const OWN_SHARE: f64 = 1.0;
/// The pace that the targets are about.
const PACE: u32 = 20;

/// Everything that one run measured.
pub struct Report {
    namespaces: usize,
    ground: Ground,
    /// With the chart's `MutatingAdmissionPolicy`, which is how it is installed.
    pub burst: Option<Burst>,
    /// Without it.
    pub burst_without_policy: Option<Burst>,
    /// Each pace.
    pub paced: Vec<Paced>,
    /// The restart.
    pub restart: Option<Restart>,
}

/// The machine that it ran on.
pub struct Ground {
    /// Cores that may be used.
    pub cores: usize,
    /// The load of the last minute.
    pub load_before: Option<f64>,
}

impl Ground {
    /// As it is now.
    pub fn look() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            load_before: load(),
        }
    }
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubernetes {KUBERNETES_VERSION} on {} cores", self.cores)?;
        let Some(load) = self.load_before else {
            return Ok(());
        };
        let quiet = if load > 0.5 { " (not a quiet machine)" } else { "" };
        write!(f, ", load {load:.2} before the run{quiet}")
    }
}

/// One line of the table.
pub struct Row {
    what: String,
    measured: String,
    /// The text of the target, and by how much it is missed.
    target: Option<(String, Option<String>)>,
}

impl Row {
    /// A line without a target.
    pub fn new(what: impl Into<String>, measured: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            measured: measured.into(),
            target: None,
        }
    }

    /// With a limit that the value must not exceed.
    pub fn at_most(self, limit: f64, value: f64, unit: &str) -> Self {
        let missed = (value > limit + 1e-9).then(|| format!("missed by {:.2}{unit}", value - limit));
        let target = Some((format!("≤ {limit:.2}{unit}"), missed));
        Self { target, ..self }
    }

    /// With a limit that the value must reach.
    pub fn at_least(self, limit: f64, value: f64, unit: &str) -> Self {
        let missed = (value < limit).then(|| format!("missed by {:.2}{unit}", limit - value));
        let target = Some((format!("≥ {limit:.2}{unit}"), missed));
        Self { target, ..self }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<52}{:>18}", self.what, self.measured)?;
        match &self.target {
            None => Ok(()),
            Some((target, None)) => write!(f, "   {target:<14} met"),
            Some((target, Some(missed))) => write!(f, "   {target:<14} {missed}"),
        }
    }
}

impl Report {
    /// An empty report.
    pub fn new(options: &Options) -> Self {
        Self {
            namespaces: options.namespaces,
            ground: Ground::look(),
            burst: None,
            burst_without_policy: None,
            paced: Vec::new(),
            restart: None,
        }
    }

    /// Writes the figures as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_json(&self.to_json(), path)
    }

    fn to_json(&self) -> Value {
        let mut all = json!({
            "kubernetes": KUBERNETES_VERSION,
            "cores": self.ground.cores,
            "load_before": self.ground.load_before,
            "namespaces": self.namespaces,
            "burst": self.burst,
            "burst_without_policy": self.burst_without_policy,
            "paced": self.paced,
            "restart": self.restart,
        });
        if let Some(burst) = &self.burst {
            all["burst_ratio_to_bare_writer"] = json!(burst.ratio());
            all["tasks_per_second"] = json!(Burst::mean(&burst.hub, |run| run.tasks_per_second));
            all["bare_tasks_per_second"] = json!(Burst::mean(&burst.bare, |run| run.tasks_per_second));
            all["hub_cpu_seconds_per_1000"] = json!(burst.per_task(|run| run.cpu_seconds) * 1000.0);
            all["writes_per_task"] = json!(burst.per_task(|run| number(run.writes)));
            all["reads_per_task"] = json!(burst.per_task(|run| number(run.reads)));
            all["peak_rss_mib"] = json!(burst.memory.peak_mib);
        }
        if let Some(burst) = &self.burst_without_policy {
            all["burst_ratio_to_bare_writer_without_policy"] = json!(burst.ratio());
            all["writes_per_task_without_policy"] = json!(burst.per_task(|run| number(run.writes)));
        }
        if let Some(paced) = self.paced.iter().find(|paced| paced.per_second == PACE) {
            all["create_to_job_ms_p50"] = json!(paced.hub.p50);
            all["create_to_job_ms_p99"] = json!(paced.hub.p99);
            all["bare_create_ms_p99"] = json!(paced.bare.p99);
            all["own_share_ms_p50"] = json!(paced.own.p50);
            all["own_share_ms_p99"] = json!(paced.own.p99);
        }
        if let Some(restart) = &self.restart {
            all["restart_writes"] = json!(restart.writes);
        }
        all
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}, {} namespaces", self.ground, self.namespaces)?;
        let bursts = [
            (
                &self.burst,
                "the finalizer set by the API server (the chart's policy)",
            ),
            (
                &self.burst_without_policy,
                "the finalizer set by the writer (no policy)",
            ),
        ];
        for (burst, how) in bursts {
            let Some(burst) = burst else { continue };
            section(
                f,
                &format!("A burst of {} tasks, {how}", burst.tasks),
                &burst_rows(burst),
            )?;
        }
        for paced in &self.paced {
            let title = format!("{} tasks at a steady {}/s", paced.tasks, paced.per_second);
            section(f, &title, &paced_rows(paced))?;
        }
        if let Some(restart) = &self.restart {
            let title = format!("A start with {} finished tasks", restart.tasks);
            section(f, &title, &restart_rows(restart))?;
        }
        Ok(())
    }
}

/// Writes figures to a file.
///
/// # Errors
/// If it cannot be written.
pub fn write_json(figures: &Value, path: &Path) -> Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let text = serde_json::to_string_pretty(figures)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Shows some lines under a title.
pub fn section(f: &mut fmt::Formatter<'_>, title: &str, rows: &[Row]) -> fmt::Result {
    writeln!(f, "\n{title}")?;
    rows.iter().try_for_each(|row| writeln!(f, "{row}"))
}

fn burst_rows(burst: &Burst) -> Vec<Row> {
    let mut rows = pace_rows(burst);
    rows.extend(cpu_rows(burst));
    let of_hub = |figure: fn(&Run) -> f64| burst.per_task(figure);
    let of_bare = |figure: fn(&Run) -> f64| Burst::mean(&burst.bare, figure) / number(burst.tasks);
    let (writes, reads) = (of_hub(|run| number(run.writes)), of_hub(|run| number(run.reads)));
    rows.extend([
        Row::new("hub's peak memory, MiB", format!("{:.1}", burst.memory.peak_mib)),
        Row::new("hub's writes per task", format!("{writes:.3}")).at_most(WRITES, writes, ""),
        Row::new(
            "bare writer's writes per task",
            format!("{:.3}", of_bare(|run| number(run.writes))),
        ),
        Row::new("hub's reads per task", format!("{reads:.3}")).at_most(READS, reads, ""),
    ]);
    let requests = burst.requests_per_task.iter();
    rows.extend(requests.map(|(action, n)| Row::new(format!("  {action}"), format!("{n:.3}"))));
    rows
}

fn pace_rows(burst: &Burst) -> Vec<Row> {
    let each = |runs: &[Run]| {
        let paces: Vec<_> = runs
            .iter()
            .map(|run| format!("{:.1}", run.tasks_per_second))
            .collect();
        paces.join(", ")
    };
    let ratio = burst.ratio();
    vec![
        Row::new("hub, tasks/s in each round", each(&burst.hub)),
        Row::new("bare writer, tasks/s in each round", each(&burst.bare)),
        Row::new("hub's pace as a part of the bare writer's", format!("{ratio:.2}"))
            .at_least(RATIO, ratio, ""),
    ]
}

fn cpu_rows(burst: &Burst) -> Vec<Row> {
    let per_1000 =
        |runs: &[Run], figure: fn(&Run) -> f64| Burst::mean(runs, figure) / number(burst.tasks) * 1000.0;
    let cpu = |run: &Run| run.cpu_seconds;
    let server = |run: &Run| run.apiserver_cpu_seconds;
    let (hub, bare) = (per_1000(&burst.hub, cpu), per_1000(&burst.bare, cpu));
    let servers = (per_1000(&burst.hub, server), per_1000(&burst.bare, server));
    vec![
        Row::new("hub's CPU, s per 1,000 tasks", format!("{hub:.2}")).at_most(HUB_CPU, hub, " s"),
        Row::new("bare writer's CPU, s per 1,000 tasks", format!("{bare:.2}")),
        Row::new(
            "kube-apiserver's CPU, s per 1,000 tasks: hub, bare",
            format!("{:.1}, {:.1}", servers.0, servers.1),
        ),
    ]
}

fn paced_rows(paced: &Paced) -> Vec<Row> {
    let row = |who: &str, l: &Latency| {
        Row::new(
            format!("create → Job, {who}, ms: p50, p99, max"),
            format!("{:.1}, {:.1}, {:.1}", l.p50, l.p99, l.max),
        )
    };
    let Own { events, p50, p99, .. } = paced.own;
    let part = p99 / paced.bare.p99;
    let ratio = Row::new(
        "p99 of it by the bare writer's create → Job",
        format!("{part:.2}"),
    );
    let ratio = if paced.per_second == PACE {
        ratio.at_most(OWN_SHARE, part, "")
    } else {
        ratio
    };
    let whole = paced.hub.p99 / paced.bare.p99;
    vec![
        row("hub", &paced.hub),
        row("bare writer", &paced.bare),
        Row::new(
            "hub's p99 as a multiple of the bare writer's",
            format!("{whole:.2}"),
        ),
        Row::new(
            "the hub's own share, ms: p50, p99, events",
            format!("{p50:.2}, {p99:.2}, {events}"),
        ),
        ratio,
    ]
}

fn restart_rows(restart: &Restart) -> Vec<Row> {
    let written = restart
        .written
        .iter()
        .map(|(what, times)| format!("{times} × {what}"));
    vec![
        Row::new("writes", restart.writes.to_string()).at_most(0.0, number(restart.writes), ""),
        Row::new("all that it wrote", written.collect::<Vec<_>>().join(", ")),
        Row::new("ready after, s", format!("{:.2}", restart.ready_seconds)),
        Row::new("hub CPU, s", format!("{:.2}", restart.cpu_seconds)),
        Row::new(
            "memory, MiB: peak, then",
            format!("{:.1}, {:.1}", restart.memory.peak_mib, restart.memory.now_mib),
        ),
    ]
}
