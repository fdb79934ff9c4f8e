//! renderhub runs renderer Jobs for tenants with credentials that no tenant can reach.
//!
//! The floors, from the bottom up: words ([`api`], [`names`]), pure decisions ([`plan`], [`backoff`], [`workqueue`]),
//! I/O ([`apply`], [`events`], [`gate`], [`lease`], [`metrics`], [`notes`], [`object`], [`preflight`], [`seal_key`],
//! [`tenant`], [`verify`], [`watch`]), control loops ([`controller`]) and wiring ([`config`], [`telemetry`], [`admin`], [`app`], [`probe`],
//! [`stop`], [`hardening`]). A module imports only from floors below its own, as
//! `tests/architecture.rs` says. [`renderer`] is the other program; it imports words only,
//! and [`verify`] alone uses what it has for reading.

pub mod admin;
pub mod api;
pub mod app;
pub mod apply;
pub mod backoff;
pub mod cluster;
pub mod config;
pub mod controller;
pub mod events;
pub mod gate;
pub mod hardening;
pub mod kubeconfig;
pub mod lease;
pub mod metrics;
pub mod names;
pub mod notes;
pub mod object;
pub mod plan;
pub mod preflight;
pub mod probe;
pub mod renderer;
pub mod seal_key;
pub mod stop;
pub mod telemetry;
pub mod tenant;
pub mod verify;
pub mod watch;
pub mod workqueue;
