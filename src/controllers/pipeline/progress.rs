//! Which statuses are left for a while: those that say no more than how far a Target is, where many are on their way.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::plan::pipeline::object::ObjectKey;

/// Longest that a status which says only how far a Target is waits for other Targets.
const PROGRESS_STATUS: Duration = Duration::from_secs(60);

/// The Targets whose status was left, and when it is written at the latest.
pub(super) struct LeftStatuses {
    workers: usize,
    due: HashMap<ObjectKey, Instant>,
}

impl LeftStatuses {
    /// No status is left yet by a controller with so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            due: HashMap::new(),
        }
    }

    /// Leaves a status while more Targets are in line, or on their way, than there are workers: mostly the Target is ready before the time
    /// of that status is over, and the write is spared. Returns until when; `None` where the status is written, or none is new.
    pub fn leave(
        &mut self,
        key: &ObjectKey,
        has_progress: bool,
        in_line: usize,
        now: Instant,
    ) -> Option<Instant> {
        if has_progress && in_line.max(self.due.len()) > self.workers {
            let due = *self.due.entry(key.clone()).or_insert(now + PROGRESS_STATUS);
            if due > now {
                return Some(due);
            }
        }
        self.forget(key);
        None
    }

    /// Nothing is left of a Target that is gone.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.due.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKERS: usize = 3;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::new("team-a", &format!("edge-{number}"))
    }

    #[test]
    fn progress_is_left_where_more_targets_are_in_line_than_workers() {
        let now = Instant::now();
        for (has_progress, in_line, is_left) in [
            (true, WORKERS + 1, true),
            (true, WORKERS, false),
            (false, WORKERS + 1, false),
        ] {
            let left = LeftStatuses::new(WORKERS).leave(&key(0), has_progress, in_line, now);
            assert_eq!(left.is_some(), is_left, "{has_progress} {in_line}");
        }
    }

    #[test]
    fn a_status_is_left_until_its_time_is_over_however_often_its_target_is_looked_at() {
        let (begin, mut left) = (Instant::now(), LeftStatuses::new(WORKERS));
        let due = begin + PROGRESS_STATUS;
        for second in [0, 1, 59] {
            let now = begin + Duration::from_secs(second);
            assert_eq!(left.leave(&key(0), true, WORKERS + 1, now), Some(due));
        }
        assert_eq!(left.leave(&key(0), true, WORKERS + 1, due), None);
    }

    #[test]
    fn many_that_are_on_their_way_are_enough_until_they_are_ready_or_gone() {
        let (now, mut left) = (Instant::now(), LeftStatuses::new(WORKERS));
        for number in 0..=WORKERS {
            assert!(left.leave(&key(number), true, WORKERS + 1, now).is_some());
        }
        assert!(left.leave(&key(0), true, 0, now).is_some());
        left.forget(&key(1));
        assert_eq!(left.leave(&key(0), true, 0, now), None);
    }
}
