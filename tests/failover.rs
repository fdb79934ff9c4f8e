//! Instances of one hub that die, sleep, are cut off and hand over, under load: nothing is made twice, nothing is lost, and no
//! instance writes without a valid Lease.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "remote_connection/forward.rs"]
#[allow(dead_code, reason = "another test binary uses the rest")]
mod forward;
#[path = "failover/handover.rs"]
mod handover;
#[path = "failover/lapse.rs"]
mod lapse;
#[path = "failover/sleep.rs"]
mod sleep;
#[path = "failover/unreachable.rs"]
mod unreachable;
#[path = "failover/world.rs"]
mod world;
