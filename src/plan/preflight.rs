//! What must be so before a hub may start and while it works, judged from facts that others gathered.
//!
//! Nothing is assumed: a fact that could not be learned is refused like one that is wrong, because the hub holds the
//! credentials of everybody.

mod access;
pub mod changes;
mod check;
mod facts;
mod finding;
mod judge;
pub mod namespace;
pub mod permissions;
pub mod table;
pub mod tenants;
mod text;

pub use check::{PreflightCheck, RUNBOOK};
pub use facts::{Fact, FactError, HubPermissions, PreflightFacts};
pub use finding::{CheckResult, PreflightFinding};
pub use judge::judge;
pub(in crate::plan) use text::{shown, some_of};

#[cfg(test)]
mod tests;
