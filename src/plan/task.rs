//! The life of a task as one pure function: what was observed in, the next step out.
//!
//! [`decide`] is asked again after each step with what the step brought, until it says [`ReconcileStep::Rest`]. A hub that is
//! killed between two steps therefore finds the next one by looking, and needs no memory of its own.

pub mod admission_rejection;
pub mod adoption;
mod advice;
mod create_blocked;
mod decide;
mod destination;
pub mod finalizer_summary;
mod image_pull;
pub mod job;
pub mod job_state;
mod job_status;
pub mod model;
mod observed;
pub mod orphans;
pub mod path;
pub(in crate::plan) mod pod;
pub mod referrer;
pub mod refusal;
pub mod retention;
mod start;
pub mod status;
pub mod status_digest;
pub mod status_seal;
mod step;
mod step_reason;
mod success_verdict;
pub mod target_seal;
pub mod tenant;
mod unreached_cluster;
pub mod validate;
pub mod verification;

pub use create_blocked::{CreateBlocked, CreatePermission};
pub use decide::decide;
pub use job_state::JobState;
pub use observed::ObservedTask;
pub use step::ReconcileStep;
pub use step_reason::StepReason;

#[cfg(test)]
pub(in crate::plan) mod tests;
