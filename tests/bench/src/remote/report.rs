//! What was measured of clusters elsewhere, as a table and as JSON.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use renderhub_harness::tools::KUBERNETES_VERSION;
use serde_json::{Value, json};

use super::crowd::Crowd;
use super::dead::DEAD;
use super::options::PER_SECOND;
use super::pair::{Finish, Pair};
use super::rotation::Rotation;
use super::turns::Beside;
use crate::measure::{Latency, load, number};
use crate::report::{Ground, Row, section, write_json};
use crate::share::Own;

/// p99 of the hub's own share with clusters of no use as a multiple of that without, at most.
const BESIDE_RATIO: f64 = 1.1;
/// MiB of a hub with 1,000 idle clusters, at most.
const RSS_MIB: f64 = 96.0;
/// Per cent of a core that it uses, at most.
const IDLE_CPU: f64 = 1.0;
/// Seconds until all are connected, at most.
const CONNECT: f64 = 10.0;
/// Sockets for each cluster, at most.
const SOCKETS: f64 = 2.0;
/// Milliseconds from the end of a Job to that of its task, at most.
const FINISH_MS: f64 = 100.0;
/// The crowd that the targets are about.
const CROWD: usize = 1000;

/// Everything that one run measured.
pub struct Report {
    ground: Ground,
    load_after: Option<f64>,
    /// Here and there.
    pub pair: Option<Pair>,
    /// Ends of Jobs.
    pub finish: Option<Finish>,
    /// Rotations.
    pub rotation: Option<Rotation>,
    /// Dead clusters.
    pub dead: Option<Beside>,
    /// Clusters that do no work.
    pub idle: Option<Beside>,
    /// Idle clusters.
    pub crowd: Option<Crowd>,
}

impl Report {
    /// An empty report.
    pub fn new() -> Self {
        Self {
            ground: Ground::look(),
            load_after: None,
            pair: None,
            finish: None,
            rotation: None,
            dead: None,
            idle: None,
            crowd: None,
        }
    }

    /// Records the machine's load at the end.
    pub fn end(&mut self) {
        self.load_after = load();
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
            "load_after": self.load_after,
            "beside_local": self.pair,
            "finish": self.finish,
            "rotation": self.rotation,
            "dead": self.dead,
            "idle": self.idle,
            "crowd": self.crowd,
        });
        if let Some(dead) = &self.dead {
            all["dead_clusters_own_p99_ratio"] = json!(own_ratio(dead));
            all["dead_clusters_p99_ratio"] = json!(dead.with.p99 / dead.without.p99);
        }
        if let Some(idle) = &self.idle {
            all["idle_clusters_own_p99_ratio"] = json!(own_ratio(idle));
            all["idle_clusters_p99_ratio"] = json!(idle.with.p99 / idle.without.p99);
        }
        if let Some(pair) = &self.pair {
            all["remote_over_local_p99"] = json!(pair.remote.p99 / pair.local.p99);
            all["remote_minus_local_p99_ms"] = json!(pair.remote.p99 - pair.local.p99);
            all["remote_round_trip_ms_p50"] = json!(pair.round_trip.p50);
        }
        if let Some(finish) = &self.finish {
            all["finish_to_terminal_ms_p99"] = json!(finish.to_end.p99);
        }
        if let Some(rotation) = &self.rotation {
            all["rotation_failed_tasks"] = json!(rotation.failed);
        }
        if let Some(crowd) = self.crowd.as_ref().filter(|crowd| crowd.clusters == CROWD) {
            all["rss_mib_1000_clusters"] = json!(crowd.memory.now_mib);
            all["connect_seconds_1000"] = json!(crowd.connect_seconds);
            all["idle_cpu_percent_1000"] = json!(crowd.idle_cpu_percent);
            all["sockets_per_cluster_1000"] = json!(crowd.sockets_each());
        }
        all
    }
}

impl Report {
    /// What clusters cost that are of no use.
    fn beside(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(dead) = &self.dead {
            let title = format!(
                "{} clusters, {DEAD} of them dead, {} loads of {} tasks at {PER_SECOND}/s",
                dead.clusters,
                dead.loads(),
                dead.tasks
            );
            section(f, &title, &dead.rows())?;
        }
        if let Some(idle) = &self.idle {
            let title = format!(
                "{} clusters, {DEAD} of them answer probes and no work, and a slow one, {} loads of {} tasks at \
                 {PER_SECOND}/s",
                idle.clusters,
                idle.loads(),
                idle.tasks
            );
            section(f, &title, &idle.rows())?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = self
            .load_after
            .map_or_else(String::new, |load| format!(", {load:.2} after it"));
        writeln!(f, "\nRemote clusters: {}{after}", self.ground)?;
        if let Some(pair) = &self.pair {
            let title = format!(
                "{} tasks here and {} there, in turns, {PER_SECOND}/s",
                pair.tasks, pair.tasks
            );
            section(f, &title, &pair.rows())?;
        }
        if let Some(finish) = &self.finish {
            let title = format!("{} tasks there, {PER_SECOND}/s", finish.tasks);
            section(f, &title, &finish.rows())?;
        }
        if let Some(rotation) = &self.rotation {
            let title = format!(
                "{} rotations of a kubeconfig in {:.0} s, {} tasks meanwhile",
                rotation.rotations, rotation.seconds, rotation.tasks
            );
            section(f, &title, &rotation.rows())?;
        }
        self.beside(f)?;
        if let Some(crowd) = &self.crowd {
            let title = format!("{} idle clusters", crowd.clusters);
            section(f, &title, &crowd.rows())?;
        }
        Ok(())
    }
}

fn latency(what: &str, latency: &Latency) -> Row {
    Row::new(
        format!("{what}, ms: p50, p99, max"),
        format!("{:.1}, {:.1}, {:.1}", latency.p50, latency.p99, latency.max),
    )
}

impl Pair {
    fn rows(&self) -> Vec<Row> {
        let more = self.remote.p99 - self.local.p99;
        vec![
            latency("create → Job, here", &self.local),
            latency("create → Job, there", &self.remote),
            latency("a round trip there", &self.round_trip),
            Row::new("p99 there above p99 here, ms", format!("{more:.1}")).at_most(
                self.round_trip.p50,
                more,
                " ms",
            ),
        ]
    }
}

impl Finish {
    fn rows(&self) -> Vec<Row> {
        vec![latency("Job finished → task ended", &self.to_end).at_most(FINISH_MS, self.to_end.p99, " ms")]
    }
}

impl Rotation {
    fn rows(&self) -> Vec<Row> {
        vec![
            Row::new("tasks that failed", self.failed.to_string()).at_most(0.0, number(self.failed), ""),
            Row::new(
                "rotations with another address too, reconnects",
                format!("{}, {}", self.moves, self.reconnects),
            ),
        ]
    }
}

/// p99 of the hub's own share with those clusters as a multiple of the same without them.
fn own_ratio(beside: &Beside) -> f64 {
    beside.own_with.p99 / beside.own_without.p99
}

impl Beside {
    fn rows(&self) -> Vec<Row> {
        let share = |what: &str, own: &Own, loads: &[f64]| {
            let loads: Vec<String> = loads.iter().map(|p99| format!("{p99:.2}")).collect();
            [
                Row::new(
                    format!("{what}, ms: p50, p99, events"),
                    format!("{:.2}, {:.2}, {}", own.p50, own.p99, own.events),
                ),
                Row::new("p99 of each of its loads, ms".to_owned(), loads.join(", ")),
            ]
        };
        let (ratio, whole) = (own_ratio(self), self.with.p99 / self.without.p99);
        let without = share(
            "the hub's own share without them",
            &self.own_without,
            &self.own_p99s_without,
        );
        let with = share(
            "the hub's own share of the others with them",
            &self.own_with,
            &self.own_p99s_with,
        );
        let rest = [
            Row::new("p99 of it as a multiple", format!("{ratio:.2}")).at_most(BESIDE_RATIO, ratio, ""),
            Row::new(
                "events that what is their own held up",
                self.own_with.held_up.to_string(),
            ),
            latency("create → Job without them", &self.without),
            latency("create → Job of the others with them", &self.with),
            Row::new("p99 of it as a multiple", format!("{whole:.2}")),
            Row::new("tasks of the others that failed", self.failed.to_string()).at_most(
                0.0,
                number(self.failed),
                "",
            ),
        ];
        without.into_iter().chain(with).chain(rest).collect()
    }
}

impl Crowd {
    fn rows(&self) -> Vec<Row> {
        let bound = |row: Row, limit, value, unit| {
            if self.clusters == CROWD {
                row.at_most(limit, value, unit)
            } else {
                row
            }
        };
        let (rss, cpu) = (self.memory.now_mib, self.idle_cpu_percent);
        let row = |what: &str, value: f64, digits| Row::new(what, format!("{value:.digits$}"));
        vec![
            bound(row("hub's memory, MiB", rss, 1), RSS_MIB, rss, " MiB"),
            row("most memory so far, MiB", self.memory.peak_mib, 1),
            bound(row("hub's CPU, % of a core", cpu, 2), IDLE_CPU, cpu, " %"),
            bound(
                row("all connected after, s", self.connect_seconds, 2),
                CONNECT,
                self.connect_seconds,
                " s",
            ),
            row("  of which until ready", self.ready_seconds, 2),
            row("  hub's CPU, s", self.connect_cpu_seconds, 2),
            row("every status says so after, s", self.told_seconds, 2),
            bound(
                row("sockets for each", self.sockets_each(), 3),
                SOCKETS,
                self.sockets_each(),
                "",
            ),
        ]
    }
}
