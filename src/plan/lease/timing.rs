//! How often a hub writes and looks, and for how long a record speaks for it.

use std::time::Duration;

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
