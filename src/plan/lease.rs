//! The Leases by which hubs of one cluster, and instances of one hub, know of each other.
//!
//! [`HolderIdentity`] and [`LeaseRecord`] are the contents of a Lease, [`PeerMonitor`] decides who is alive,
//! [`LeaseStateMachine`] decides what to read and to write next, and until when the process holds the Lease.
//!
//! Clocks of other machines are not trusted: a hub is alive when its record changes while another watches it, and gone when the
//! record did not change for its whole duration and was then replaced in exactly that version (the record is expired). A hub
//! writes its own record before it reads the others', and renews it while it watches them; so of two that start at once at least
//! one sees the other.

mod namespace_scope;
mod peers;
mod record;
mod state_machine;
mod timing;

pub use namespace_scope::{NamespaceScope, ScopeOverlap};
pub use peers::{HolderLiveness, HubConflict, HubConflictKind, PeerMonitor, finding};
pub use record::{HolderIdentity, InstanceState, LeaseContent, LeaseRecord, LeaseSlot};
pub use state_machine::{
    LeaseAction, LeaseExit, LeaseRequest, LeaseRequestError, LeaseResponse, LeaseStateMachine,
};
pub use timing::{DURATION, LOOK_AGAIN, RENEW_DEADLINE, RENEW_EVERY, STANDBY_LOOK};

#[cfg(test)]
mod tests;
