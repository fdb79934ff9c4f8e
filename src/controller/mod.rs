//! The control loops: tasks, what the platform offers them, the clusters they run on, and the sweep.

mod adoption;
pub mod catalog;
pub mod clusters;
pub mod engine;
mod index;
mod interned;
mod outcome;
mod record;
mod sites;
mod sweep;
mod walk;
mod word;
pub mod worker;
