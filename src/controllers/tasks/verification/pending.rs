//! A success that waits for its verification, and the result for a reconcile.

use crate::plan::task::job_state::{ObservedJob, PodTermination};
use crate::plan::task::verification::{VerificationState, VerifyRequest};

/// A success that waits for its verification.
#[derive(Clone, Debug)]
pub struct PendingVerification {
    /// The Job as it was read.
    pub report: ObservedJob,
    /// The termination message of its pods.
    pub pod_termination: Option<PodTermination>,
    /// What the registry is asked.
    pub request: VerifyRequest,
}

/// The result of a verification, for a reconcile.
#[derive(Debug)]
pub struct VerificationReply {
    /// When the registry was first asked, and its answer.
    pub verification: VerificationState,
    /// What was known when it was asked, where there is an answer.
    pub pending: Option<Box<PendingVerification>>,
}
