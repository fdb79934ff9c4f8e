//! What the platform offers: registries with the verdict on their credential, and renderer classes.
//!
//! [`Catalog::resolve`] answers which destination and renderer a task gets, or why it gets none.

#![warn(clippy::wildcard_enum_match_arm)]

mod alternatives;
mod classes;
mod copied_credentials;
pub(in crate::plan) mod credential;
mod offers;
mod resolve;
pub(in crate::plan) mod resolved;

pub use copied_credentials::{CopiedCredentials, CopyRequest};
pub use credential::{CertificateSource, CredentialState};
pub use offers::{CatalogClass, CatalogCluster, CatalogRegistry};
pub use resolve::Catalog;
pub(in crate::plan) use resolve::destination;
pub use resolved::ResolvedTask;
