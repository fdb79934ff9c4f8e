//! The control loops: tasks, what the platform offers them, and the sweep.

pub mod catalog;
pub mod engine;
mod index;
mod outcome;
mod record;
mod sites;
mod sweep;
mod word;
pub mod worker;
