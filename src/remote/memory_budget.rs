//! The memory that the hub spends on the responses of all other clusters together.
//!
//! All connections share it: for responses that are read or decoded, incomplete lines of watches, and the Jobs that watches
//! remember. Each connection may have as much as is left for all others, however many sites it has, so that one that takes all it can
//! get leaves half, and a cluster that needs little always gets it. Nothing waits: a request beyond the budget fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes for all other clusters together, a quarter of the chart's memory limit of 256 MiB.
///
/// A single connection gets half of it: enough for a page of a list while it grows, or for the metadata of 20,000 Jobs.
pub const MEMORY_BUDGET: usize = 64 << 20;

/// The memory budget of all connections, as one of them has it.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    all: Arc<MemoryBudgetState>,
    /// Bytes that the connection holds.
    own: Arc<Mutex<usize>>,
}

#[derive(Debug)]
struct MemoryBudgetState {
    total: usize,
    used: AtomicUsize,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new(MEMORY_BUDGET)
    }
}

impl MemoryBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(total: usize) -> Self {
        Self {
            all: Arc::new(MemoryBudgetState {
                total,
                used: AtomicUsize::new(0),
            }),
            own: Arc::default(),
        }
    }

    /// The same budget for another connection.
    #[must_use]
    pub fn of_connection(&self) -> Self {
        Self {
            all: Arc::clone(&self.all),
            own: Arc::default(),
        }
    }

    /// Bytes that are in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.all.used.load(Ordering::Relaxed)
    }

    /// An empty share.
    pub(super) fn share(&self) -> MemoryShare {
        MemoryShare {
            budget: self.clone(),
            held: 0,
        }
    }
}

/// What a connection holds for one purpose; its drop gives the bytes back.
#[derive(Debug)]
pub(super) struct MemoryShare {
    budget: MemoryBudget,
    held: usize,
}

impl MemoryShare {
    /// Resizes the share; `false`, and no change, where fewer bytes would be left for all others than the connection has then.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let MemoryBudgetState { total, used } = &*self.budget.all;
        let mut own = self.budget.own.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.held;
        let Some(of_connection) = (*own - before).checked_add(bytes) else {
            return false;
        };
        let fits = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let used = (used - before).checked_add(bytes)?;
            let is_less = bytes <= before;
            (is_less || used.checked_add(of_connection)? <= *total).then_some(used)
        });
        if fits.is_ok() {
            (self.held, *own) = (bytes, of_connection);
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
        let budget = MemoryBudget::new(1_200);
        let mut shares: Vec<MemoryShare> = (0..5).map(|_| budget.of_connection().share()).collect();
        let most = |share: &mut MemoryShare| {
            while share.grow(1) {}
            share.held
        };
        let held: Vec<usize> = shares.iter_mut().map(most).collect();
        assert_eq!(held, [600, 300, 150, 75, 37]);
        assert!(shares[4].hold(1) && !shares[0].grow(1), "others come first");
        shares.truncate(1);
        assert_eq!(budget.used(), 600);
        shares.clear();
        assert_eq!(budget.used(), 0);
        assert!(!budget.share().hold(usize::MAX));
    }

    /// Holds: B9.
    #[test]
    fn a_connection_has_one_part_of_it_however_many_sites_it_has() {
        let budget = MemoryBudget::new(1_200);
        let (greedy, other) = (budget.of_connection(), budget.of_connection());
        let mut shares: Vec<MemoryShare> = (0..20).map(|_| greedy.share()).collect();
        for share in &mut shares {
            while share.grow(1) {}
        }
        assert_eq!(budget.used(), 600);
        assert!(other.share().hold(300) && !other.share().hold(301));
        shares[0].shrink(10);
        assert!(
            shares[1].hold(10) && !shares[1].grow(1),
            "what one gives back another can have"
        );
        shares.clear();
        assert_eq!(budget.used(), 0);
        assert!(greedy.share().hold(600));
    }

    proptest! {
        /// Holds: B9.
        #[test]
        fn the_budget_is_never_exceeded_and_a_small_holder_always_fits(
            steps in proptest::collection::vec((0_usize..8, 0_usize..2_000), 0..200),
        ) {
            let budget = MemoryBudget::new(1_000);
            let mut shares: Vec<MemoryShare> = (0..8).map(|_| budget.of_connection().share()).collect();
            for (one, bytes) in steps {
                shares[one].hold(bytes);
                let held: usize = shares.iter().map(|share| share.held).sum();
                prop_assert_eq!(held, budget.used());
                // Eight greedy holders leave 1/256.
                prop_assert!(held <= 1_000 - 1_000 / 256);
                prop_assert!(budget.share().hold(1));
            }
        }
    }
}
