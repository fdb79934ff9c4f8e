//! What both programs and every room above stand on: hardening of the process, and metrics.

pub mod hardening;
pub mod metrics;
