//! Calls to one remote API server, each bounded in time, bytes and number.
//!
//! Of a response only the status code is kept, shown or logged, and of an error whether its reason is `AlreadyExists`. Redirects
//! are not followed, and nothing is compressed.

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
pub(super) use watch_stream::{WatchStream, price, until};
