//! The control loops: tasks, the pipeline in front of them, what the platform offers them, the clusters they run on, the sweep,
//! questions to registries and deletions there, and pull Secrets for operators of OLM.

mod chart_finder;
pub mod clusters;
pub mod olm;
pub mod pipeline;
pub mod platform;
pub mod prune;
pub mod pull_copies;
mod stopping;
mod sweep;
pub mod tasks;
pub mod verify;
