//! Decisions in front of tasks: which Releases a Target gets, which charts are rendered for it, and what each version of it holds.

pub mod chart;
pub mod chart_cache;
mod choose;
pub mod concerned;
pub mod conditions;
pub mod content_hash;
pub mod decide;
pub mod destination;
pub mod history;
pub mod kept;
pub mod kept_bytes;
pub mod kept_tasks;
pub mod left_out;
pub mod lookups;
pub mod names;
pub mod object;
pub mod object_map;
pub mod objects;
pub mod profile_status;
pub mod prune;
mod pull_secrets;
pub mod readable_name;
pub mod references;
pub mod remembered_chart;
pub mod reports;
pub mod resolution;
pub mod resolve;
pub mod rollout;
pub mod sealed_status;
pub mod selector;
pub mod shared_parts;
pub mod source;
pub mod status;
pub mod task;
pub mod task_state;
pub mod unread;
pub mod userdata;
pub mod version_bytes;

#[cfg(test)]
mod tests;
