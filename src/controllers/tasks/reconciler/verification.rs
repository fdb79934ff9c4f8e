//! A success that waits for its verification: kept with all that is known of it until the registry answers.

use crate::plan::task::JobState;
use crate::plan::task::verification::VerifyRequest;

use super::super::verification::{PendingVerification, VerificationReply};
use super::Reconciler;

impl Reconciler<'_> {
    /// Takes up what was put aside, if the Job that it was of is still the one that is there.
    pub(super) fn take_reply(&mut self) {
        let Some(VerificationReply {
            proof,
            pending: claim,
        }) = self.view.verification.take()
        else {
            return;
        };
        self.verification = Some(proof);
        if let Some(claim) = claim.filter(|claim| self.view.job.uid() == Some(&*claim.report.uid)) {
            self.pod_termination = claim.pod_termination;
            self.view.job = JobState::Read(claim.report);
        }
    }

    /// Puts aside what is known; the reconcile ends, so that no worker waits for a registry.
    pub(super) fn claim(&mut self, inquiry: VerifyRequest) {
        if let JobState::Read(report) = &self.view.job {
            self.outcome.remote.was_reached = self.site().is_reached();
            self.outcome.pending_verification = Some(Box::new(PendingVerification {
                report: report.clone(),
                pod_termination: self.pod_termination.clone(),
                request: inquiry,
            }));
        }
    }
}
