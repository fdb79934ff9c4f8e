//! How many keys of one cluster may be worked on at once: a window that grows and shrinks by what the cluster answers, as that of
//! a TCP connection does.
//!
//! A cluster that answers nothing keeps what it was given until its calls run out of time, so it is given little before it has
//! answered, and little after it was slow.

use std::collections::HashMap;
use std::time::Duration;

use super::pool::ConcurrencyPool;

/// Of a cluster that nothing is known of.
const FIRST: usize = 2;
/// A reconcile that takes as long is slow: its calls take seconds, or one of them had no answer.
const SLOW: Duration = Duration::from_secs(5);
/// Clusters with a known window; with one more than these, all start over.
const CLUSTERS: usize = 4096;

/// How a reconcile ended, as far as it says something of the cluster that it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterFeedback {
    /// The cluster answered all that the pass asked, and the reconcile took so long.
    Answered(Duration),
    /// A call failed, and the reconcile took so long.
    Failed(Duration),
}

/// The windows that are not as at first.
#[derive(Debug, Default)]
pub(super) struct ConcurrencyWindows {
    of: HashMap<ConcurrencyPool, usize>,
}

impl ConcurrencyWindows {
    /// How many may be worked on out of a pool for which `most` is the bound.
    pub(super) fn at_once(&self, pool: &ConcurrencyPool, most: usize) -> usize {
        match pool {
            ConcurrencyPool::Cluster(_) | ConcurrencyPool::OwnClusters(_) => {
                self.of.get(pool).copied().unwrap_or(FIRST).min(most)
            }
            ConcurrencyPool::Here
            | ConcurrencyPool::Namespace(_)
            | ConcurrencyPool::Elsewhere
            | ConcurrencyPool::Large(_) => most,
        }
    }

    /// Records what a reconcile showed: after a slow one the window is one, after any other it doubles.
    pub(super) fn ended(&mut self, pool: &ConcurrencyPool, most: usize, ended: ClusterFeedback) {
        let window = match ended {
            ClusterFeedback::Answered(took) | ClusterFeedback::Failed(took) if took >= SLOW => 1,
            ClusterFeedback::Answered(_) => self.at_once(pool, most).saturating_mul(2).min(most),
            ClusterFeedback::Failed(_) => return,
        };
        if self.of.len() == CLUSTERS && !self.of.contains_key(pool) {
            self.of.clear();
        }
        self.of.insert(pool.clone(), window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(20);

    fn cluster(name: &str) -> ConcurrencyPool {
        ConcurrencyPool::Cluster(name.into())
    }

    /// Holds: B2.
    #[test]
    fn a_cluster_has_few_at_once_until_it_answers_and_one_after_it_was_slow() {
        let (mut windows, west) = (ConcurrencyWindows::default(), cluster("west"));
        assert_eq!(windows.at_once(&west, 8), FIRST);
        for (ended, expected) in [
            (ClusterFeedback::Failed(QUICK), 2),
            (ClusterFeedback::Answered(QUICK), 4),
            (ClusterFeedback::Answered(QUICK), 8),
            (ClusterFeedback::Answered(QUICK), 8),
            (ClusterFeedback::Failed(QUICK), 8),
            (ClusterFeedback::Failed(SLOW), 1),
            (ClusterFeedback::Failed(QUICK), 1),
            (ClusterFeedback::Answered(QUICK), 2),
            (ClusterFeedback::Answered(SLOW), 1),
        ] {
            windows.ended(&west, 8, ended);
            assert_eq!(windows.at_once(&west, 8), expected, "{ended:?}");
        }
        assert_eq!(windows.at_once(&cluster("east"), 8), FIRST, "each has its own");
        assert_eq!(
            windows.at_once(&cluster("east"), 1),
            1,
            "never more than the bound"
        );
    }

    #[test]
    fn what_runs_on_the_hubs_own_cluster_has_no_window() {
        let windows = ConcurrencyWindows::default();
        for pool in [
            ConcurrencyPool::Here,
            ConcurrencyPool::Namespace("team-a".into()),
            ConcurrencyPool::Elsewhere,
        ] {
            assert_eq!(windows.at_once(&pool, 64), 64);
        }
    }

    /// Holds: B2.
    #[test]
    fn clusters_without_end_are_not_remembered() {
        let mut windows = ConcurrencyWindows::default();
        for number in 0..3 * CLUSTERS {
            windows.ended(&cluster(&number.to_string()), 8, ClusterFeedback::Answered(QUICK));
            assert!(windows.of.len() <= CLUSTERS);
        }
    }
}
