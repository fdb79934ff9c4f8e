//! renderhub runs renderer Jobs for tenants with credentials that no tenant can reach.
//!
//! Eight rooms, from the ground up; each imports only from rooms below its own, as `tests/architecture.rs` says: [`api`] (types and
//! names), [`base`] (metrics, hardening), [`plan`] (pure decisions), [`kubernetes`] (the hub's own API server), [`remote`] (other
//! clusters), [`controllers`] (control loops) and [`app`] (flags, start and stop). [`renderer`] is the other program: it has the
//! types and names of the hub and nothing else of it, and [`controllers::verify`] alone uses what it has for reading.

pub mod api;
pub mod app;
pub mod base;
pub mod controllers;
pub mod kubernetes;
pub mod plan;
pub mod remote;
pub mod renderer;
