//! How long the hub waits for a cluster that is not reached, and what may be left there.

use k8s_openapi::jiff::SignedDuration;

use crate::plan::task::retention::KEPT_AT_MOST;

/// How long the hub waits before it gives something up: a lost cluster, or what a failure left to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTimeouts {
    /// Time from the first loss at which what ran there is given up.
    pub lost_timeout: SignedDuration,
    /// Longest that a deletion waits.
    pub orphan_grace: SignedDuration,
    /// Longest that a failed Job and its config Secret are kept, whatever the task says.
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

/// What may be on the task's cluster besides what was seen there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteLeftovers {
    /// Nothing.
    #[default]
    None,
    /// Something that nobody saw, as after a restart.
    Possible,
    /// What there is was given up and written down.
    WrittenDown,
}
