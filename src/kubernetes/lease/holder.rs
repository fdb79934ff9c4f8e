//! A Lease that the hub takes, and renews until the process ends.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::client::LeaseClient;
use crate::kubernetes::write_fence::LeaseValidity;
use crate::plan::lease::{
    HolderIdentity, HubConflict, InstanceState, LeaseAction, LeaseExit, LeaseRequestError, LeaseResponse,
    LeaseStateMachine, finding,
};
use crate::plan::preflight::PreflightFinding;

impl LeaseClient {
    /// Takes a record of the hub, once no live hub conflicts with it, and is a standby until then.
    ///
    /// At once where the record is new, was released, or is of an earlier process of this instance; within the duration of a
    /// record whose holder is gone without releasing it. `state` is set to the state of the instance.
    ///
    /// # Errors
    /// [`LeaseExit::Conflict`] with the hubs that conflict; then nothing is held.
    pub async fn take(
        self,
        claim: HolderIdentity,
        stop: &CancellationToken,
        state: watch::Sender<InstanceState>,
    ) -> Result<LeaseHolder, LeaseExit> {
        let machine = LeaseStateMachine::new(claim, Instant::now());
        let mut held = LeaseHolder::new(self, machine, state);
        let (mut is_logged, mut is_warned) = (false, false);
        while held.machine.state() != InstanceState::Active {
            held.step(stop).await?;
            let future_conflicts = held.machine.future_conflicts();
            if !future_conflicts.is_empty() && !std::mem::replace(&mut is_warned, true) {
                let PreflightFinding { message, fix, .. } = finding(&future_conflicts);
                let found = message.as_str();
                tracing::warn!(found, fix, "not ready to take over from the instance that works");
            }
            let waits_for = held.machine.waits_for();
            if !waits_for.is_empty() && !std::mem::replace(&mut is_logged, true) {
                log_conflicts(&waits_for);
            }
        }
        Ok(held)
    }
}

/// The hub's record while it is held.
pub struct LeaseHolder {
    leases: LeaseClient,
    machine: LeaseStateMachine,
    until: watch::Sender<Instant>,
    state: watch::Sender<InstanceState>,
    is_stopping: bool,
    has_stood_by: bool,
}

impl LeaseHolder {
    fn new(leases: LeaseClient, machine: LeaseStateMachine, state: watch::Sender<InstanceState>) -> Self {
        Self {
            leases,
            machine,
            until: watch::Sender::new(Instant::now()),
            state,
            is_stopping: false,
            has_stood_by: false,
        }
    }

    /// The validity of the Lease, to be checked before each write.
    #[must_use]
    pub fn validity(&self) -> LeaseValidity {
        LeaseValidity::new(self.until.subscribe())
    }

    /// Whether it waited for another instance, maybe for a long time: what was read before may be old.
    #[must_use]
    pub const fn has_stood_by(&self) -> bool {
        self.has_stood_by
    }

    /// Keeps it until `stop`, releases it, and says why it ended. [`LeaseExit::Stopped`] is the end that was asked for; every
    /// other one is the end of the process.
    pub async fn keep(mut self, stop: CancellationToken) -> LeaseExit {
        loop {
            if let Err(end) = self.step(&stop).await {
                return end;
            }
        }
    }

    /// One call, or one wait.
    async fn step(&mut self, stop: &CancellationToken) -> Result<(), LeaseExit> {
        if stop.is_cancelled() && !std::mem::replace(&mut self.is_stopping, true) {
            self.machine.stop();
            // No write may follow once the release is sent.
            self.publish();
        }
        match self.machine.next(Instant::now(), Timestamp::now()) {
            LeaseAction::End(end) => {
                self.publish();
                tracing::debug!(why = end.as_str(), "the hub's Lease is not kept any more");
                return Err(end);
            }
            LeaseAction::Call(call) => {
                let (is_stopping, verb) = (self.is_stopping, call.verb());
                let answer = tokio::select! {
                    answer = self.leases.perform(call) => answer,
                    () = stop.cancelled(), if !is_stopping => LeaseResponse::Failed(LeaseRequestError::Unanswered),
                };
                let failure = answer.failure().map(tracing::field::debug);
                tracing::trace!(verb, failure, "a call for the hub's Lease");
                if let LeaseResponse::Failed(
                    failure @ (LeaseRequestError::Unanswered | LeaseRequestError::Forbidden),
                ) = answer
                    && !stop.is_cancelled()
                {
                    tracing::warn!(?failure, "a call for the hub's Lease failed; it is made again");
                }
                self.machine.answer(answer, Instant::now());
            }
            LeaseAction::Wait(until) => {
                tokio::select! {
                    () = tokio::time::sleep_until(until.into()) => {}
                    () = stop.cancelled() => {}
                }
            }
        }
        self.publish();
        Ok(())
    }

    /// Publishes the changes of the last step.
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
        self.has_stood_by |= state == InstanceState::Standby;
        self.state
            .send_if_modified(|known| std::mem::replace(known, state) != state);
    }
}

/// Logs once which hubs a start waits for, since it may take a while.
fn log_conflicts(waits_for: &[HubConflict]) {
    for conflict in waits_for {
        tracing::info!(
            peer = conflict.peer.escape_debug().to_string(),
            holder = conflict.holder.escape_debug().to_string(),
            "waiting until it is known whether this hub is alive"
        );
    }
}
