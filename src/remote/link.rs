//! Calls to one API server that is not the hub's own, each bounded in time, bytes and number.
//!
//! Nothing that the server says is kept, told or logged but the status of its answers, and for a name that is taken the one
//! known word. Redirects are not followed, and nothing is compressed.

#![warn(clippy::wildcard_enum_match_arm)]

mod call;
mod calls;
mod fare;
mod paid;
mod state;
mod watching;

pub(super) use fare::Fare;
pub use state::{Link, LinkSettings};
pub use watching::WatchEnd;
pub(super) use watching::{Watching, price};
