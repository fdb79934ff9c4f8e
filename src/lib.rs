//! renderhub.

pub mod api;
