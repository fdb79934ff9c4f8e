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
        } else if let Some(again) = outcome.verify_again
            && self.verifications.wait_until(uid, again)
        {
            self.index.read_job_at(uid, instant(again));
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

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::{SignedDuration, Timestamp};

    use super::super::super::verification::{PendingVerification, WITHOUT_SLOT};
    use super::super::tests::{controller, mark, see};
    use super::*;
    use crate::plan::platform::catalog::CopyRequest;
    use crate::plan::task::job_state::{CompletionHint, JobProgress, ObservedJob};
    use crate::plan::task::verification::VerifyRequest;

    /// A success of which a registry is asked that nothing listens for.
    fn pending() -> Box<PendingVerification> {
        Box::new(PendingVerification {
            report: ObservedJob {
                uid: "job".to_owned(),
                spec_hash: String::new(),
                chart_url: None,
                progress: JobProgress::Complete(Timestamp::UNIX_EPOCH),
                attempts: 1,
                created: None,
            },
            pod_termination: None,
            request: VerifyRequest {
                reference: "127.0.0.1:9/team-a/shop:1".parse().unwrap(),
                plain_http: true,
                token_realm: None,
                means: CopyRequest {
                    secret: None,
                    certificates: None,
                },
                digest: None,
                is_required: true,
            },
        })
    }

    /// Holds: B4.
    #[tokio::test]
    async fn so_many_of_a_namespace_wait_for_a_registry_without_a_slot_and_the_others_keep_theirs() {
        let mut controller = controller();
        let uids: Vec<_> = (0..WITHOUT_SLOT + 2)
            .map(|number| see(&mut controller, &format!("task-{number}")))
            .collect();
        for _ in 0..2 {
            for uid in &uids {
                let job = mark(uid, CompletionHint::Now);
                controller.index.keep_job(job, Instant::now());
                let verifier = controller.context.verifier.clone();
                controller.verifications.verify(uid, pending(), verifier);
                controller.handle_outcome(uid, &ReconcileOutcome::default());
            }
            assert_eq!(controller.slots.queue.len(), (0, 2));
        }
        controller.verifications.forget(&uids[0]);
        controller.handle_outcome(uids.last().unwrap(), &ReconcileOutcome::default());
        assert_eq!(controller.slots.queue.len(), (0, 1), "there is room for one more");
    }

    #[tokio::test]
    async fn only_a_wait_for_the_registry_puts_off_when_it_is_asked_again() {
        let mut controller = controller();
        let uid = see(&mut controller, "task");
        controller
            .index
            .keep_job(mark(&uid, CompletionHint::Now), Instant::now());
        let verifier = controller.context.verifier.clone();
        controller.verifications.verify(&uid, pending(), verifier);
        let answered = controller.verifications.next().await;
        controller.handle_verification(answered);
        assert!(controller.verification_reply(&uid).unwrap().pending.is_some());
        let later = |seconds| Timestamp::now() + SignedDuration::from_secs(seconds);
        let (again, long) = (later(5), later(900));
        for (verify_again, wake) in [(Some(again), again), (None, long)] {
            let outcome = ReconcileOutcome {
                wake: Some(wake),
                verify_again,
                ..ReconcileOutcome::default()
            };
            controller.handle_outcome(&uid, &outcome);
            let next = controller.verification_reply(&uid).unwrap().verification.next;
            assert_eq!(next, again);
            let read = controller.index.read_due(&uid).unwrap();
            assert!(read <= instant(again) + Duration::from_secs(1));
        }
    }
}
