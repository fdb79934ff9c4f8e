//! A destination that is not the platform's, and what it is pushed to with.

use std::fmt;

use super::tenant_credential::TenantCredential;
use crate::api::RegistrySpec;
use crate::plan::platform::catalog::credential::CredentialState;

/// What a destination of the task's own is pushed to with.
#[derive(Clone, Debug)]
pub enum PushAccess {
    /// Nothing.
    Anonymous,
    /// A Secret of the rendering namespace, mounted in place.
    Mounted(CredentialState),
    /// A tenant's credential, copied into the task's own config Secret.
    Copied(TenantCredential),
}

/// A destination that is not the platform's.
#[derive(Clone)]
pub struct TenantDestination {
    /// The registry.
    pub spec: RegistrySpec,
    /// What it is pushed to with.
    pub access: PushAccess,
    /// Its certificates.
    pub certificates: Option<String>,
}

impl TenantDestination {
    /// A registry that takes pushes from all.
    pub(super) const fn anonymous(spec: RegistrySpec) -> Self {
        Self {
            spec,
            access: PushAccess::Anonymous,
            certificates: None,
        }
    }

    /// Bytes that are copied into the config Secret.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let login = match &self.access {
            PushAccess::Copied(login) => login.bytes(),
            PushAccess::Anonymous | PushAccess::Mounted(_) => 0,
        };
        login + self.certificates.as_ref().map_or(0, String::len)
    }
}

impl fmt::Debug for TenantDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantDestination")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}
