//! Takes, keeps and releases the hub's Lease.
//!
//! A record is only ever created, or replaced with the resource version that was read: of two writers one is told so. What
//! is read and written when is decided in [`plan::lease`](crate::plan::lease). The claim ends by itself when it is not renewed
//! in time ([`LeaseHolder::validity`]), without a word of the API server's; what must not write without it looks at it before each
//! write.

mod client;
mod holder;

pub use client::{LeaseClient, LeaseError, PeerHubs};
pub use holder::LeaseHolder;
