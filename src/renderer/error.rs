//! Why a push fails, in the renderer's own text: of the registry's response only the status code is in it.

use crate::api::termination::TerminationReason;

/// Why a push fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// DNS, connection or TLS.
    #[error("cannot reach the registry")]
    Unreachable,
    /// A call, or all of them together, took too long.
    #[error("the registry did not answer in time")]
    Deadline,
    /// 401 after the credential was sent.
    #[error("the registry does not accept the credential (401)")]
    Unauthorized,
    /// 401 or 403 where none was sent: there is none, or the registry asks for it in no way that is known here.
    #[error("the registry does not allow this push without a credential, and none was sent to it")]
    CredentialRequired,
    /// 403.
    #[error("the registry does not allow this push (403)")]
    Forbidden,
    /// Another status than the protocol has at this point.
    #[error("the registry answered {step} with status {status}")]
    Status {
        /// What was asked for.
        step: PushStep,
        /// HTTP status code.
        status: u16,
    },
    /// An answer that is not the OCI protocol, or is too large.
    #[error("the registry's answer to {0} is not valid")]
    Protocol(PushStep),
    /// The tag is taken by something else, or was taken between the look-up and the check.
    #[error("the tag already exists with other content")]
    TagConflict,
    /// What the registry holds is not what was sent.
    #[error("the registry stored something else than what was pushed")]
    DigestMismatch,
    /// A redirect, or an upload location on another origin.
    #[error("the registry redirected {0}, which is not followed")]
    Redirect(PushStep),
    /// A token service that may not receive the credential.
    #[error("the registry's token service is not on the registry's origin and not the one allowed")]
    Realm,
}

/// What a call was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushStep {
    /// Asking for the tag before anything else.
    Lookup,
    /// Fetching a token.
    Token,
    /// Asking whether a blob is there.
    Blob,
    /// Opening an upload.
    Open,
    /// Uploading a blob.
    Upload,
    /// Uploading the manifest.
    Manifest,
    /// Asking for the manifest, and for the tag again, afterwards.
    Verify,
    /// Deleting a manifest.
    Delete,
}

impl std::fmt::Display for PushStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Lookup => "the look-up of the tag",
            Self::Token => "the token request",
            Self::Blob => "the look-up of a blob",
            Self::Open => "the start of an upload",
            Self::Upload => "an upload",
            Self::Manifest => "the upload of the manifest",
            Self::Verify => "the check of the manifest",
            Self::Delete => "the deletion of a manifest",
        })
    }
}

impl PushError {
    /// The reason in the termination message.
    #[must_use]
    pub const fn reason(self) -> TerminationReason {
        match self {
            Self::Unreachable | Self::Deadline => TerminationReason::RegistryUnreachable,
            Self::Unauthorized => TerminationReason::Unauthorized,
            Self::CredentialRequired => TerminationReason::CredentialRequired,
            Self::Forbidden => TerminationReason::Forbidden,
            Self::Status { .. } | Self::Protocol(_) => TerminationReason::RegistryRefused,
            Self::TagConflict => TerminationReason::TagConflict,
            Self::DigestMismatch => TerminationReason::DigestMismatch,
            Self::Redirect(_) => TerminationReason::RedirectRefused,
            Self::Realm => TerminationReason::RealmRefused,
        }
    }
}
