//! How long the hub waits for a cluster that it cannot reach, and what may be left there.

use k8s_openapi::jiff::SignedDuration;

use crate::plan::task::retention::KEPT_AT_MOST;

/// How long the hub waits for a lost cluster, and keeps the objects of a failed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTimeouts {
    /// Time from the first loss after which the hub gives up the Jobs there.
    pub lost_timeout: SignedDuration,
    /// Longest that a deletion waits.
    pub orphan_grace: SignedDuration,
    /// Longest that a failed Job and its config Secret are kept, whatever the task's spec says.
    pub kept_at_most: SignedDuration,
}

impl Default for TaskTimeouts {
    fn default() -> Self {
        Self {
            lost_timeout: SignedDuration::from_mins(15),
            orphan_grace: SignedDuration::from_mins(10),
            kept_at_most: KEPT_AT_MOST,
        }
    }
}

/// Objects that may be on the task's cluster besides those that the hub has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteLeftovers {
    /// Nothing.
    #[default]
    None,
    /// Objects that the hub has not seen, as after a restart.
    Possible,
    /// The hub has given the objects up, and recorded them in the ledger.
    WrittenDown,
}
