//! One connection to one cluster: the task that owns it, the watches on it, and what is told of it.
//!
//! The task does what [`crate::plan::remote::health`] says, and everything else comes to it as news: what is wanted of it by a
//! channel that keeps only the newest, outcomes from tasks of its own, which end with it.

mod actor;
mod checks;
mod common;
mod desired;
mod line;
mod post;
mod report;
mod session;
mod sites;
mod turn;

pub(super) use actor::Actor;
pub(super) use common::Common;
pub(super) use desired::Desired;
pub(super) use line::Line;
pub use line::Seat;
pub use report::Report;
pub(super) use turn::{Speakers, Turn};
