//! The figures of the pipeline, as a table and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::{HubRun, Made};
use crate::measure::number;
use crate::report::{Row, section};

/// The hub's pace with a fleet as a part of the bare writer's, at least.
const FLEET_RATIO: f64 = 0.9;
/// The same as a part of its pace with those tasks made by hand.
const OVER_BY_HAND: f64 = 0.6;
/// Tasks for a fleet as a multiple of those for which no two are alike, at most.
const TASKS: f64 = 1.0;
/// Requests for each Target with a Release that changes.
const ONE_CHANGED: f64 = 16.0;
/// Memory of a hub with the fleet, in MiB.
const RSS_MIB: f64 = 64.0;

/// Everything that was measured.
pub struct Figures {
    pub targets: usize,
    pub releases: usize,
    pub namespaces: usize,
    pub load_before: Option<f64>,
    pub by_hand: Made,
    pub hub: HubRun,
    pub bare: Made,
}

impl Figures {
    /// Tasks that a fleet has where no two are alike.
    fn wanted_tasks(&self) -> usize {
        self.targets + self.releases * self.namespaces
    }

    fn ratio(&self) -> f64 {
        self.hub.made.rate() / self.bare.rate()
    }

    fn over_by_hand(&self) -> f64 {
        self.hub.made.rate() / self.by_hand.rate()
    }

    pub fn to_json(&self) -> Value {
        let run = |made: &Made| {
            json!({
                "tasks": made.tasks,
                "seconds": made.seconds,
                "cpu_seconds": made.cpu_seconds,
                "apiserver_cpu_seconds": made.apiserver_cpu_seconds,
                "requests": made.requests.of_tasks(),
                "requests_by_action": made.requests.counts,
            })
        };
        let hub = &self.hub;
        json!({
            "targets": self.targets,
            "releases": self.releases,
            "namespaces": self.namespaces,
            "load_before": self.load_before,
            "tasks_for_fleet": hub.tasks.len(),
            "fleet_ratio": self.ratio(),
            "fleet_over_by_hand": self.over_by_hand(),
            "one_release_changed": hub.changed.requests,
            "others_requests": hub.changed.others,
            "idle_writes": hub.idle_writes,
            "hub_rss_mib": hub.rss_mib,
            "hub_rss_mib_after_restart": hub.rss_mib_after_restart,
            "fleet": run(&hub.made),
            "bare": run(&self.bare),
            "by_hand": run(&self.by_hand),
        })
    }

    fn rows(&self) -> Vec<Row> {
        let hub = &self.hub;
        let (tasks, wanted) = (number(hub.tasks.len()), number(self.wanted_tasks()));
        let whole = |count: usize| count.to_string();
        let (ratio, over) = (self.ratio(), self.over_by_hand());
        let changed = hub.changed.requests;
        let (others, idle) = (hub.changed.others, hub.idle_writes);
        vec![
            Row::new("tasks for the fleet", whole(hub.tasks.len())).at_most(TASKS * wanted, tasks, ""),
            Row::new("fleet, tasks/s: hub, bare, by hand", self.rates()),
            Row::new("hub's pace as a part of the bare writer's", format!("{ratio:.2}")).at_least(
                FLEET_RATIO,
                ratio,
                "",
            ),
            Row::new("the same of that of tasks made by hand", format!("{over:.2}")).at_least(
                OVER_BY_HAND,
                over,
                "",
            ),
            Row::new("requests per task: hub, bare, by hand", self.requests()),
            Row::new("CPU of hub, bare, hub by hand, s", self.cpu()),
            Row::new("kube-apiserver's CPU meanwhile, s", self.server_cpu()),
            Row::new(
                "one Release changes: requests per Target",
                format!("{changed:.2}"),
            )
            .at_most(ONE_CHANGED, changed, ""),
            Row::new("requests about Targets without it", whole(others)).at_most(0.0, number(others), ""),
            Row::new("writes of a restart", whole(idle)).at_most(0.0, number(idle), ""),
            Row::new("hub's memory with the fleet, MiB", format!("{:.1}", hub.rss_mib)).at_most(
                RSS_MIB,
                hub.rss_mib,
                " MiB",
            ),
            Row::new(
                "the same after a restart",
                format!("{:.1}", hub.rss_mib_after_restart),
            ),
        ]
    }

    fn each(&self, figure: impl Fn(&Made) -> String) -> String {
        let runs = [&self.hub.made, &self.bare, &self.by_hand];
        runs.map(figure).join(", ")
    }

    fn rates(&self) -> String {
        self.each(|made| format!("{:.1}", made.rate()))
    }

    fn requests(&self) -> String {
        self.each(|made| format!("{:.1}", number(made.requests.of_tasks()) / number(made.tasks)))
    }

    fn cpu(&self) -> String {
        self.each(|made| format!("{:.1}", made.cpu_seconds))
    }

    fn server_cpu(&self) -> String {
        self.each(|made| format!("{:.1}", made.apiserver_cpu_seconds))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!(
            "A fleet of {} Targets in {} namespaces, {} Releases in each{}",
            self.targets,
            self.namespaces,
            self.releases,
            self.load_before
                .map_or_else(String::new, |load| format!(", load {load:.2} before the run"))
        );
        section(f, &title, &self.rows())
    }
}
