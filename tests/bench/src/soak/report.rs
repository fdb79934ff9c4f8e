//! What the soak measured, as a table for people and as JSON for programs.

use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result};
use renderhub_harness::tools::KUBERNETES_VERSION;
use serde_json::json;

use super::hub::{Fared, Sample};
use super::quiet::Waits;
use crate::measure::number;
use crate::report::{Ground, Row, section, write_json};
use crate::share::Own;

/// Memory of the last minute as a multiple of that of the sixth, at most.
const FLAT: f64 = 1.05;
/// Most memory as a part of the chart's limit.
const PART: f64 = 0.5;
/// The quiet tenant's p99 as a multiple of the bare writer's, at most.
const SLOWER: f64 = 1.2;
/// Seconds that are left out at the start, while everything that is kept for a while fills up.
const WARM_UP: f64 = 300.0;
/// Seconds that are compared.
const MINUTE: f64 = 60.0;
/// Samples in the JSON at most.
const SHOWN: usize = 360;

/// Everything that was measured.
pub struct Report {
    minutes: u64,
    ground: Ground,
    limit_mib: f64,
    ratio: f64,
    own: Own,
    fared: Fared,
    waits: Waits,
    refused: usize,
    samples: Vec<Sample>,
}

impl Report {
    /// Of a soak of so many minutes.
    ///
    /// # Errors
    /// If the hub's memory or its own share was never seen.
    pub fn new(
        minutes: u64,
        ground: Ground,
        limit: u64,
        samples: Vec<Sample>,
        fared: Fared,
        waits: Waits,
        refused: usize,
    ) -> Result<Self> {
        Ok(Self {
            minutes,
            ground,
            limit_mib: mib(limit),
            ratio: last_over_first(&samples).context("the hub's memory was not seen")?,
            own: fared.own.context("the hub was down at the end")?,
            fared,
            waits,
            refused,
            samples,
        })
    }

    /// Most memory over the limit. What the kernel killed had reached it, though that was too short to be seen.
    fn peak(&self) -> f64 {
        let seen = self.fared.peak_mib / self.limit_mib;
        if self.fared.kills > 0 { seen.max(1.0) } else { seen }
    }

    /// What the hub adds to the wait that both have: its p99 by its own share, over that of the bare writer.
    fn slower(&self) -> f64 {
        1.0 + self.own.p99 / self.waits.bare.p99
    }

    /// Writes the figures.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let every = self.samples.len().div_ceil(SHOWN).max(1);
        let over_time: Vec<_> = self
            .samples
            .iter()
            .step_by(every)
            .map(|s| [s.at, s.mib])
            .collect();
        let figures = json!({
            "kubernetes": KUBERNETES_VERSION,
            "cores": self.ground.cores,
            "minutes": self.minutes,
            "limit_mib": self.limit_mib,
            "rss_last_over_first_ratio": self.ratio,
            "peak_rss_over_limit": self.peak(),
            "quiet_p99_over_bare": self.slower(),
            "restarts": self.fared.restarts,
            "lost": self.waits.lost,
            "oom_kills": self.fared.kills,
            "quiet_tasks": self.waits.tasks,
            "hub_own_share_ms": self.own,
            "quiet_wait_ms": self.waits.hub,
            "bare_wait_ms": self.waits.bare,
            "refused_of_quiet_and_bare": self.waits.refused,
            "refused_of_hostile_tenants": self.refused,
            "rss_mib_over_seconds": over_time,
        });
        write_json(&figures, path)
    }

    fn rows(&self) -> Vec<Row> {
        let (peak, slower) = (self.peak(), self.slower());
        let waits = |who: &str, l: &crate::measure::Latency| {
            Row::new(
                format!("create → Job, {who}, ms: p50, p99, max"),
                format!("{:.1}, {:.1}, {:.1}", l.p50, l.p99, l.max),
            )
        };
        let none = |what: &str, count: f64| Row::new(what, format!("{count}")).at_most(0.0, count, "");
        vec![
            Row::new(
                "memory of the last minute over the first",
                format!("{:.3}", self.ratio),
            )
            .at_most(FLAT, self.ratio, ""),
            Row::new("peak memory, MiB", format!("{:.1}", self.fared.peak_mib)),
            Row::new("peak memory over the chart's limit", format!("{peak:.2}")).at_most(PART, peak, ""),
            waits("quiet tenant", &self.waits.hub),
            waits("bare writer", &self.waits.bare),
            Row::new(
                "the hub's own share, ms: p50, p99, events",
                format!("{:.2}, {:.2}, {}", self.own.p50, self.own.p99, self.own.events),
            ),
            Row::new("bare p99 and the hub's own over bare p99", format!("{slower:.2}"))
                .at_most(SLOWER, slower, ""),
            none("restarts of the hub", f64::from(self.fared.restarts)),
            none("lost tasks of the quiet tenant", number(self.waits.lost)),
            Row::new("tasks of the quiet tenant", self.waits.tasks.to_string()),
            Row::new("killed for its memory", self.fared.kills.to_string()),
            Row::new(
                "refused by the API server: quiet and bare, hostile",
                format!("{}, {}", self.waits.refused, self.refused),
            ),
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.ground)?;
        let title = format!("The soak, {} minutes in {} MiB", self.minutes, self.limit_mib);
        section(f, &title, &self.rows())?;
        for words in &self.fared.last_words {
            writeln!(f, "\nthe hub ended: {words}")?;
        }
        Ok(())
    }
}

/// Bytes in MiB.
pub fn mib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1024.0
}

/// The two spans that are compared, in seconds: the sixth minute and the last, of a short run its second quarter and its last.
pub fn spans(end: f64) -> [(f64, f64); 2] {
    if end >= 2.0 * WARM_UP {
        [(WARM_UP, WARM_UP + MINUTE), (end - MINUTE, end)]
    } else {
        [(end / 4.0, end / 2.0), (end * 0.75, end)]
    }
}

/// Mean memory of the later span over that of the first; none where one has no sample.
fn last_over_first(samples: &[Sample]) -> Option<f64> {
    let [first, last] = spans(samples.last()?.at).map(|(from, to)| {
        let inside: Vec<f64> = samples
            .iter()
            .filter(|sample| (from..=to).contains(&sample.at))
            .map(|sample| sample.mib)
            .collect();
        (!inside.is_empty()).then(|| inside.iter().sum::<f64>() / number(inside.len()))
    });
    Some(last? / first?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seconds: u32, mib: impl Fn(f64) -> f64) -> Vec<Sample> {
        (0..=seconds)
            .map(f64::from)
            .map(|at| Sample { at, mib: mib(at) })
            .collect()
    }

    #[test]
    fn what_fills_up_in_the_first_five_minutes_does_not_count() {
        let rises = |at: f64| 20.0 + 30.0 * (at / WARM_UP).min(1.0);
        let ratio = last_over_first(&line(1_800, rises)).unwrap();
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        let leaks = |at: f64| 50.0 + at / 30.0;
        let ratio = last_over_first(&line(1_800, leaks)).unwrap();
        assert!((1.7..1.9).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_short_run_is_compared_by_its_quarters() {
        assert_eq!(spans(120.0), [(30.0, 60.0), (90.0, 120.0)]);
        assert_eq!(spans(1_800.0), [(300.0, 360.0), (1_740.0, 1_800.0)]);
        let step = |at: f64| if at < 75.0 { 10.0 } else { 20.0 };
        assert!((last_over_first(&line(120, step)).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(last_over_first(&[]), None);
    }

    #[test]
    fn a_hub_that_is_down_all_the_first_while_gives_no_ratio() {
        let late: Vec<_> = line(1_800, |_| 50.0)
            .into_iter()
            .filter(|sample| sample.at > 400.0)
            .collect();
        assert_eq!(last_over_first(&late), None);
        assert!((mib(256 << 20) - 256.0).abs() < 1e-9);
    }
}
