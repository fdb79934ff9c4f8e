//! The control loops: tasks, the pipeline in front of them, what the platform offers them, the clusters they run on, the sweep, and questions to registries.

pub mod clusters;
pub mod pipeline;
pub mod platform;
mod sweep;
pub mod tasks;
pub mod verify;
