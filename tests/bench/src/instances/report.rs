//! What was measured of many instances and tenants, as a table and as JSON.

use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};
use renderhub_harness::tools::KUBERNETES_VERSION;
use serde_json::{Value, json};

use super::failover::Failover;
use super::fair::{Fair, Waits};
use super::shards::Shards;
use super::standby::Standby;
use crate::measure::{load, number};
use crate::report::{Ground, Row, section, write_json};

/// The quiet tenant's median in a flood as a multiple of the one before, at most.
const FAIR: f64 = 2.0;
/// Per cent by which the requests for each task may differ.
const REQUESTS: f64 = 2.0;
/// CPU time of three hubs as a multiple of one's, at most.
const CPU: f64 = 1.2;
/// Seconds from a kill to the first Job of another instance, at most.
const FAILOVER: f64 = 20.0;
/// Per cent of a core that a standby uses, at most.
const STANDBY_CPU: f64 = 1.0;
/// Its memory above that of a process that does nothing, in MiB, at most.
const STANDBY_RSS: f64 = 20.0;

/// Everything that one run measured.
pub struct Report {
    ground: Ground,
    load_after: Option<f64>,
    /// What could not be measured, and why.
    failed: Vec<(&'static str, String)>,
    /// A flood beside a quiet tenant.
    pub fair: Option<Fair>,
    /// The same with Jobs that take a while.
    pub fair_lasting: Option<Fair>,
    /// One hub, and three with lists.
    pub lists: Option<Shards>,
    /// Kills.
    pub failover: Option<Failover>,
    /// The standby.
    pub standby: Option<Standby>,
}

impl Report {
    /// An empty report.
    pub fn new() -> Self {
        Self {
            ground: Ground::look(),
            load_after: None,
            failed: Vec::new(),
            fair: None,
            fair_lasting: None,
            lists: None,
            failover: None,
            standby: None,
        }
    }

    /// What was measured; where it could not be, the reason is printed at once and kept.
    pub fn note<T>(&mut self, case: &'static str, measured: Result<T>) -> Option<T> {
        measured
            .map_err(|error| {
                eprintln!("{case} could not be measured: {error:#}");
                self.failed.push((case, format!("{error:#}")));
            })
            .ok()
    }

    /// Records the machine's load at the end.
    pub fn end(&mut self) {
        self.load_after = load();
    }

    /// Whether everything could be measured; a missed target is a line of the table, not an error.
    ///
    /// # Errors
    /// If something could not.
    pub fn check(&self) -> Result<()> {
        let failed: Vec<_> = self.failed.iter().map(|(case, _)| *case).collect();
        ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
        Ok(())
    }

    /// Writes the figures as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_json(&self.to_json(), path)
    }

    fn to_json(&self) -> Value {
        let failed: Vec<_> = self
            .failed
            .iter()
            .map(|(case, why)| json!({"case": case, "why": why}))
            .collect();
        let mut all = json!({
            "kubernetes": KUBERNETES_VERSION,
            "cores": self.ground.cores,
            "load_before": self.ground.load_before,
            "load_after": self.load_after,
            "fair": self.fair,
            "fair_of_lasting_jobs": self.fair_lasting,
            "shards_by_lists": self.lists,
            "failover": self.failover,
            "standby": self.standby,
            "not_measured": failed,
        });
        for (fair, of) in [(&self.fair, ""), (&self.fair_lasting, "_of_lasting_jobs")] {
            let Some(fair) = fair else { continue };
            let mut say = |what: &str, value| all[format!("fair_{what}{of}")] = json!(value);
            say("ratio", Some(fair.ratio()));
            say("ratio_p99", Some(fair.ratio_p99()));
            say("ratio_while_creating", fair.part(fair.while_creating.as_ref()));
            say("ratio_while_queued", fair.part(fair.while_queued.as_ref()));
            say("ratio_of_api_server", Some(fair.of_api_server()));
            say("over_bare_p50", Some(fair.flood.hub.p50 / fair.flood.bare.p50));
        }
        if let Some(shards) = &self.lists {
            all["shards_requests_ratio"] = json!(shards.requests());
            all["shards_all_requests_ratio"] = json!(shards.all_requests());
            all["shards_cpu_ratio"] = json!(shards.cpu());
        }
        self.instances_to_json(&mut all);
        all
    }

    fn instances_to_json(&self, all: &mut Value) {
        if let Some(failover) = &self.failover {
            all["failover_seconds_p50"] = json!(failover.latency.p50 / 1000.0);
            all["failover_seconds_p99"] = json!(failover.latency.p99 / 1000.0);
            all["duplicates"] = json!(failover.duplicates);
            all["lost"] = json!(failover.lost);
        }
        if let Some(standby) = &self.standby {
            all["standby_cpu_percent"] = json!(standby.cpu_percent);
            all["standby_rss_over_idle_mib"] = json!(standby.over_idle());
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = self
            .load_after
            .map_or_else(String::new, |load| format!(", {load:.2} after it"));
        writeln!(f, "\nInstances and tenants: {}{after}", self.ground)?;
        if let Some(standby) = &self.standby {
            let title = format!("An instance that stands by, for {:.0} s", standby.seconds);
            section(f, &title, &standby.rows())?;
        }
        for fair in [&self.fair, &self.fair_lasting].into_iter().flatten() {
            let title = format!(
                "A quiet tenant beside {} tasks at once, made in {:.0} s, done after {:.0} s; Jobs take {:.0} s",
                fair.flood_tasks, fair.creating_seconds, fair.flood_seconds, fair.job_seconds
            );
            section(f, &title, &fair.rows())?;
        }
        if let Some(shards) = &self.lists {
            let title = format!(
                "{} tasks over {} namespaces: one hub, and {} hubs with lists",
                shards.tasks, shards.namespaces, shards.several.hubs
            );
            section(f, &title, &shards.rows())?;
        }
        if let Some(failover) = &self.failover {
            let title = format!(
                "{} kills of the instance at work, {} tasks",
                failover.kills, failover.tasks
            );
            section(f, &title, &failover.rows())?;
        }
        for (case, why) in &self.failed {
            writeln!(f, "\n{case} could not be measured: {why}")?;
        }
        Ok(())
    }
}

fn row(what: &str, value: f64, digits: usize) -> Row {
    Row::new(what, format!("{value:.digits$}"))
}

fn latency(what: &str, waits: &Waits) -> [Row; 2] {
    [("quiet tenant", &waits.hub), ("bare writer", &waits.bare)].map(|(who, l)| {
        Row::new(
            format!("{what}, {who}, ms: p50, p99, max"),
            format!("{:.1}, {:.1}, {:.1}", l.p50, l.p99, l.max),
        )
    })
}

impl Fair {
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::from(latency("create → Job, before", &self.calm));
        rows.extend(latency("create → Job, meanwhile", &self.flood));
        rows.extend([
            row("its median as a multiple", self.ratio(), 2).at_most(FAIR, self.ratio(), ""),
            row("  its p99", self.ratio_p99(), 2),
            row(
                "  the bare writer's median: the API server alone",
                self.of_api_server(),
                2,
            ),
        ]);
        for (what, part) in [
            ("  while the tasks were made", &self.while_creating),
            ("  while they waited", &self.while_queued),
        ] {
            rows.extend(self.part(part.as_ref()).map(|ratio| row(what, ratio, 2)));
        }
        rows
    }
}

impl Shards {
    fn rows(&self) -> Vec<Row> {
        let pair = |what: &str, one: f64, several: f64| Row::new(what, format!("{one:.2}, {several:.2}"));
        let (one, several) = (&self.one, &self.several);
        let differ = (self.requests() - 1.0).abs() * 100.0;
        vec![
            pair(
                "requests for each task",
                one.requests_per_task,
                several.requests_per_task,
            ),
            row("they differ by, %", differ, 2).at_most(REQUESTS, differ, " %"),
            pair(
                "  with Leases, rights and events",
                one.all_requests_per_task,
                several.all_requests_per_task,
            ),
            pair("hubs' CPU, s", one.hub_cpu_seconds, several.hub_cpu_seconds),
            row("as a multiple", self.cpu(), 2).at_most(CPU, self.cpu(), ""),
            pair("done after, s", one.seconds, several.seconds),
        ]
    }
}

impl Failover {
    fn rows(&self) -> Vec<Row> {
        let [p50, p99, max] = [self.latency.p50, self.latency.p99, self.latency.max].map(|ms| ms / 1000.0);
        let (duplicates, lost) = (number(self.duplicates), number(self.lost));
        vec![
            Row::new(
                "kill → first Job, s: p50, p99, max",
                format!("{p50:.1}, {p99:.1}, {max:.1}"),
            )
            .at_most(FAILOVER, p99, " s"),
            row("times that it had not caught up before", number(self.behind), 0),
            row("Jobs made twice", duplicates, 0).at_most(0.0, duplicates, ""),
            row("tasks lost", lost, 0).at_most(0.0, lost, ""),
        ]
    }
}

impl Standby {
    fn rows(&self) -> Vec<Row> {
        let (cpu, over) = (self.cpu_percent, self.over_idle());
        vec![
            row("its CPU, % of a core", cpu, 2).at_most(STANDBY_CPU, cpu, " %"),
            row("its memory, MiB", self.rss_mib, 1),
            row("  above a process that does nothing", over, 1).at_most(STANDBY_RSS, over, " MiB"),
            row(
                "CPU of the one that works, without tasks, %",
                self.active_cpu_percent,
                2,
            ),
            row("memory of that one, MiB", self.active_rss_mib, 1),
        ]
    }
}
