//! What lets a task be looked at, now or later: each time with its cause, so that a log at the level debug tells what the work
//! queue holds and why.

use std::time::Instant;

use crate::api::names::{TaskUid, is_uid};
use crate::plan::queue::workqueue::WorkQueue;

/// Why a task is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EnqueueReason {
    /// The watch of tasks showed it.
    TaskSeen,
    /// Its Job was seen, or is to be read.
    JobSeen,
    /// Its Job is gone.
    JobGone,
    /// A list showed its config Secret.
    SecretSeen,
    /// It has its slot.
    Slot,
    /// It has waited for a slot long enough to say so.
    StillQueued,
    /// What the platform offers changed.
    PlatformChanged,
    /// Something changed in a namespace whose tenant it waits for.
    TenantChanged,
    /// It asked for its cluster, and is told how that stands.
    SiteKnown,
    /// Its cluster is connected.
    SiteUp,
    /// Its cluster is not connected any more.
    SiteLost,
    /// A registry answered.
    RegistryAnswered,
    /// A question to a registry broke.
    RegistryNotAsked,
    /// Its plan said when.
    Due,
    /// What keeps its objects from being created may be over.
    Held,
    /// Its status was forged, and may be put right again.
    Forged,
    /// It is the turn of the task, or of what it left, to be removed.
    Removal,
    /// The hub had no claim on its Lease.
    NoClaim,
    /// A reconcile failed.
    BackOff,
}

/// The UID for a log. A label of a Job that any writer made may hold something else, which is not repeated.
fn shown(uid: &TaskUid) -> Option<&str> {
    Some(uid.as_str()).filter(|text| is_uid(text))
}

/// Asks for a reconcile of a task now.
pub(super) fn ready(queue: &mut WorkQueue<TaskUid>, uid: &TaskUid, wake: EnqueueReason) {
    tracing::debug!(task = shown(uid), wake = ?wake, "a task is ready for a pass");
    queue.add(uid);
}

/// Asks for a reconcile of a task at that time, unless one is asked for earlier.
pub(super) fn later(queue: &mut WorkQueue<TaskUid>, uid: &TaskUid, at: Instant, wake: EnqueueReason) {
    let wait = || at.saturating_duration_since(Instant::now()).as_millis();
    tracing::debug!(task = shown(uid), wake = ?wake, wait_ms = wait(), "a task waits for its next pass");
    queue.add_at(uid, at);
}

/// Puts a task back that has its turn while its cluster may not be asked.
pub(super) fn put_back(queue: &mut WorkQueue<TaskUid>, uid: &TaskUid, not_before: Instant) {
    let wait = || not_before.saturating_duration_since(Instant::now()).as_millis();
    tracing::debug!(
        task = shown(uid),
        wait_ms = wait(),
        "a task waits until its cluster may be asked again"
    );
    queue.put_back(uid, not_before);
}
