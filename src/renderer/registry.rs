//! The push: look-up, blobs, manifest, check.
//!
//! The order is the promise: nothing is uploaded before the tag is known to be free, and the manifest, which makes the chart
//! visible, goes last. The protocol has no conditional upload, so the tag is asked for again afterwards: who finds another
//! pusher's manifest there has not pushed. Blobs are never mounted from other repositories.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use http::{HeaderValue, Method, StatusCode, Uri};

use super::auth::Authenticator;
use super::error::{PushError, PushStep};
use super::manifest::{Artifact, Blob, MANIFEST_TYPE};
use super::reader::{RegistryReader, content_digest, unexpected};
use super::transport::{RegistryRequest, Transport};
use crate::api::names::percent_encode;
use crate::api::oci::{Digest, Tag};

/// How a push ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The chart was uploaded.
    Uploaded,
    /// Exactly this chart was there already.
    AlreadyExists,
}

/// One repository of one registry.
#[derive(Debug)]
pub struct RegistryClient(RegistryReader);

impl RegistryClient {
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

    /// Whether the tag holds exactly this manifest.
    ///
    /// # Errors
    /// `TagConflict` when it holds another one; anything that is neither a clear yes nor a clear no.
    pub async fn holds(&mut self, tag: &Tag, artifact: &Artifact) -> Result<bool, PushError> {
        match self.0.digest_of(PushStep::Lookup, tag.as_str()).await? {
            None => Ok(false),
            Some(digest) if digest == artifact.manifest.digest => Ok(true),
            Some(_) => Err(PushError::TagConflict),
        }
    }

    /// Pushes an artifact under a tag that must be free or hold exactly this artifact.
    ///
    /// # Errors
    /// When the tag is taken, or the registry cannot be reached, refuses, or lies.
    pub async fn push(&mut self, tag: &Tag, artifact: &Artifact) -> Result<PushOutcome, PushError> {
        if self.holds(tag, artifact).await? {
            return Ok(PushOutcome::AlreadyExists);
        }
        self.upload(tag, artifact).await?;
        Ok(PushOutcome::Uploaded)
    }

    /// Uploads an artifact under a tag that was found free.
    ///
    /// # Errors
    /// When the registry cannot be reached, refuses, stores something else, or the tag does not hold the artifact afterwards.
    pub async fn upload(&mut self, tag: &Tag, artifact: &Artifact) -> Result<(), PushError> {
        let was_authorized = self.0.is_authorized();
        self.put_blob(&artifact.layer).await?;
        self.put_blob(&artifact.config).await?;
        // Some registries say to whom they do not know that there is nothing, and ask for a credential only at a write.
        let is_known_now = !was_authorized && self.0.is_authorized();
        if is_known_now && self.holds(tag, artifact).await? {
            return Ok(());
        }
        self.put_manifest(tag, &artifact.manifest).await?;
        let digest = &artifact.manifest.digest;
        if self
            .0
            .digest_of(PushStep::Verify, digest.as_str())
            .await?
            .as_ref()
            != Some(digest)
        {
            return Err(PushError::DigestMismatch);
        }
        // Last, so that it sees as much as it can of who else found the tag free.
        if self.0.digest_of(PushStep::Verify, tag.as_str()).await?.as_ref() != Some(digest) {
            return Err(PushError::TagConflict);
        }
        Ok(())
    }

    async fn put_blob(&mut self, blob: &Blob) -> Result<(), PushError> {
        let call = self
            .0
            .call(PushStep::Blob, Method::HEAD, &format!("blobs/{}", blob.digest))?;
        match self.0.send(call).await.map(|answer| answer.status) {
            Ok(StatusCode::OK) => return Ok(()),
            // Where a blob is in an object storage, the registry sends a client there; uploading it once more needs no redirect.
            Ok(StatusCode::NOT_FOUND) | Err(PushError::Redirect(PushStep::Blob)) => {}
            Ok(other) => return Err(unexpected(PushStep::Blob, other)),
            Err(error) => return Err(error),
        }
        let mut call = self.0.call(PushStep::Open, Method::POST, "blobs/uploads/")?;
        call.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        let answer = self.0.send(call).await?;
        if answer.status != StatusCode::ACCEPTED {
            return Err(unexpected(PushStep::Open, answer.status));
        }
        let uri = self.upload_uri(&answer.headers, &blob.digest)?;
        let mut call = RegistryRequest::new(PushStep::Upload, Method::PUT, uri);
        call.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        call.body = blob.bytes.clone();
        match self.0.send(call).await?.status {
            StatusCode::CREATED => Ok(()),
            other => Err(unexpected(PushStep::Upload, other)),
        }
    }

    fn upload_uri(&self, headers: &HeaderMap, digest: &Digest) -> Result<Uri, PushError> {
        let location = headers.get(LOCATION).ok_or(PushError::Protocol(PushStep::Open))?;
        let location = location
            .to_str()
            .map_err(|_| PushError::Protocol(PushStep::Open))?;
        let origin = &self.0.auth.origin;
        let uri = origin
            .resolve(location)
            .ok_or(PushError::Redirect(PushStep::Open))?;
        let query = uri.query().map(|query| format!("{query}&")).unwrap_or_default();
        let path = format!("{}?{query}digest={}", uri.path(), percent_encode(digest.as_str()));
        origin.at(&path).map_err(|_| PushError::Protocol(PushStep::Open))
    }

    async fn put_manifest(&mut self, tag: &Tag, manifest: &Blob) -> Result<(), PushError> {
        let mut call = self
            .0
            .call(PushStep::Manifest, Method::PUT, &format!("manifests/{tag}"))?;
        call.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(MANIFEST_TYPE));
        call.body = manifest.bytes.clone();
        let answer = self.0.send(call).await?;
        if answer.status != StatusCode::CREATED {
            return Err(unexpected(PushStep::Manifest, answer.status));
        }
        match content_digest(&answer.headers) {
            Some(digest) if digest != manifest.digest => Err(PushError::DigestMismatch),
            _ => Ok(()),
        }
    }
}
