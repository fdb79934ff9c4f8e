//! renderhub runs renderer Jobs for tenants with credentials that no tenant can reach.
//!
//! The floors, from the bottom up: words ([`api`], [`names`]), pure decisions, I/O, control loops, wiring. A module
//! imports only from floors below its own; `tests/architecture.rs` keeps it so.

pub mod api;
pub mod names;
pub mod backoff;
pub mod plan;
pub mod workqueue;
pub mod apply;
pub mod events;
pub mod metrics;
pub mod object;
pub mod watch;
