//! The pipeline controller: makes tasks and versions for Targets, and writes the statuses of the objects in front of tasks.
//!
//! It holds every object of the pipeline that it may see. A decision about a Target is a function of these; a worker carries it
//! out, and what it wrote is taken in at once, without waiting for the watch.

mod backlog;
mod chart_lookups;
mod controller;
mod debug_log;
mod effects;
mod events;
mod kind;
mod kinds;
mod lookup_queue;
mod lookup_work;
mod namespace_status;
mod overfull;
mod progress;
mod prune_queue;
mod prune_work;
mod pruning;
mod recent_deletions;
mod retries;
mod rollouts;
mod room;
mod shown_objects;
mod status_write;
mod store;
mod wakes;
mod watches;
mod work;
mod work_rounds;
mod writes;
mod written_objects;

pub use controller::{PipelineController, PipelineSettings};
pub use prune_queue::PipelinePruning;
