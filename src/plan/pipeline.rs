//! Decisions in front of tasks: which Releases a Target gets, which charts are rendered for it, and what each version of it holds.

pub mod chart;
pub mod chart_cache;
pub mod conditions;
pub mod content_hash;
pub mod decide;
pub mod destination;
pub mod history;
pub mod object;
pub mod objects;
mod pull_secrets;
pub mod references;
pub mod resolve;
pub mod source;
pub mod status;
pub mod task;
pub mod task_state;
pub mod userdata;

#[cfg(test)]
mod tests;
