//! What happened to a task while a worker had it, for when the worker is done.

use std::time::Instant;

use crate::kubernetes::watch::TaskWatchScope;
use crate::plan::task::model::Task;

/// What happened to one task.
#[derive(Default)]
pub(super) struct InFlightChanges {
    /// Whether the catalog changed: what the reconcile found is not kept.
    pub(super) is_outdated: bool,
    /// Whether its Job went.
    pub(super) is_job_gone: bool,
    /// Its newest watch event: until the worker is done, the controller cannot know which status on the object the worker wrote.
    pub(super) event: Option<(TaskWatchScope, Box<Task>, Instant)>,
}
