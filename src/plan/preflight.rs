//! What must hold before a hub may start and while it works, judged from collected facts.
//!
//! Nothing is assumed: an unknown fact is refused like a wrong one, because the hub holds the credentials of all tenants.

mod access;
pub mod changes;
mod check;
mod facts;
mod finding;
mod judge;
pub mod namespace;
pub mod needs;
pub mod permissions;
mod pipeline;
pub mod table;
pub mod tenants;
mod text;

pub use check::{PreflightCheck, RUNBOOK};
pub use facts::{Fact, FactError, HubPermissions, PipelineFacts, PreflightFacts};
pub use finding::{CheckResult, PreflightFinding};
pub use judge::judge;
pub(in crate::plan) use text::{shown, some_of};

#[cfg(test)]
mod tests;
