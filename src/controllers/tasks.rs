//! The loop of tasks: an engine that remembers, workers that reconcile one task each, and the records between them.

pub mod engine;
mod index;
mod interned;
mod outcome;
mod record;
mod sites;
mod verification;
mod word;
pub mod worker;
