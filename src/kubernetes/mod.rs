//! Input and output with the hub's own API server: reads and writes, watches, events, the Lease, and identities of tenants.
//!
//! Every write goes through the [`write_fence`], which is open only while this instance holds its Lease.

pub mod apply;
pub mod events;
pub mod lease;
pub mod object;
pub mod pod_results;
pub mod preflight;
pub mod pull_secrets;
pub mod seal_key;
pub mod tenant;
pub mod watch;
pub mod watch_client;
pub mod write_fence;

#[cfg(test)]
pub(crate) mod tests;
