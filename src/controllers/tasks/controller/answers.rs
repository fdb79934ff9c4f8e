//! Verifications that reconciles ask for, and their results.

use std::time::{Duration, Instant};

use super::super::outcome::ReconcileOutcome;
use super::super::verification::{VerificationJoinResult, VerificationReply};
use super::enqueue::EnqueueReason;
use super::{TaskController, instant};
use crate::api::names::TaskUid;

/// Time after which a task looks for itself what became of its verification; longer than an answer takes.
const ASKED: Duration = Duration::from_secs(600);

impl TaskController {
    /// The result of the task's verification, for its reconcile. If that reconcile fails, the Job is read and the registry asked
    /// again.
    pub(super) fn verification_reply(&mut self, uid: &TaskUid) -> Option<VerificationReply> {
        let reply = self.verifications.reply(uid)?;
        if reply.pending.is_some() {
            self.index.read_job_at(uid, Instant::now());
        }
        Some(reply)
    }

    /// Starts the verification that a reconcile asks for, or the wait before the next.
    pub(super) fn start_verification(&mut self, uid: &TaskUid, outcome: &ReconcileOutcome) {
        if self
            .index
            .task(uid)
            .is_none_or(|record| record.phase.is_finished())
        {
            self.verifications.forget(uid);
            return;
        }
        if let Some(pending) = &outcome.pending_verification {
            self.verifications
                .verify(uid, pending.clone(), self.context.verifier.clone());
            self.index.read_job_at(uid, Instant::now() + ASKED);
        } else if let (Some(wake), None) = (outcome.wake, outcome.error)
            && self.verifications.wait_until(uid, wake)
        {
            self.index.read_job_at(uid, instant(wake));
        }
    }

    /// Handles a registry's answer, and requeues the task.
    pub(super) fn handle_verification(&mut self, ended: VerificationJoinResult) {
        let Some((uid, ask_again)) = self.verifications.handle_result(ended) else {
            return;
        };
        match ask_again.map(instant) {
            None => self.queue.ready(&uid, EnqueueReason::RegistryAnswered),
            Some(at) => {
                self.index.read_job_at(&uid, at);
                self.queue.later(&uid, at, EnqueueReason::RegistryNotAsked);
            }
        }
    }
}
