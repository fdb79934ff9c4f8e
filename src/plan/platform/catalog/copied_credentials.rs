//! The platform's credentials that are copied with a task to another cluster: into its own config Secret, and nowhere else.

use std::fmt;

use crate::api::conditions::Reason;
use crate::api::names::job_name;

use super::credential::{CertificateSource, CredentialState};
use super::resolved::ResolvedTask;
use crate::plan::task::model::Task;
use crate::plan::task::pod::layout::CLASS_CA_KEY;
use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::tenant_credential::TenantCredential;
use crate::plan::task::validate::check_size;

/// Most bytes of certificates that are copied; they share their Secret with the configuration.
const MAX_CERTIFICATES: usize = 256 * 1024;

/// What is to be read in the rendering namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRequest {
    /// The Secret with the credential, and the host that it is for.
    pub secret: Option<(String, String)>,
    /// The ConfigMap with certificates, and the key in it.
    pub certificates: Option<(String, String)>,
}

/// What was read.
#[derive(Clone)]
pub struct CopiedCredentials {
    /// The credential for exactly the host.
    pub login: Option<TenantCredential>,
    /// The certificates.
    pub certificates: Option<String>,
}

impl fmt::Debug for CopiedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopiedCredentials").finish_non_exhaustive()
    }
}

impl CopiedCredentials {
    fn bytes(&self) -> usize {
        let login = self.login.as_ref().map_or(0, TenantCredential::bytes);
        login + self.certificates.as_ref().map_or(0, String::len)
    }
}

impl CopyRequest {
    /// The message where the credential cannot be used, or is gone since the registry was judged.
    #[must_use]
    pub fn without_secret() -> Refusal {
        Refusal::new(
            Reason::PushSecretInvalid,
            "the Secret with the registry's push credential is of another type than the two that are supported, or holds nothing for \
             the registry's host; ask the platform operator to correct it: the task then starts by itself",
        )
    }

    /// The message where the certificates do not exist.
    #[must_use]
    pub fn without_certificates() -> Refusal {
        Refusal::new(
            Reason::RegistryNotFound,
            "the ConfigMap with the registry's certificates, or the key in it, does not exist, or is larger than 256 KiB; ask the \
             platform operator to correct it",
        )
    }

    /// Certificates of this size can be copied.
    #[must_use]
    pub const fn fits(certificates: &str) -> bool {
        certificates.len() <= MAX_CERTIFICATES
    }
}

impl ResolvedTask {
    /// What has to go along to another cluster; `None` where nothing has to.
    #[must_use]
    pub fn copy_request(&self) -> Option<CopyRequest> {
        let platforms = match &self.credential {
            CredentialState::BasicAuth(name) | CredentialState::DockerConfig(name) => Some(name),
            CredentialState::Anonymous | CredentialState::Missing | CredentialState::Invalid => None,
        };
        // A login that is known already is the tenant's own.
        let platforms = platforms.filter(|_| self.login.is_none());
        let secret = platforms.map(|name| (name.clone(), self.reference.host.to_string()));
        let of_class = || Some((self.class.ca_config_map_name.clone()?, CLASS_CA_KEY.to_owned()));
        let certificates = match &self.ca {
            Some(CertificateSource::ConfigMap(name, key)) => Some((name.clone(), key.clone())),
            Some(CertificateSource::Copied(_)) => None,
            None => of_class(),
        };
        (secret.is_some() || certificates.is_some()).then_some(CopyRequest { secret, certificates })
    }

    /// The same with everything in the task's own Secret.
    ///
    /// # Errors
    /// It is more than a Secret can hold.
    pub fn loaded(mut self, task: &Task, carried: &CopiedCredentials) -> Result<Self, Refusal> {
        check_size(task, carried.bytes())?;
        if let Some(login) = &carried.login {
            // The config Secret has the name of the Job.
            self.credential = CredentialState::BasicAuth(job_name(&task.id.name, &task.id.uid));
            self.login = Some(login.clone());
        }
        if let Some(certificates) = &carried.certificates {
            self.ca = Some(CertificateSource::Copied(certificates.clone()));
            self.class.ca_config_map_name = None;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_copied_up_to_their_bound() {
        let of = |bytes: usize| "c".repeat(bytes);
        assert!(CopyRequest::fits(&of(MAX_CERTIFICATES)));
        assert!(!CopyRequest::fits(&of(MAX_CERTIFICATES + 1)));
    }
}
