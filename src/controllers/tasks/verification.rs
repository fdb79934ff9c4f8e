//! Verification: whether a registry of the platform holds the chart that a Job reports as pushed. `plan::task::success_verdict` decides
//! that it is asked, and what its answer means. The reconcile puts aside what it knows of the success (`reconciling`) and ends, so
//! that no worker waits for a registry; the controller (`controller::answers`) has the request sent by `verifications`, with
//! `controllers::verify`, and gives the reply to the next reconcile of the task. What goes to and fro is in `pending`.

mod pending;
mod reconciling;
mod verifications;

pub use pending::{PendingVerification, VerificationReply};
#[cfg(test)]
pub(super) use verifications::WITHOUT_SLOT;
pub(super) use verifications::{VerificationJoinResult, Verifications};
