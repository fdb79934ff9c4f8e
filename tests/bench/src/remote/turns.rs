//! Loads on the same clusters with and without some that are of no use, alternately, so that a machine that becomes slower does
//! so for both.
//!
//! One load in which the machine stopped for a moment shows nothing of the hub: of each kind there are several, and the median of
//! their p99s is what counts.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::measure::Latency;
use crate::share::{Own, Share};

/// Which loads of a round have them.
const ROUND: [bool; 4] = [false, true, true, false];

/// Which loads of so many rounds have them.
pub fn turns(rounds: usize) -> impl Iterator<Item = bool> {
    std::iter::repeat_n(ROUND, rounds).flatten()
}

/// What one load gave, of the tasks for clusters that work.
pub struct Turn {
    /// From the answer to a task's creation to its Job.
    pub took: Vec<Duration>,
    /// The hub's own share.
    pub share: Share,
    /// Tasks that failed.
    pub failed: usize,
}

/// What the others notice of clusters that are of no use.
#[derive(Debug, Serialize)]
pub struct Beside {
    /// Clusters that tasks are for, in either kind of load.
    pub clusters: usize,
    /// Tasks of a load.
    pub tasks: usize,
    /// The hub's own share of what events of tasks elsewhere waited, without those clusters: p50 over all loads, p99 as the
    /// median of the loads.
    pub own_without: Own,
    /// The same with them, of all events that their own cluster did not hold up.
    pub own_with: Own,
    /// The p99 of each load without them, in order, in milliseconds.
    pub own_p99s_without: Vec<f64>,
    /// The same with them.
    pub own_p99s_with: Vec<f64>,
    /// From the answer to a task's creation to its Job, of the others without those clusters, over all loads.
    pub without: Latency,
    /// The same with them.
    pub with: Latency,
    /// Tasks of the others that failed, in any load.
    pub failed: usize,
}

/// The loads of one kind.
#[derive(Default)]
struct Side {
    took: Vec<Duration>,
    share: Share,
    p99s: Vec<f64>,
}

/// The loads of both kinds, as they come.
#[derive(Default)]
pub struct Sides {
    with: Side,
    without: Side,
    tasks: usize,
    failed: usize,
}

impl Sides {
    /// Adds the result of a load.
    ///
    /// # Errors
    /// If nothing was counted in it.
    pub fn add(&mut self, is_with: bool, turn: Turn) -> Result<()> {
        self.tasks = turn.took.len();
        self.failed += turn.failed;
        let side = if is_with {
            &mut self.with
        } else {
            &mut self.without
        };
        side.p99s.push(turn.share.p99()?);
        side.took.extend(turn.took);
        side.share = std::mem::take(&mut side.share).and(&turn.share);
        Ok(())
    }

    /// The result of all.
    ///
    /// # Errors
    /// If there was no load of one kind.
    pub fn end(self, clusters: u16) -> Result<Beside> {
        Ok(Beside {
            clusters: clusters.into(),
            tasks: self.tasks,
            own_without: self.without.own()?,
            own_with: self.with.own()?,
            own_p99s_without: self.without.p99s,
            own_p99s_with: self.with.p99s,
            without: Latency::of(self.without.took)?,
            with: Latency::of(self.with.took)?,
            failed: self.failed,
        })
    }
}

impl Beside {
    /// Loads of both kinds.
    pub fn loads(&self) -> usize {
        self.own_p99s_without.len() + self.own_p99s_with.len()
    }
}

impl Side {
    fn own(&self) -> Result<Own> {
        Ok(Own {
            p99: median(&self.p99s).context("there was no load")?,
            ..self.share.own()?
        })
    }
}

/// The middle one, or what lies between the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let above = values.get(values.len() / 2)?;
    let below = values.get(values.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(*below, *above))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_comes_as_often_and_as_early_as_the_other() {
        let all: Vec<bool> = turns(3).collect();
        assert_eq!(all.iter().filter(|is_with| **is_with).count(), 6);
        let places = |kind| (0..).zip(&all).filter(move |(_, is)| **is == kind);
        let sum = |kind| places(kind).map(|(place, _)| place).sum::<usize>();
        assert_eq!(sum(true), sum(false));
    }

    #[test]
    fn one_load_in_which_the_machine_stood_still_does_not_count() {
        assert_eq!(median(&[1.0, 156.0, 1.1]), Some(1.1));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
