//! Puts tasks into the work queue, now or later, each with its cause, so that the debug log shows why a task is reconciled.

use std::time::{Duration, Instant};

use crate::api::names::{TaskUid, is_uid};
use crate::plan::queue::backoff::Backoff;
use crate::plan::queue::workqueue::WorkQueue;

/// Why a task is reconciled.
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
    /// It asked for its cluster, and the state of the site is known.
    SiteKnown,
    /// Its cluster is connected.
    SiteUp,
    /// Its cluster is not connected any more.
    SiteLost,
    /// A registry answered.
    RegistryAnswered,
    /// The worker that asked a registry broke.
    RegistryNotAsked,
    /// The time that its last reconcile asked for has come.
    Due,
    /// What keeps its objects from being created may be over.
    Held,
    /// Its status was forged, and may be put right again.
    Forged,
    /// The task, or the objects that it left, are to be removed.
    Removal,
    /// The hub did not hold its Lease.
    NoClaim,
    /// A reconcile failed.
    BackOff,
}

/// The UID for a log. A label of a Job that any writer made may hold something else, which is not repeated.
fn shown(uid: &TaskUid) -> Option<&str> {
    Some(uid.as_str()).filter(|text| is_uid(text))
}

/// The tasks that are to be reconciled, and their failures in a row.
#[derive(Default)]
pub(super) struct TaskQueue {
    pub(super) keys: WorkQueue<TaskUid>,
    backoff: Backoff<TaskUid>,
}

impl TaskQueue {
    /// Asks for a reconcile of a task now.
    pub(super) fn ready(&mut self, uid: &TaskUid, wake: EnqueueReason) {
        tracing::debug!(task = shown(uid), wake = ?wake, "a task is ready for a pass");
        self.keys.add(uid);
    }

    /// Asks for a reconcile of a task at that time, unless one is asked for earlier.
    pub(super) fn later(&mut self, uid: &TaskUid, at: Instant, wake: EnqueueReason) {
        let wait = || at.saturating_duration_since(Instant::now()).as_millis();
        tracing::debug!(task = shown(uid), wake = ?wake, wait_ms = wait(), "a task waits for its next pass");
        self.keys.add_at(uid, at);
    }

    /// Requeues a task that has its slot but whose cluster may not be asked yet.
    pub(super) fn put_back(&mut self, uid: &TaskUid, not_before: Instant) {
        let wait = || not_before.saturating_duration_since(Instant::now()).as_millis();
        tracing::debug!(
            task = shown(uid),
            wait_ms = wait(),
            "a task waits until its cluster may be asked again"
        );
        self.keys.put_back(uid, not_before);
    }

    /// A reconcile of a task failed: it is repeated after a pause, which is returned.
    pub(super) fn failed(&mut self, uid: &TaskUid) -> Duration {
        let wait = self.backoff.failed(uid);
        self.later(uid, Instant::now() + wait, EnqueueReason::BackOff);
        wait
    }

    /// A reconcile of a task succeeded.
    pub(super) fn succeeded(&mut self, uid: &TaskUid) {
        self.backoff.clear(uid);
    }

    /// A task is gone.
    pub(super) fn forget(&mut self, uid: &TaskUid) {
        self.backoff.clear(uid);
        self.keys.forget(uid);
    }
}
