//! Lets writes through only while the hub holds its Lease.
//!
//! The Lease expires by itself, without an answer from anywhere. A process that was paused finds it expired when it wakes. What
//! was sent before cannot be called back; what was not is not sent any more.

mod body;
mod client;
mod fence;
mod in_flight;
mod layer;
mod resolver;
mod socket;

pub use body::FencedBody;
pub use client::client;
#[cfg(test)]
pub(crate) use fence::tests;
pub use fence::{FenceClosed, LeaseValidity, WriteFence, log_transitions};
pub use in_flight::WritesInFlight;
pub use layer::{FencedService, is_closed};
pub use resolver::NameResolutionError;
