//! Copies of pull secrets: where there should be one, whose it is, and what changed.

pub mod olm;
pub mod ownership;
