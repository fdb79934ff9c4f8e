//! Decisions about other clusters: which are reached, their health, and the tasks there.

pub mod address;
pub mod cluster_quota;
pub mod cluster_status;
pub mod health;
pub mod kubeconfig_fault;
pub mod ledger;
pub mod lost_cluster;
pub mod placement;
pub mod site;
