//! How often a key was worked on in a row.

use std::time::{Duration, Instant};

/// Time between two passes after which they are not in a row: longer than the longest back-off.
pub(super) const QUIET: Duration = Duration::from_secs(600);

/// Passes in a row in which a key was worked on, and when the last one ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkRounds {
    pub count: u32,
    last: Instant,
}

impl WorkRounds {
    /// Counts a pass that ended.
    pub fn count(rounds: Option<Self>, now: Instant) -> Self {
        let in_a_row = rounds.filter(|rounds| now.duration_since(rounds.last) < QUIET);
        let count = in_a_row.map_or(0, |rounds| rounds.count).saturating_add(1);
        Self { count, last: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_in_a_row_until_nothing_was_done_for_ten_minutes() {
        let (mut now, mut rounds) = (Instant::now(), None);
        for (pause, count) in [(0, 1), (1, 2), (599, 3), (600, 1), (300, 2)] {
            now += Duration::from_secs(pause);
            let counted = WorkRounds::count(rounds, now);
            assert_eq!(counted.count, count, "after {pause} s");
            rounds = Some(counted);
        }
    }
}
