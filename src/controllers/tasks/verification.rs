//! A success that waits for the word of a registry, and what a reconcile is told of it.

use crate::plan::task::job_state::{ObservedJob, PodTermination};
use crate::plan::task::verification::{VerificationState, VerifyRequest};

/// A success that waits for the word of a registry.
#[derive(Clone, Debug)]
pub struct PendingVerification {
    /// The Job as it was read.
    pub report: ObservedJob,
    /// The last word of its pods.
    pub pod_termination: Option<PodTermination>,
    /// What is asked.
    pub request: VerifyRequest,
}

/// What a reconcile is told of a question.
#[derive(Debug)]
pub struct VerificationReply {
    /// When it was first asked, and what came of it.
    pub proof: VerificationState,
    /// What was known when it was asked, where there is an answer.
    pub pending: Option<Box<PendingVerification>>,
}
