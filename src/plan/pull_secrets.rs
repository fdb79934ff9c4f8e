//! Pull Secrets that are named once: which copies of them go where, and what is said of those that cannot be pulled with.

pub mod copy;
pub mod image_repository;
pub mod keyring;
pub mod named;
pub mod olm;
pub mod ownership;
pub mod pull_failure;
