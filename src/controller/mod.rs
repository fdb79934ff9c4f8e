//! The control loops: tasks, registries and the sweep.

pub mod engine;
mod index;
mod outcome;
mod record;
pub mod registries;
mod sweep;
mod word;
pub mod worker;
