//! Decisions: values in, values out. Nothing here reads a clock, waits, or talks to a server.
//!
//! A loop observes, asks this room what follows from that, and does it. So each decision has its tests in a table, and a hub that
//! was killed finds its next step by looking.

pub mod lease;
pub mod pipeline;
pub mod platform;
pub mod preflight;
pub mod pull_secrets;
pub mod queue;
pub mod relist;
pub mod remote;
pub mod task;
