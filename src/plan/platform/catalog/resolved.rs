//! What a task gets of what it may use.

use super::credential::{CertificateSource, CredentialState};
use crate::api::RendererClassSpec;
use crate::api::oci::{OciReference, RepositoryPrefix};
use crate::plan::pull_secrets::copy::PullCopyId;
use crate::plan::pull_secrets::named::NamedPullSecret;
use crate::plan::task::tenant::tenant_credential::TenantCredential;

/// Where a task's chart goes, and which class renders it.
#[derive(Clone, Debug)]
pub struct ResolvedTask {
    /// The full reference that is pushed to.
    pub reference: OciReference,
    /// Where on that host the credential may push for this task: the registry's prefix with the namespace filled in.
    pub prefix: RepositoryPrefix,
    /// Whether it is reached over plain HTTP.
    pub plain_http: bool,
    /// The credential of the push.
    pub credential: CredentialState,
    /// Token service of another origin that the registry may send the pusher to.
    pub token_realm: Option<String>,
    /// The registry's certificates.
    pub ca: Option<CertificateSource>,
    /// A tenant's credential, which goes into the config Secret.
    pub login: Option<TenantCredential>,
    /// The renderer. Its pull Secrets are those that the pod names.
    pub class: RendererClassSpec,
    /// The pull Secrets that the class names, of which copies may have to be made where the Job runs.
    pub pull_secrets: Vec<NamedPullSecret>,
    /// The copies among those that the pod names.
    pub pull_copies: Vec<PullCopyId>,
}
