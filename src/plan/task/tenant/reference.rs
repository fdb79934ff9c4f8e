//! What is read before a task can start.

use super::read_identity::ReadIdentity;
use crate::api::RegistrySpec;

/// What a task names.
#[derive(Clone, Debug)]
pub enum NamedDestination {
    /// A `Registry`.
    Registry(String),
    /// A host, given in the task, with a Secret.
    Host(Box<RegistrySpec>),
}

impl NamedDestination {
    /// The name of the registry; none where a host is named, whose Secret is in the task's own namespace.
    pub(super) fn registry(&self) -> Option<&str> {
        match self {
            Self::Registry(name) => Some(name),
            Self::Host(_) => None,
        }
    }
}

/// Something to read before a task can start.
#[derive(Clone, Debug)]
pub struct TenantReference {
    /// The identity as which it is read.
    pub identity: ReadIdentity,
    /// Namespace of all that is named; empty for the rendering namespace.
    pub namespace: String,
    /// Whether that is another namespace than the task's: then no message says what is there.
    pub crosses: bool,
    /// What is named.
    pub named: NamedDestination,
}
