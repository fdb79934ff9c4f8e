//! Which tasks and versions went a moment ago.

use std::collections::VecDeque;

/// Most deletions that are remembered; with one more, the oldest is forgotten.
const REMEMBERED: usize = 1024;

/// The UIDs of the tasks and versions whose deletion a watch showed last. What a worker made is taken in a while after it is made: what is
/// gone by then must not be, because no watch would ever show that it is gone.
#[derive(Debug, Default)]
pub(super) struct RecentDeletions(VecDeque<String>);

impl RecentDeletions {
    /// A watch showed that an object is gone.
    pub fn add(&mut self, uid: Option<&str>) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.extend(uid.map(str::to_owned));
    }

    /// Whether an object went a moment ago.
    pub fn has(&self, uid: &str) -> bool {
        self.0.iter().any(|gone| gone == uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_deletions_are_remembered() {
        let mut gone = RecentDeletions::default();
        gone.add(None);
        for number in 0..=REMEMBERED {
            gone.add(Some(&number.to_string()));
        }
        assert!(gone.has("1") && gone.has(&REMEMBERED.to_string()));
        assert!(!gone.has("0") && gone.0.len() == REMEMBERED);
    }
}
