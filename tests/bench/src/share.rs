//! The hub's own share of what a task waits: from the arrival of an event at the hub to the request that leaves for it, by the
//! hub's own histograms. What API servers take is no part of it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use renderhub_harness::Hub;
use serde::Serialize;

/// The histogram that is read.
const METRIC: &str = "renderhub_event_to_request_seconds_bucket{";
/// What keeps an event longest that its own namespace, its own cluster, the bound on Jobs or a pass of its own task holds up, which
/// waits for an API server; all others are held up by the hub, or by what they share with others.
const BY_ITS_OWN: [&str; 5] = ["namespace", "cluster", "turn", "pace", "pass"];

/// Where the tasks run whose events are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runs {
    /// On the hub's own cluster.
    Here,
    /// On others.
    Elsewhere,
}

impl Runs {
    const fn label(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// Events in each bucket, by its upper end; the last end is infinite.
#[derive(Clone, Debug, Default)]
pub struct Share {
    own: Vec<(f64, u64)>,
    /// Events that are left out, because what is their own held them up longest.
    kept: u64,
}

/// What counts of a share, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Own {
    /// Events.
    pub events: u64,
    /// Half are faster.
    pub p50: f64,
    /// All but one in a hundred are faster.
    pub p99: f64,
    /// Events beside these that what is their own held up longest: their namespace's workers, their cluster's, its pace, or the
    /// bound on Jobs.
    pub held_up: u64,
}

impl Share {
    /// What a hub has counted so far.
    ///
    /// # Errors
    /// If it does not say.
    pub async fn of(hub: &Hub, runs: Runs) -> Result<Self> {
        Ok(Self::read(&hub.metrics().await?, runs))
    }

    fn read(metrics: &str, runs: Runs) -> Self {
        let runs = format!("runs=\"{}\"", runs.label());
        let (mut own, mut kept) = (BTreeMap::<u64, (f64, u64)>::new(), 0);
        for line in metrics
            .lines()
            .filter(|line| line.starts_with(METRIC) && line.contains(&runs))
        {
            let Some((end, count)) = bucket(line) else {
                continue;
            };
            let is_kept = BY_ITS_OWN
                .iter()
                .any(|wait| line.contains(&format!("mostly=\"{wait}\"")));
            if !is_kept {
                // Ends are positive, so their bits are in their order.
                own.entry(end.to_bits()).or_insert((end, 0)).1 += count;
            } else if end.is_infinite() {
                kept += count;
            }
        }
        let mut before = 0;
        let own = own.into_values().map(|(end, up_to)| {
            let within = up_to - before;
            before = up_to;
            (end, within)
        });
        Self {
            own: own.collect(),
            kept,
        }
    }

    /// What was counted since then.
    pub fn since(mut self, before: &Self) -> Self {
        for (end, count) in &mut self.own {
            let earlier = before
                .own
                .iter()
                .find(|(other, _)| other.to_bits() == end.to_bits());
            *count -= earlier.map_or(0, |(_, earlier)| *earlier);
        }
        self.kept -= before.kept;
        self
    }

    /// Both together.
    pub fn and(mut self, other: &Self) -> Self {
        if self.own.is_empty() {
            self.own.clone_from(&other.own);
        } else {
            for ((_, count), (_, more)) in self.own.iter_mut().zip(&other.own) {
                *count += more;
            }
        }
        self.kept += other.kept;
        self
    }

    /// All but one in a hundred are faster than so many milliseconds.
    ///
    /// # Errors
    /// If nothing was counted.
    pub fn p99(&self) -> Result<f64> {
        self.percentile(99).context("no event was counted")
    }

    /// What counts of it.
    ///
    /// # Errors
    /// If nothing was counted.
    pub fn own(&self) -> Result<Own> {
        let events: u64 = self.own.iter().map(|(_, count)| count).sum();
        Ok(Own {
            events,
            p50: self.percentile(50).context("no event was counted")?,
            p99: self.p99()?,
            held_up: self.kept,
        })
    }

    /// In milliseconds; within a bucket the events count as spread evenly.
    fn percentile(&self, percent: u64) -> Option<f64> {
        let events: u64 = self.own.iter().map(|(_, count)| count).sum();
        let rank = float(events * percent) / 100.0;
        let (mut below, mut begin) = (0.0, 0.0);
        for (end, count) in self.own.iter().filter(|_| events > 0) {
            let count = float(*count);
            if below + count >= rank && count > 0.0 {
                let end = if end.is_finite() { *end } else { begin };
                return Some((begin + (end - begin) * (rank - below) / count) * 1000.0);
            }
            (below, begin) = (below + count, *end);
        }
        None
    }
}

fn bucket(line: &str) -> Option<(f64, u64)> {
    let (labels, count) = line.rsplit_once(' ')?;
    let end = labels.split_once("le=\"")?.1.split_once('"')?.0;
    let end = match end {
        "+Inf" => f64::INFINITY,
        end => end.parse().ok()?,
    };
    Some((end, count.parse().ok()?))
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use prometheus_client::encoding::text::encode;
    use renderhub::base::metrics::Metrics;
    use renderhub::base::metrics::event_latency;
    use renderhub::base::metrics::event_latency::{EventLatency, WaitReason};

    use super::*;

    #[test]
    fn the_share_is_read_from_metrics_as_the_hub_writes_them() {
        let (metrics, registry) = Metrics::new();
        let arrived = Instant::now();
        let count = |millis: u64, wait: Option<WaitReason>| {
            let mut journey = EventLatency::new(arrived);
            journey.set_runs(event_latency::TaskLocation::Elsewhere);
            let took = Duration::from_millis(millis);
            if let Some(wait) = wait {
                journey.waited(wait, took);
            }
            metrics.event_latency.count(&journey, arrived + took);
        };
        let read = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            Share::read(&text, Runs::Elsewhere)
        };
        count(5_000, None);
        let before = read();
        for millis in 1..=100 {
            count(millis, (millis % 2 == 0).then_some(WaitReason::Worker));
        }
        for _ in 0..50 {
            count(30_000, Some(WaitReason::Cluster));
        }
        let since = read().since(&before);
        let own = since.own().unwrap();
        assert_eq!((own.events, own.held_up), (100, 50));
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 0.05;
        assert!(close(own.p50, 50.0) && close(own.p99, 99.0), "{own:?}");
        let twice = Share::default().and(&since).and(&since).own().unwrap();
        assert_eq!((twice.events, twice.held_up), (200, 100));
        assert!(close(twice.p99, own.p99));
        assert!(Share::default().own().is_err());
    }
}
