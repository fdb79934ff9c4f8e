//! Decisions about what the platform operator offers: registries, renderer classes, grants and features.

pub mod catalog;
pub mod class;
pub mod gates;
pub mod grants;
pub mod namespaces;
pub mod posture;
pub mod registry;
pub mod tenancy;
pub mod unowned;
