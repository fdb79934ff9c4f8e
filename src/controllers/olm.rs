//! Pull Secrets for operators that OLM installed: what the watches show is kept in a store, [`plan::pull_secrets::olm`] decides what
//! should be where, and workers write what differs, one namespace at a time each.
//!
//! [`plan::pull_secrets::olm`]: crate::plan::pull_secrets::olm

mod controller;
mod decoded;
mod dispatch;
mod finish;
mod listing;
mod namespace_recorder;
mod pod_looks;
mod reports;
mod source_values;
mod store;
mod watches;
mod work;

pub use controller::{OlmController, OlmControllerParts};
pub use namespace_recorder::NamespaceRecorder;
pub use watches::{OlmEvent, OlmWatches};
