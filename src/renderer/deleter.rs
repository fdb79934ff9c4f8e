//! Deleting from a registry: a manifest by its digest, and nothing by its tag alone.

use http::{Method, StatusCode};

use super::auth::Authenticator;
use super::error::{PushError, PushStep};
use super::reader::{RegistryReader, unexpected};
use super::transport::Transport;
use crate::api::oci::{Digest, Tag};

/// What became of a manifest that was to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It was deleted.
    Deleted,
    /// It was not there.
    Absent,
}

/// One repository of one registry, of which manifests are deleted.
#[derive(Debug)]
pub struct RegistryDeleter(RegistryReader);

impl RegistryDeleter {
    /// A registry that is not spoken to yet.
    #[must_use]
    pub const fn new(transport: Transport, auth: Authenticator) -> Self {
        Self(RegistryReader::new(transport, auth))
    }

    /// Whether the registry, or its token service, was sent the credential.
    #[must_use]
    pub const fn has_sent_credential(&self) -> bool {
        self.0.has_sent_credential()
    }

    /// Digest of the manifest under a tag; `None` if there is none.
    ///
    /// # Errors
    /// Anything that is neither a clear yes nor a clear no.
    pub async fn digest_of(&mut self, tag: &Tag) -> Result<Option<Digest>, PushError> {
        self.0.find(PushStep::Verify, tag.as_str()).await
    }

    /// Deletes the manifest with this digest, and with it every tag that names it.
    ///
    /// # Errors
    /// When the registry cannot be reached, or does not do it.
    pub async fn delete(&mut self, digest: &Digest) -> Result<DeleteOutcome, PushError> {
        let step = PushStep::Delete;
        let call = self
            .0
            .call(step, Method::DELETE, &format!("manifests/{digest}"))?;
        match self.0.send(call).await?.status {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(DeleteOutcome::Deleted),
            StatusCode::NOT_FOUND => Ok(DeleteOutcome::Absent),
            other => Err(unexpected(step, other)),
        }
    }
}
