//! The Leases by which hubs of one cluster, and instances of one hub, know of each other.
//!
//! [`Claim`] and [`Record`] are what a Lease says, [`Lookout`] tells who is alive, [`Machine`] says what to read and to write
//! next, and until when the process may take itself for the holder.
//!
//! Clocks of other machines are not trusted: a hub is alive when its record changes while it is watched, and gone when it
//! has not changed for its whole duration and was then replaced in exactly that version (it is buried). A hub writes its own
//! record before it reads the others', and renews it while it watches them; so of two that start at once at least one sees
//! the other.

use std::time::Duration;

mod machine;
mod peers;
mod record;
mod watched;

pub use machine::{Answer, Call, End, Failure, Machine, Next};
pub use peers::{Conflict, ConflictKind, Life, Lookout, finding};
pub use record::{Claim, Content, Record, Slot, State};
pub use watched::{Meeting, Watched};

/// How long a record that does not change speaks for a hub.
pub const DURATION: Duration = Duration::from_secs(15);
/// Time between renewals.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);
/// From the moment at which its last renewal was asked for, how long a hub may take itself for the holder; shorter than
/// [`DURATION`] by more than two clocks differ, so that it stops before another begins.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two looks at the others' records, and before a call that failed is made again.
pub const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same while an instance stands by: what it waits for may be released at any time.
pub const STANDBY_LOOK: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
