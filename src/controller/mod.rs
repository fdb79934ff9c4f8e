//! The control loops: tasks, registries and the sweep.

pub mod engine;
mod index;
mod record;
pub mod registries;
mod sweep;
pub mod worker;
