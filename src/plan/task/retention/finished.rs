//! A finished task, as those that count it know it.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;

/// A finished task.
#[derive(Clone, Copy, Debug)]
pub struct FinishedTask<'a> {
    /// The tenant's namespace; empty for the platform's own tasks, which count together.
    pub namespace: &'a Arc<str>,
    /// When it ended.
    pub ended: Timestamp,
    /// Which it is.
    pub uid: &'a TaskUid,
}

impl FinishedTask<'_> {
    /// Its place among others, the oldest first.
    pub(super) fn key(&self) -> (Timestamp, TaskUid) {
        (self.ended, self.uid.clone())
    }
}
