//! Takes, renews and releases the hub's Lease.
//!
//! A record is only ever created, or replaced with the resource version that was read: of two writers one gets a conflict.
//! [`plan::lease`](crate::plan::lease) decides what is read and written when. The Lease expires by itself when it is not renewed
//! in time ([`LeaseHolder::validity`]), without an answer of the API server; every write checks it first.

mod client;
mod holder;

pub use client::{LeaseClient, PeerHubs};
pub use holder::LeaseHolder;
