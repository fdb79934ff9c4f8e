//! One connection to one cluster: the task that owns it, its site watches, and its reports.
//!
//! [`crate::plan::remote::health`] decides what the task does. Its inputs are the desired state, on a channel that keeps only the
//! newest value, and the results of the tasks that it spawns, which end with it.

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
