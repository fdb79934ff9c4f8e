//! Watches that never end and break alone: each is its own task and sends its events through one bounded channel.
//!
//! Of Jobs metadata, conditions and counters are kept. Of pods only those that ended are shown, and only their termination message is kept. Task
//! objects come without managed fields, one at a time.

mod decoded_specs;
mod endless;
mod errors;
mod event;
mod job_metadata;
mod jobs;
mod lean;
mod line_decoder;
mod olm;
mod pipeline;
mod pipeline_tasks;
mod scope;
mod tasks;
mod tenant_objects;

pub use endless::{dynamic, endless};
pub use event::{ObservedGrant, ReceivedEvent, TaskWatchEvent, WatchChange};
pub use job_metadata::{JobMetadata, job_metadata, pod_task, secret_task, task_of};
pub use jobs::{jobs, pods};
pub use lean::{LeanWatchEnd, METADATA_LIST, METADATA_WATCH};
pub use line_decoder::{LineDecoder, LineTooLong};
pub use olm::{CatalogEvent, DestinationEvent, OlmWatchScope};
pub use pipeline::{PipelineWatch, pipeline_objects};
pub use pipeline_tasks::{PipelineTaskChange, PipelineTaskEvent, PipelineTaskSender};
pub use scope::TaskWatchScope;
pub use tasks::tasks;
pub use tenant_objects::{grants, registries, tenants};
