//! What the engine lets run beside itself, each piece with its owner: one that panics is not lost, its owner tries again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::task::{Id, JoinSet};

use super::super::outcome::Outcome;
use crate::api::names::TaskUid;
use crate::base::metrics::journey::Journey;
use crate::controllers::sweep::Listed;
use crate::controllers::sweep::walk::{Stride, Walk};
use crate::kubernetes::apply::CallError;
use crate::plan::remote::ledger::Changes;
use crate::plan::remote::site::Site;

/// What a spawned piece of work was.
pub(super) enum Finished {
    Pass(TaskUid, Box<Passed>),
    Sweep(Result<Listed, CallError>),
    Removal,
    SiteList(Arc<Site>, Box<Walk>, Result<Stride, CallError>),
    SiteCleared(Arc<Site>, Box<Walk>, Vec<TaskUid>),
    SiteRemoval(Arc<Site>, Vec<TaskUid>),
    Ledger(Result<BTreeMap<String, String>, CallError>),
    LedgerWrite(Changes, Result<(), CallError>),
}

/// What a pass brought.
pub(super) struct Passed {
    pub(super) started: Instant,
    pub(super) outcome: Outcome,
    /// Of the event that the pass was for, where no request left.
    pub(super) journey: Option<Journey>,
}

/// Whose a piece of work is: what its owner needs to try again after a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
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
    LedgerWrite(Changes),
}

/// A piece of work that ended; an error where it panicked.
pub(super) type Ended = (Errand, Result<Finished, Panicked>);

/// It said why to the log.
#[derive(Debug)]
pub(super) struct Panicked;

/// The pieces of work under way. None can be spawned without an owner.
#[derive(Default)]
pub(super) struct Running {
    set: JoinSet<Finished>,
    pub(super) errands: HashMap<Id, Errand>,
    passes: HashSet<TaskUid>,
}

impl Running {
    pub(super) fn spawn(&mut self, errand: Errand, work: impl Future<Output = Finished> + Send + 'static) {
        if let Errand::Pass(uid) = &errand {
            self.passes.insert(uid.clone());
        }
        let handle = self.set.spawn(work);
        self.errands.insert(handle.id(), errand);
    }

    /// The next piece of work that ends; `None` while there is none.
    pub(super) async fn next(&mut self) -> Option<Ended> {
        loop {
            let (id, ended) = match self.set.join_next_with_id().await? {
                Ok((id, finished)) => (id, Ok(finished)),
                Err(error) => (error.id(), Err(Panicked)),
            };
            if let Some(errand) = self.errands.remove(&id) {
                if let Errand::Pass(uid) = &errand {
                    self.passes.remove(uid);
                }
                return Some((errand, ended));
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
