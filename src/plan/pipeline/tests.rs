//! The decisions of the pipeline, on objects as a server would have them.

mod awaited;
mod catalog;
mod concerned;
mod decide;
mod edits;
mod history;
mod indexes;
mod keeping;
mod lookups;
mod many;
mod overfull;
mod prune;
mod prune_request;
mod registry_contents;
mod reports;
mod resolve;
mod retired;
mod rollback;
mod rollout;
mod rollout_index;
mod statuses;
mod tags;
mod task;
mod teardown;
mod version_bytes;
mod world;
