//! The pipeline controller: makes tasks and versions for Targets, and writes the statuses of the objects in front of tasks.
//!
//! It holds every object of the pipeline that it may see. A decision about a Target is a function of these; a worker carries it
//! out, and what it wrote is taken in at once, without waiting for the watch.

mod controller;
mod kinds;
mod namespace_status;
mod operations;
mod status_write;
mod store;
mod watches;
mod work;

pub use controller::{PipelineController, PipelineSettings};
