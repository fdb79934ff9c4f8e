//! The loop of tasks: a controller that remembers, workers that reconcile one task each, and the records between them.

pub mod controller;
mod index;
mod interned;
mod last_status;
mod ledger_writes;
mod outcome;
pub mod reconciler;
mod sites;
mod task_record;
mod verification;
