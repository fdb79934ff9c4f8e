//! The base of both programs: hardening of the process, and metrics.

pub mod hardening;
pub mod metrics;
