//! A claim that was made: it is kept until the process ends, and others are told about it.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{LeaseError, Leases};
use crate::gate::Current;
use crate::plan::lease::{Answer, Conflict, Failure, Machine, Next, Record, State};
use crate::plan::shards::records::Reader;
use crate::plan::shards::{Shard, View};

/// Wishes that may wait for the keeper.
const BACKLOG: usize = 8;

/// A wish of somebody who holds a [`Handle`].
pub(super) enum Wish {
    View(View, oneshot::Sender<Instant>),
    Look(oneshot::Sender<Arc<[Record]>>),
}

/// The way to a keeper. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    records: watch::Receiver<Arc<[Record]>>,
    wishes: mpsc::Sender<Wish>,
}

impl Handle {
    /// Every hub's records; with more than one shard from a list at least each second.
    #[must_use]
    pub fn records(&self) -> watch::Receiver<Arc<[Record]>> {
        self.records.clone()
    }

    /// Writes among whom this instance divides the namespaces. Returns once the API server has it, with the time after which
    /// a list shows to everybody what they had to know: the others' views are to be read later than that.
    ///
    /// # Errors
    /// The keeper has ended.
    pub async fn write_view(&self, view: View) -> Result<Instant, LeaseError> {
        let (done, answer) = oneshot::channel();
        let wish = Wish::View(view, done);
        self.wishes.send(wish).await.map_err(|_| LeaseError::Stopped)?;
        answer.await.map_err(|_| LeaseError::Stopped)
    }

    /// Every hub's records, of a list that is asked for after this call.
    ///
    /// # Errors
    /// The keeper has ended.
    pub async fn look(&self) -> Result<Arc<[Record]>, LeaseError> {
        let (done, answer) = oneshot::channel();
        let wish = Wish::Look(done);
        self.wishes.send(wish).await.map_err(|_| LeaseError::Stopped)?;
        answer.await.map_err(|_| LeaseError::Stopped)
    }
}

/// The hub's record while it is held.
pub struct Held {
    leases: Leases,
    machine: Machine,
    until: watch::Sender<Instant>,
    state: watch::Sender<State>,
    records: watch::Sender<Arc<[Record]>>,
    /// When the list was asked for that was told last.
    told: Option<Instant>,
    /// What is to be written, and who waits for it.
    view: Option<(View, oneshot::Sender<Instant>)>,
    /// Who waits for a list that is younger than this.
    looks: Vec<(Instant, oneshot::Sender<Arc<[Record]>>)>,
    is_stopping: bool,
    has_stood_by: bool,
}

impl Held {
    pub(super) fn new(leases: Leases, machine: Machine, state: watch::Sender<State>) -> Self {
        Self {
            leases,
            machine,
            until: watch::Sender::new(Instant::now()),
            state,
            records: watch::Sender::new(Arc::new([])),
            told: None,
            view: None,
            looks: Vec::new(),
            is_stopping: false,
            has_stood_by: false,
        }
    }

    /// The claim, to be looked at before what only the holder may do.
    #[must_use]
    pub fn claim(&self) -> Current {
        Current::new(self.until.subscribe())
    }

    /// Which shard this instance is; `None` where it is the only one.
    #[must_use]
    pub fn shard(&self) -> Option<Shard> {
        self.machine.shard()
    }

    /// How it reads the records of those with whom it divides the namespaces; `None` where there are none.
    #[must_use]
    pub fn reader(&self) -> Option<Reader> {
        self.machine.reader()
    }

    /// Whether it waited for another instance, maybe for a long time: what was read before may be old.
    #[must_use]
    pub const fn has_stood_by(&self) -> bool {
        self.has_stood_by
    }

    pub(super) fn is_active(&self) -> bool {
        self.machine.state() == State::Active
    }

    pub(super) fn waits_for(&self) -> Vec<Conflict> {
        self.machine.waits_for()
    }

    pub(super) fn will_meet(&self) -> Vec<Conflict> {
        self.machine.will_meet()
    }

    /// Makes it a keeper: the handle, and what runs until `stop`, releases what is held, and says why it ended.
    /// [`LeaseError::Stopped`] is the end that was asked for; every other one is the end of the process.
    pub fn keep(mut self, stop: CancellationToken) -> (Handle, impl Future<Output = LeaseError> + Send) {
        let (wishes, mut inbox) = mpsc::channel(BACKLOG);
        let handle = Handle {
            records: self.records.subscribe(),
            wishes,
        };
        let keeping = async move {
            loop {
                if let Err(end) = self.step(&stop, Some(&mut inbox)).await {
                    return end;
                }
            }
        };
        (handle, keeping)
    }

    /// One call, or one wait.
    pub(super) async fn step(
        &mut self,
        stop: &CancellationToken,
        inbox: Option<&mut mpsc::Receiver<Wish>>,
    ) -> Result<(), LeaseError> {
        if stop.is_cancelled() && !std::mem::replace(&mut self.is_stopping, true) {
            self.machine.stop();
            // Nobody may write any more when the release is on its way.
            self.publish();
        }
        match self.machine.next(Instant::now(), Timestamp::now()) {
            Next::End(end) => {
                self.publish();
                tracing::debug!(why = end.as_str(), "the hub's Lease is not kept any more");
                return Err(end.into());
            }
            Next::Call(call) => {
                let (is_stopping, verb) = (self.is_stopping, call.verb());
                let answer = tokio::select! {
                    answer = self.leases.perform(call) => answer,
                    () = stop.cancelled(), if !is_stopping => Answer::Failed(Failure::Unanswered),
                };
                let failure = answer.failure().map(tracing::field::debug);
                tracing::trace!(verb, failure, "a call for the hub's Lease");
                if let Answer::Failed(failure @ (Failure::Unanswered | Failure::Forbidden)) = answer
                    && !stop.is_cancelled()
                {
                    tracing::warn!(?failure, "a call for the hub's Lease failed; it is made again");
                }
                self.machine.answer(answer, Instant::now());
            }
            Next::Wait(until) => {
                tokio::select! {
                    () = tokio::time::sleep_until(until.into()) => {}
                    () = stop.cancelled() => {}
                    wish = hear(inbox) => self.grant(wish),
                }
            }
        }
        self.publish();
        Ok(())
    }

    fn grant(&mut self, wish: Wish) {
        let now = Instant::now();
        match wish {
            Wish::View(view, done) => {
                self.machine.write_view(view.clone(), now);
                self.view = Some((view, done));
            }
            Wish::Look(done) => {
                self.machine.look(now);
                self.looks.push((now, done));
            }
        }
    }

    /// Tells everybody what the last step changed.
    fn publish(&mut self) {
        let until = self.machine.until().unwrap_or_else(Instant::now);
        if self.until.send_replace(until) < until && self.machine.until().is_some() {
            tracing::trace!("the hub's Lease is renewed");
        }
        let state = self.machine.state();
        let before = *self.state.borrow();
        if before != state {
            let (from, to) = (before.as_str(), state.as_str());
            tracing::debug!(from, to, "the state of the hub's Lease changes");
        }
        self.has_stood_by |= state == State::Standby;
        self.state
            .send_if_modified(|known| std::mem::replace(known, state) != state);
        if let Some((records, asked)) = self.machine.records()
            && self.told != Some(asked)
        {
            let records: Arc<[Record]> = records.into();
            self.tell(&records, asked);
        }
        let written = self.machine.written_view();
        if let Some((_, done)) = self.view.take_if(|(view, _)| written.as_ref() == Some(view)) {
            _ = done.send(Instant::now());
        }
    }

    fn tell(&mut self, records: &Arc<[Record]>, asked: Instant) {
        self.told = Some(asked);
        for (wanted, done) in std::mem::take(&mut self.looks) {
            if wanted <= asked {
                _ = done.send(Arc::clone(records));
            } else {
                self.looks.push((wanted, done));
            }
        }
        self.records.send_replace(Arc::clone(records));
    }
}

/// Somebody's next wish; never one where nobody can wish.
async fn hear(inbox: Option<&mut mpsc::Receiver<Wish>>) -> Wish {
    if let Some(inbox) = inbox
        && let Some(wish) = inbox.recv().await
    {
        return wish;
    }
    std::future::pending().await
}
