//! Decisions about what the platform operator offers: registries, renderer classes, grants and features.

pub mod catalog;
pub mod class;
pub mod feature_gates;
pub mod identity_method;
pub mod namespaces;
pub mod posture;
pub mod reference_grants;
pub mod registry;
pub mod tenancy;
pub mod undecodable;
pub mod unserved_namespaces;
