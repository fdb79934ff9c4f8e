//! Calls to one API server that is not the hub's own, each bounded in time, bytes and number.
//!
//! Nothing that the server says is kept, told or logged but the status of its answers, and for a name that is taken the one
//! known word. Redirects are not followed, and nothing is compressed.

#![warn(clippy::wildcard_enum_match_arm)]

mod call_reservation;
mod calls;
mod request;
mod reserved;
mod state;
mod watch_stream;

pub(super) use call_reservation::CallReservation;
pub use state::{RemoteClient, RemoteClientSettings};
pub use watch_stream::WatchEnd;
pub(super) use watch_stream::{WatchStream, price};
