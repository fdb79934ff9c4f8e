//! The memory that all other clusters together may make the hub hold of what they say.
//!
//! It is one for all links: answers under way and those that are being decoded, lines of watches that are not whole, and the
//! Jobs that watches remember. Each holder may have as much as is left for all others, so that one that takes all it can get
//! leaves half, two leave a third, and a cluster that needs little always finds it. Nothing waits: what finds no room fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that all other clusters together may have, a quarter of the chart's memory limit of 256 MiB.
///
/// One alone gets half of it: a page of a list as it comes and grows, or the marks of 20,000 Jobs.
pub const ROOM: usize = 64 << 20;

/// The room of all links.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<MemoryBudgetState>);

#[derive(Debug)]
struct MemoryBudgetState {
    total: usize,
    used: AtomicUsize,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(ROOM)
    }
}

impl MemoryBudget {
    /// Room for so many bytes.
    #[must_use]
    pub fn new(total: usize) -> Self {
        Self(Arc::new(MemoryBudgetState {
            total,
            used: AtomicUsize::new(0),
        }))
    }

    /// Bytes that are held.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// A holder of nothing yet.
    pub(super) fn share(&self) -> MemoryShare {
        MemoryShare {
            room: self.clone(),
            held: 0,
        }
    }
}

/// What one holder has of the room; given back with it.
#[derive(Debug)]
pub(super) struct MemoryShare {
    room: MemoryBudget,
    held: usize,
}

impl MemoryShare {
    /// Holds so many bytes from now on; `false`, and as many as before, where less than that would be left for all others.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let MemoryBudgetState { total, used } = &*self.room.0;
        let before = self.held;
        let fits = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let used = (used - before).checked_add(bytes)?;
            let is_less = bytes <= before;
            (is_less || used.checked_add(bytes)? <= *total).then_some(used)
        });
        if fits.is_ok() {
            self.held = bytes;
        }
        fits.is_ok()
    }

    /// Holds so many bytes more; as [`MemoryShare::hold`].
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        self.hold(self.held.saturating_add(bytes))
    }

    /// Holds so many bytes less.
    pub(super) fn shrink(&mut self, bytes: usize) {
        self.hold(self.held.saturating_sub(bytes));
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Holds: B9.
    #[test]
    fn a_greedy_holder_leaves_as_much_for_others() {
        let room = MemoryBudget::new(1_200);
        let mut shares: Vec<MemoryShare> = (0..5).map(|_| room.share()).collect();
        let most = |share: &mut MemoryShare| {
            while share.grow(1) {}
            share.held
        };
        let held: Vec<usize> = shares.iter_mut().map(most).collect();
        assert_eq!(held, [600, 300, 150, 75, 37]);
        assert!(shares[4].hold(1) && !shares[0].grow(1), "others' turn first");
        shares.truncate(1);
        assert_eq!(room.used(), 600);
        shares.clear();
        assert_eq!(room.used(), 0);
        assert!(!room.share().hold(usize::MAX));
    }

    proptest! {
        /// Holds: B9.
        #[test]
        fn there_is_never_more_than_the_room_and_who_needs_little_finds_it(
            steps in proptest::collection::vec((0_usize..8, 0_usize..2_000), 0..200),
        ) {
            let room = MemoryBudget::new(1_000);
            let mut shares: Vec<MemoryShare> = (0..8).map(|_| room.share()).collect();
            for (one, bytes) in steps {
                shares[one].hold(bytes);
                let held: usize = shares.iter().map(|share| share.held).sum();
                prop_assert_eq!(held, room.used());
                // Eight that are greedy leave a two hundred and fifty-sixth.
                prop_assert!(held <= 1_000 - 1_000 / 256);
                prop_assert!(room.share().hold(1));
            }
        }
    }
}
