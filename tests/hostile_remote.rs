//! What a lying, broken or dying API server gets out of the hub's client: an error in time, no memory, no second write, and none
//! of its text anywhere.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    clippy::similar_names,
    clippy::large_futures,
    reason = "this is all test code, and its tables are long"
)]

#[path = "hostile_remote/calls.rs"]
mod calls;
#[path = "hostile_remote/claims.rs"]
mod claims;
#[path = "hostile_remote/connections.rs"]
mod connections;
#[path = "hostile_remote/corpus.rs"]
mod corpus;
#[path = "hostile_remote/dead.rs"]
mod dead;
#[path = "hostile_remote/frames.rs"]
mod frames;
#[path = "hostile_remote/memory.rs"]
mod memory;
#[path = "hostile_remote/names.rs"]
mod names;
#[path = "hostile_remote/stages.rs"]
mod stages;
#[path = "hostile_remote/support.rs"]
mod support;
#[path = "hostile_remote/targets.rs"]
mod targets;
#[path = "hostile_remote/verbs.rs"]
mod verbs;
#[path = "hostile_remote/watches.rs"]
mod watches;
