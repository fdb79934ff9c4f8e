//! The hub's calls to an API server: each with a deadline, counted, and with only what is needed of the answer decoded.
//!
//! Deletes carry a UID precondition; `404` counts as done. Nothing here decides anything.

mod answer;
mod calls;
mod error;
pub(crate) mod lean;
mod ledger;
mod listed;
mod objects;
mod platform;
mod secret;
mod single;
mod stage;
mod wire;

pub use calls::Calls;
pub use error::{CallError, Declined};
pub use listed::{Found, Listing, Sheet, read as read_page};
pub use objects::Objects;
pub use platform::StatusWrite;
pub use secret::{SecretBody, SecretData};
pub use single::FoundJob;
pub use stage::Stage;
pub use wire::{Extent, OBJECT_MAX, Wire, fetch};
