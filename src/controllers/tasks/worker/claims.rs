//! A success that waits for the word of a registry: put aside with all that is known of it, and taken up again with the answer.

use crate::plan::task::JobState;
use crate::plan::task::proof::Inquiry;

use super::super::verification::{Answer, Claim};
use super::Pass;

impl Pass<'_> {
    /// Takes up what was put aside, if the Job that it was of is still the one that is there.
    pub(super) fn take_answer(&mut self) {
        let Some(Answer { proof, claim }) = self.view.answer.take() else {
            return;
        };
        self.proof = Some(proof);
        if let Some(claim) = claim.filter(|claim| self.view.job.uid() == Some(&*claim.report.uid)) {
            self.note = claim.note;
            self.view.job = JobState::Read(claim.report);
        }
    }

    /// Puts aside what is known; the pass ends, so that no worker waits for a registry.
    pub(super) fn claim(&mut self, inquiry: Inquiry) {
        if let JobState::Read(report) = &self.view.job {
            self.outcome.abroad.was_reached = self.site().is_reached();
            self.outcome.claim = Some(Box::new(Claim {
                report: report.clone(),
                note: self.note.clone(),
                inquiry,
            }));
        }
    }
}
