//! Decisions about clusters that are not the hub's: which are reached, how they stand, and what becomes of tasks there.

pub mod address;
pub mod cluster_status;
pub mod health;
pub mod lead;
pub mod ledger;
pub mod lost;
pub mod placement;
pub mod places;
pub mod site;
