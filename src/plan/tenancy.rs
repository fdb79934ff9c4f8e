//! What the platform lets tenants' references do.

#![warn(clippy::wildcard_enum_match_arm)]

/// How far a task's references reach, and as whom they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenancy {
    /// ServiceAccount in the task's namespace for tasks that name none.
    pub default_service_account: Option<String>,
    /// Whether a `ReferenceGrant` can let a reference leave the task's namespace.
    pub crosses_namespaces: bool,
    /// Whether the hub reads as itself what a task without a ServiceAccount names.
    pub is_single_tenant: bool,
}
