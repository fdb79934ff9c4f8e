//! Lets writes through only while the hub may take itself for the holder of its Lease.
//!
//! The claim ends by itself; nobody has to be asked, and nobody has to say so. A process that was paused finds it over when
//! it wakes. What was sent before cannot be called back; what was not is not sent any more.

mod body;
mod claim;
mod client;
mod in_flight;
mod layer;
mod names;
mod socket;

pub use body::GatedBody;
#[cfg(test)]
pub(crate) use claim::tests;
pub use claim::{Closed, Current, Gate, tell};
pub use client::client;
pub use in_flight::InFlight;
pub use layer::{GateLayer, Gated, is_closed};
pub use names::Unresolved;
