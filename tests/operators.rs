//! Pull Secrets for operators that OLM installed: who gets what on an API server with OLM's kinds, and on real OLM with a real node.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "operators/bounds.rs"]
mod bounds;
#[path = "operators/copies.rs"]
mod copies;
#[path = "operators/hostile.rs"]
mod hostile;
#[path = "operators/pods.rs"]
mod pods;
#[path = "operators/real.rs"]
mod real;
#[path = "operators/rights.rs"]
mod rights;
#[path = "operators/world.rs"]
mod world;
