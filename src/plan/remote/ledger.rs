//! The ledger: which clusters are lost since when, and which orphans are on them. It must survive a restart, and no other object
//! records it.
//!
//! It is one ConfigMap with one key for each entry, so that a change writes only its entry. Its size is bounded, in total and
//! for each namespace.

mod budget;
mod entries;

pub use budget::{AdmittedChanges, LEDGER_BYTES, LedgerBudget};
pub use entries::{
    Ledger, LedgerChanges, MAX_ORPHANS, OrphanRecord, forget_loss, forget_orphan, record_loss, record_orphan,
};
