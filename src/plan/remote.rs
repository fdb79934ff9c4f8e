//! Decisions about clusters that are not the hub's: which are reached, how they stand, and what becomes of tasks there.

pub mod address;
pub mod cluster_quota;
pub mod cluster_status;
pub mod health;
pub mod kubeconfig_fault;
pub mod ledger;
pub mod lost_cluster;
pub mod placement;
pub mod site;
