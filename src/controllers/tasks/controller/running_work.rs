//! Work that runs outside of the controller's loop, each piece with its owner: one that panics is not lost, its owner tries
//! again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use super::super::outcome::ReconcileOutcome;
use crate::api::names::TaskUid;
use crate::base::metrics::event_latency::EventLatency;
use crate::controllers::sweep::UnwatchedObjects;
use crate::controllers::sweep::paged_sweep::{PagedSweep, PagedSweepStep};
use crate::kubernetes::apply::{CallError, TransportStage};
use crate::kubernetes::watch::TaskWatchScope;
use crate::plan::remote::ledger::LedgerChanges;
use crate::plan::remote::site::Site;
use crate::plan::task::model::Task;

/// The error of a list that the end of the hub cut short.
pub(super) const STOPPED: CallError = CallError::Transport(TransportStage::Canceled);

/// What a spawned piece of work was.
pub(super) enum WorkResult {
    Pass(TaskUid, Box<TimedOutcome>),
    Sweep(Result<UnwatchedObjects, CallError>),
    Removal,
    SiteList(Arc<Site>, Box<PagedSweep>, Result<PagedSweepStep, CallError>),
    SiteCleared(Arc<Site>, Box<PagedSweep>, Vec<TaskUid>),
    SiteRemoval(Arc<Site>, Vec<TaskUid>),
    Ledger(Result<BTreeMap<String, String>, CallError>),
    LedgerWrite(LedgerChanges, Result<(), CallError>),
}

/// What a reconcile brought.
pub(super) struct TimedOutcome {
    pub(super) started: Instant,
    pub(super) outcome: ReconcileOutcome,
    /// Of the event that the reconcile was for, where no request left.
    pub(super) latency: Option<EventLatency>,
}

/// What happened to a task while a worker had it, for when the worker is done.
#[derive(Default)]
pub(super) struct InFlightChanges {
    /// Whether the catalog changed: what the reconcile found is not kept.
    pub(super) is_outdated: bool,
    /// Whether its Job went.
    pub(super) is_job_gone: bool,
    /// Its newest watch event: until the worker is done, the controller cannot know which status on the object the worker wrote.
    pub(super) event: Option<(TaskWatchScope, Box<Task>, Instant)>,
}

/// Whose a piece of work is: what its owner needs to try again after a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WorkItem {
    /// Work on a task.
    Pass(TaskUid),
    /// The list of what is in the rendering namespace.
    Sweep,
    /// The removal of some of it, or its adoption.
    Removal,
    /// A page of the list of what is at a site, or the removal of what was given up there before it counts as reached.
    SiteList(Arc<Site>),
    /// The removal of some of it, or its adoption.
    SiteRemoval(Arc<Site>),
    /// Reading the ledger.
    LedgerRead,
    /// Writing these entries of it.
    LedgerWrite(LedgerChanges),
}

/// A piece of work that ended; an error where it panicked.
pub(super) type EndedWork = (WorkItem, Result<WorkResult, WorkPanicked>);

/// The panic hook logged why.
#[derive(Debug)]
pub(super) struct WorkPanicked;

/// The running pieces of work. None can be spawned without an owner.
#[derive(Default)]
pub(super) struct RunningWork {
    set: JoinSet<WorkResult>,
    pub(super) items: HashMap<Id, WorkItem>,
    passes: HashSet<TaskUid>,
    /// Cancelled once the hub stops: sweeps begin nothing then.
    pub(super) stopping: CancellationToken,
}

impl RunningWork {
    pub(super) fn spawn(&mut self, item: WorkItem, work: impl Future<Output = WorkResult> + Send + 'static) {
        if let WorkItem::Pass(uid) = &item {
            self.passes.insert(uid.clone());
        }
        let handle = self.set.spawn(work);
        self.items.insert(handle.id(), item);
    }

    /// The next piece of work that ends; `None` while there is none.
    pub(super) async fn next(&mut self) -> Option<EndedWork> {
        loop {
            let (id, ended) = match self.set.join_next_with_id().await? {
                Ok((id, finished)) => (id, Ok(finished)),
                Err(error) => (error.id(), Err(WorkPanicked)),
            };
            if let Some(item) = self.items.remove(&id) {
                if let WorkItem::Pass(uid) = &item {
                    self.passes.remove(uid);
                }
                return Some((item, ended));
            }
        }
    }

    /// Whether a worker has the task.
    pub(super) fn has(&self, uid: &TaskUid) -> bool {
        self.passes.contains(uid)
    }

    /// The tasks that workers have.
    pub(super) fn passes(&self) -> impl ExactSizeIterator<Item = &TaskUid> {
        self.passes.iter()
    }
}
