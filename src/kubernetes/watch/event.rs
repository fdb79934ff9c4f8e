//! The events that watches send to the controller.

use std::sync::Arc;
use std::time::Instant;

use crate::api::ReferenceGrantSpec;
use crate::api::names::TaskUid;
use crate::plan::remote::site::{Site, SiteState};
use crate::plan::task::model::Task;

use super::job_metadata::JobMetadata;
use super::scope::TaskWatchScope;

/// An object that a watch saw, or a change of the watch itself.
#[derive(Debug)]
pub enum WatchChange<T, G = TaskUid> {
    /// Everything that exists follows, then [`WatchChange::Synced`].
    Restart,
    /// An object is there, new or changed.
    Seen(T),
    /// What was not seen since [`WatchChange::Restart`] is gone.
    Synced,
    /// An object is gone.
    Gone(G),
}

/// A task that a watch shows.
#[derive(Debug)]
pub(super) struct ShownTask {
    pub task: Box<Task>,
    /// Whether it has the label of a task that the pipeline made.
    pub has_pipeline_label: bool,
}

/// A grant as it is remembered.
#[derive(Clone, Debug)]
pub struct ObservedGrant {
    /// The namespace that grants.
    pub namespace: String,
    /// UID of the object.
    pub uid: String,
    /// What it allows; `None` where the Rust type cannot decode it.
    pub spec: Option<ReferenceGrantSpec>,
}

/// What the controller learns from its watches.
#[derive(Debug)]
pub enum TaskWatchEvent {
    /// Tasks of one scope.
    Task(TaskWatchScope, WatchChange<Box<Task>>),
    /// Jobs with the hub's mark, in the rendering namespace or at a site.
    Job(Option<Arc<Site>>, WatchChange<JobMetadata>),
    /// A site is connected, or not any more.
    Site(Arc<Site>, SiteState),
    /// Every pod that ended was noted.
    PodsSeen,
    /// A reference that a namespace allows, or not any more, in the one namespace that is watched, or in all.
    Grant(Option<Arc<str>>, WatchChange<ObservedGrant, ObservedGrant>),
    /// A tenant's registry changed in this namespace.
    Registry(String),
    /// The hub may not list the tasks of this scope.
    Refused(TaskWatchScope),
}

/// What the controller learns, and when it came to the hub.
#[derive(Debug)]
pub struct ReceivedEvent {
    /// When it was decoded.
    pub at: Instant,
    /// What it is.
    pub input: TaskWatchEvent,
}

impl From<TaskWatchEvent> for ReceivedEvent {
    /// It came now.
    fn from(input: TaskWatchEvent) -> Self {
        let at = Instant::now();
        Self { at, input }
    }
}
