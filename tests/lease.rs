//! The right to work: one instance has it, another takes over when that one is gone, and no instance that lost it goes on.

#[path = "lease/earlier.rs"]
mod earlier;
#[path = "lease/loss.rs"]
mod loss;
#[path = "lease/peers.rs"]
mod peers;
#[path = "lease/takeover.rs"]
mod takeover;
#[path = "lease/update.rs"]
mod update;
