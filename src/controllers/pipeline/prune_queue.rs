//! Versions whose charts are to be deleted: which is next, and what must not be rendered meanwhile.

use std::time::{Duration, Instant};

use tokio_util::task::JoinMap;

use crate::controllers::prune::Pruner;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::events::EventRecorder;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::prune::ChartDeletions;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::queue::backoff::Backoff;
use crate::plan::queue::workqueue::{KeyOwner, WorkQueue};

use super::lookup_queue::ChartLookups;

/// Versions whose charts are deleted at once, of different namespaces.
const PRUNES: usize = 4;
/// Time between two versions that are looked at: each is a look at all versions, and a fleet is in no hurry.
const PACE: Duration = Duration::from_millis(50);

/// What pruning needs of the hub.
pub struct PipelinePruning {
    /// Deletes charts from registries.
    pub pruner: Pruner,
    /// What the platform lets tenants name.
    pub tenancy: TenancyPolicy,
    /// Records the events about charts that are left.
    pub events: EventRecorder,
}

/// Versions whose charts are to be deleted.
pub(super) struct PruneQueue {
    pub needs: PipelinePruning,
    pub queue: WorkQueue<ObjectKey>,
    pub backoff: Backoff<ObjectKey>,
    pub workers: JoinMap<ObjectKey, Result<(), CallError>>,
    pub deletions: ChartDeletions,
    /// What registries are asked for, by the same means.
    pub lookups: ChartLookups,
    /// When the next one may be looked at.
    not_before: Instant,
    /// Whether all that are due wait for another version of their namespace.
    is_blocked: bool,
}

impl PruneQueue {
    pub fn new(needs: PipelinePruning) -> Self {
        Self {
            needs,
            queue: WorkQueue::default(),
            backoff: Backoff::default(),
            workers: JoinMap::new(),
            deletions: ChartDeletions::default(),
            lookups: ChartLookups::default(),
            not_before: Instant::now(),
            is_blocked: false,
        }
    }

    /// When to look again.
    pub fn next_wake(&self) -> Option<Instant> {
        if self.workers.len() >= PRUNES {
            return None;
        }
        let ready = (!self.queue.is_empty() && !self.is_blocked).then_some(self.not_before);
        let later = self.queue.next_wake().map(|at| at.max(self.not_before));
        ready.into_iter().chain(later).min()
    }

    /// Puts a version in line, for now or for later.
    pub fn add(&mut self, key: &ObjectKey, due: Option<Instant>) {
        match due {
            Some(due) => self.queue.add_at(key, due),
            None => self.queue.add(key),
        }
        self.is_blocked = false;
    }

    /// Gives a version back that a worker had, or that needed none.
    pub fn done(&mut self, key: &ObjectKey) {
        self.queue.done(key);
        self.is_blocked = false;
    }

    /// The next version that is due.
    pub fn take(&mut self, now: Instant) -> Option<ObjectKey> {
        if self.workers.len() >= PRUNES || now < self.not_before {
            return None;
        }
        let of_namespace = |key: &ObjectKey| KeyOwner::one_at_a_time(&key.namespace);
        let taken = self.queue.take_fair(now, of_namespace);
        self.is_blocked = taken.is_none();
        let (key, _) = taken?;
        self.not_before = now + PACE;
        Some(key)
    }
}
