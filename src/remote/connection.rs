//! One connection to one cluster: the task that owns it, the watches on it, and what is told of it.
//!
//! The task does what [`crate::plan::remote::health`] says, and everything else comes to it as news: what is wanted of it by a
//! channel that keeps only the newest, outcomes from tasks of its own, which end with it.

mod actor;
mod announce_permit;
mod checks;
mod common;
mod desired;
mod report;
mod session;
mod shared;
mod site_watch;
mod sites;

pub(super) use actor::ConnectionActor;
pub(super) use announce_permit::{AnnouncePermit, Announcers};
pub(super) use common::ConnectionContext;
pub(super) use desired::DesiredConnection;
pub use report::ConnectionReport;
pub(super) use shared::SharedConnection;
pub use shared::SiteClient;
