//! A success that waits for its verification: kept with all that is known of it until the registry answers.

use crate::plan::task::JobState;
use crate::plan::task::verification::VerifyRequest;

use super::pending::{PendingVerification, VerificationReply};
use crate::controllers::tasks::reconciler::Reconciler;

impl Reconciler<'_> {
    /// Takes up what was put aside, if the Job that it was of is still the one that is there.
    pub fn take_verification_reply(&mut self) {
        let Some(VerificationReply {
            verification,
            pending,
        }) = self.view.verification_reply.take()
        else {
            return;
        };
        self.verification = Some(verification);
        if let Some(pending) = pending.filter(|pending| self.view.job.uid() == Some(&*pending.report.uid)) {
            self.pod_termination = pending.pod_termination;
            self.view.job = JobState::Read(pending.report);
        }
    }

    /// Puts aside what is known; the reconcile ends, so that no worker waits for a registry.
    pub fn put_aside(&mut self, request: VerifyRequest) {
        if let JobState::Read(report) = &self.view.job {
            self.outcome.remote.was_reached = self.site().is_reached();
            self.outcome.pending_verification = Some(Box::new(PendingVerification {
                report: report.clone(),
                pod_termination: self.pod_termination.clone(),
                request,
            }));
        }
    }
}
