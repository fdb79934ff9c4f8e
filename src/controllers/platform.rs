//! The catalog controller: publishes the registries, renderer classes, clusters and queue policies that tasks can use, and writes
//! their statuses. Of a cluster it writes only the record of namespaces; the cluster controller writes the rest.
//!
//! Secrets are watched by metadata and read one at a time when one that a registry names changes; their bytes are
//! dropped with the verdict. Of namespaces only name and UID are kept.

mod class_images;
mod controller;
mod dry_run;
mod kind_store;
mod kinds;
mod namespace_store;
mod pull_secrets;
mod reconcile;
mod state;

pub use dry_run::DryRunContext;
pub use state::{CatalogController, PublishedCatalog};

#[cfg(test)]
mod tests;
