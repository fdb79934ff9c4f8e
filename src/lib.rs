//! renderhub.

pub mod api;
pub mod renderer;
