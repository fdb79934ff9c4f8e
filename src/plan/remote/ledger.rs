//! What the hub must know after a restart although no object of its tasks says it: which clusters are lost since when, and
//! what was left on them.
//!
//! Kept in one ConfigMap, an entry a key, so that a change writes nothing else. What it may hold is bounded, and shared out.

mod budget;
mod entries;

pub use budget::{AdmittedChanges, LEDGER_BYTES, LedgerBudget};
pub use entries::{Ledger, LedgerChanges, MAX_ORPHANS, OrphanRecord, leave, lose, regain, settle};
