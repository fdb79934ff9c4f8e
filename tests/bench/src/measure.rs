//! Reading what a process used, and percentiles.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// The kernel counts CPU times in hundredths of a second (`USER_HZ`), whatever its own clock.
const TICKS_PER_SECOND: f64 = 100.0;
const KIB_PER_MIB: f64 = 1024.0;

/// CPU seconds that a process used so far, all its threads together. `pid` may be `self`.
///
/// # Errors
/// If there is no such process.
pub fn cpu_seconds(pid: &str) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    cpu_of(&stat).context("/proc/PID/stat is not as expected")
}

fn cpu_of(stat: &str) -> Option<f64> {
    // The name in brackets may hold anything; utime and stime are the 14th and 15th field.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u32>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((f64::from(user) + f64::from(system)) / TICKS_PER_SECOND)
}

/// Resident memory of a process in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Most so far.
    pub peak_mib: f64,
    /// Now.
    pub now_mib: f64,
}

/// Memory of a process.
///
/// # Errors
/// If there is no such process.
pub fn memory(pid: u32) -> Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib: f64 = line
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|kib| kib.parse().ok())
            .with_context(|| format!("/proc/{pid}/status has no {name}"))?;
        anyhow::Ok(kib / KIB_PER_MIB)
    };
    Ok(Memory {
        peak_mib: field("VmHWM:")?,
        now_mib: field("VmRSS:")?,
    })
}

/// The load of the last minute.
pub fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// What counts of many latencies, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Half are faster.
    pub p50: f64,
    /// All but one in a hundred are faster.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

impl Latency {
    /// Of at least one latency.
    ///
    /// # Errors
    /// If there is none.
    pub fn of(mut all: Vec<Duration>) -> Result<Self> {
        all.sort_unstable();
        let at = |percent: usize| {
            // The nearest rank: the smallest value that `percent` of all do not exceed.
            let rank = (all.len() * percent).div_ceil(100).max(1);
            all.get(rank - 1).map(|d| d.as_secs_f64() * 1000.0)
        };
        let (p50, p99, max) = (at(50), at(99), at(100));
        p50.zip(p99)
            .zip(max)
            .map(|((p50, p99), max)| Self { p50, p99, max })
            .context("nothing was measured")
    }
}

/// A count as a number to calculate with.
pub fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let all: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        let latency = Latency::of(all).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(latency.p50, 100.0) && close(latency.p99, 198.0) && close(latency.max, 200.0));
        assert!(Latency::of(Vec::new()).is_err());
    }

    #[test]
    fn cpu_is_read_behind_any_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20";
        assert_eq!(cpu_of(stat), Some(1.75));
        assert!(cpu_seconds("self").is_ok() && memory(std::process::id()).unwrap().peak_mib > 0.0);
    }
}
