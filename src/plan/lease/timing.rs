//! How often a hub writes and reads records, and for how long a record is valid.

use std::time::Duration;

/// How long a record without a change is valid.
pub const DURATION: Duration = Duration::from_secs(15);
/// Time between renewals.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);
/// From the moment at which its last renewal was asked for, how long a hub may take itself for the holder; shorter than
/// [`DURATION`] by more than two clocks differ, so that it stops before another begins.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Pause between two reads of the others' records, and before a failed call is repeated.
pub const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same for a standby: the record that it waits for may be released at any time.
pub const STANDBY_LOOK: Duration = Duration::from_millis(500);
/// How long an instance with a record is refused what it asks for until it believes that it lacks the right: an API server that was just
/// started does not know all rights yet.
pub const REFUSED: Duration = Duration::from_secs(10);
