//! Watches that never end and break alone: each is its own task and tells what it sees through one bounded channel.
//!
//! Jobs are watched by metadata only. Of pods only those that ended are shown, and only their last word is kept. Task
//! objects come without managed fields, one at a time.

mod broken;
mod endless;
mod input;
mod jobs;
mod mark;
mod scope;
mod tasks;
mod tenants;

pub use endless::endless;
pub use input::{Arrived, Change, Grant, GrantChange, Input};
pub use jobs::{jobs, pods};
pub use mark::{JobMark, job_mark, pod_task, secret_task, task_of};
pub use scope::Scope;
pub use tasks::tasks;
pub use tenants::{grants, registries, tenants};
