//! The push: look-up, blobs, manifest, check.
//!
//! The order is the promise: nothing is uploaded before the tag is known to be free, and the manifest, which makes the chart
//! visible, goes last. The protocol has no conditional upload, so the tag is asked for again afterwards: who finds another
//! pusher's manifest there has not pushed. Blobs are never mounted from other repositories.

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::auth::{Authenticator, percent_encode};
use super::error::{PushError, Step};
use super::manifest::{Artifact, Blob, MANIFEST_TYPE};
use super::transport::{Answer, Call, Transport};
use crate::api::oci::{Digest, Tag};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// Whatever can be under a tag: another kind of artifact is a conflict too, not an absence.
const ANY_MANIFEST: HeaderValue = HeaderValue::from_static(
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v1+prettyjws, */*",
);

/// How a push ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The chart was uploaded.
    Uploaded,
    /// Exactly this chart was there already.
    AlreadyExists,
}

/// One repository of one registry.
#[derive(Debug)]
pub struct Registry {
    transport: Transport,
    auth: Authenticator,
    authorization: Option<HeaderValue>,
}

impl Registry {
    /// A registry that is not spoken to yet.
    #[must_use]
    pub const fn new(transport: Transport, auth: Authenticator) -> Self {
        Self {
            transport,
            auth,
            authorization: None,
        }
    }

    /// Whether the tag holds exactly this manifest.
    ///
    /// # Errors
    /// `TagConflict` when it holds another one; anything that is neither a clear yes nor a clear no.
    pub async fn holds(&mut self, tag: &Tag, artifact: &Artifact) -> Result<bool, PushError> {
        match self.digest_of(Step::Lookup, tag.as_str()).await? {
            None => Ok(false),
            Some(digest) if digest == artifact.manifest.digest => Ok(true),
            Some(_) => Err(PushError::TagConflict),
        }
    }

    /// Pushes an artifact under a tag that must be free or hold exactly this artifact.
    ///
    /// # Errors
    /// When the tag is taken, or the registry cannot be reached, refuses, or lies.
    pub async fn push(&mut self, tag: &Tag, artifact: &Artifact) -> Result<Pushed, PushError> {
        if self.holds(tag, artifact).await? {
            return Ok(Pushed::AlreadyExists);
        }
        self.upload(tag, artifact).await?;
        Ok(Pushed::Uploaded)
    }

    /// Uploads an artifact under a tag that was found free.
    ///
    /// # Errors
    /// When the registry cannot be reached, refuses, stores something else, or the tag does not hold the artifact afterwards.
    pub async fn upload(&mut self, tag: &Tag, artifact: &Artifact) -> Result<(), PushError> {
        self.put_blob(&artifact.layer).await?;
        self.put_blob(&artifact.config).await?;
        self.put_manifest(tag, &artifact.manifest).await?;
        let digest = &artifact.manifest.digest;
        if self.digest_of(Step::Verify, digest.as_str()).await?.as_ref() != Some(digest) {
            return Err(PushError::DigestMismatch);
        }
        // Last, so that it sees as much as it can of who else found the tag free.
        if self.digest_of(Step::Verify, tag.as_str()).await?.as_ref() != Some(digest) {
            return Err(PushError::TagConflict);
        }
        Ok(())
    }

    /// Digest of the manifest under a tag or digest; `None` if there is none.
    async fn digest_of(&mut self, step: Step, name: &str) -> Result<Option<Digest>, PushError> {
        let mut call = self.call(step, Method::HEAD, &format!("manifests/{name}"))?;
        call.headers.insert(ACCEPT, ANY_MANIFEST);
        let answer = self.send(call.clone()).await?;
        match answer.status {
            StatusCode::NOT_FOUND => return Ok(None),
            StatusCode::OK => {}
            other => return Err(unexpected(step, other)),
        }
        if let Some(digest) = content_digest(&answer.headers) {
            return Ok(Some(digest));
        }
        // Registries may leave the header out of an answer to HEAD; then the manifest itself is the answer.
        call.method = Method::GET;
        call.read = true;
        let answer = self.send(call).await?;
        match answer.status {
            StatusCode::OK => Ok(Some(Digest::of(&answer.body))),
            other => Err(unexpected(step, other)),
        }
    }

    async fn put_blob(&mut self, blob: &Blob) -> Result<(), PushError> {
        let call = self.call(Step::Blob, Method::HEAD, &format!("blobs/{}", blob.digest))?;
        match self.send(call).await?.status {
            StatusCode::OK => return Ok(()),
            StatusCode::NOT_FOUND => {}
            other => return Err(unexpected(Step::Blob, other)),
        }
        let mut call = self.call(Step::Open, Method::POST, "blobs/uploads/")?;
        call.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        let answer = self.send(call).await?;
        if answer.status != StatusCode::ACCEPTED {
            return Err(unexpected(Step::Open, answer.status));
        }
        let uri = self.upload_uri(&answer.headers, &blob.digest)?;
        let mut call = Call::new(Step::Upload, Method::PUT, uri);
        call.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        call.body = blob.bytes.clone();
        match self.send(call).await?.status {
            StatusCode::CREATED => Ok(()),
            other => Err(unexpected(Step::Upload, other)),
        }
    }

    fn upload_uri(&self, headers: &HeaderMap, digest: &Digest) -> Result<Uri, PushError> {
        let location = headers.get(LOCATION).ok_or(PushError::Protocol(Step::Open))?;
        let location = location.to_str().map_err(|_| PushError::Protocol(Step::Open))?;
        let uri = self
            .auth
            .origin
            .resolve(location)
            .ok_or(PushError::Redirect(Step::Open))?;
        let query = uri.query().map(|query| format!("{query}&")).unwrap_or_default();
        let path = format!("{}?{query}digest={}", uri.path(), percent_encode(digest.as_str()));
        self.auth
            .origin
            .at(&path)
            .map_err(|_| PushError::Protocol(Step::Open))
    }

    async fn put_manifest(&mut self, tag: &Tag, manifest: &Blob) -> Result<(), PushError> {
        let mut call = self.call(Step::Manifest, Method::PUT, &format!("manifests/{tag}"))?;
        call.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static(MANIFEST_TYPE));
        call.body = manifest.bytes.clone();
        let answer = self.send(call).await?;
        if answer.status != StatusCode::CREATED {
            return Err(unexpected(Step::Manifest, answer.status));
        }
        match content_digest(&answer.headers) {
            Some(digest) if digest != manifest.digest => Err(PushError::DigestMismatch),
            _ => Ok(()),
        }
    }

    fn call(&self, step: Step, method: Method, path: &str) -> Result<Call, PushError> {
        let path = format!("/v2/{}/{path}", self.auth.repository);
        let uri = self
            .auth
            .origin
            .at(&path)
            .map_err(|_| PushError::Protocol(step))?;
        Ok(Call::new(step, method, uri))
    }

    /// Sends a call, answers one challenge if there is one, and sorts out the answers that end every push.
    async fn send(&mut self, mut call: Call) -> Result<Answer, PushError> {
        let mut challenged = false;
        loop {
            if let Some(authorization) = &self.authorization {
                call.headers.insert(AUTHORIZATION, authorization.clone());
            }
            let answer = self.transport.send(&call).await?;
            match answer.status {
                status if status.is_redirection() => return Err(PushError::Redirect(call.step)),
                StatusCode::FORBIDDEN => return Err(PushError::Forbidden),
                // A second 401 for the same call means the credential is wrong; a token may expire between calls.
                StatusCode::UNAUTHORIZED if challenged => return Err(PushError::Unauthorized),
                StatusCode::UNAUTHORIZED => {
                    challenged = true;
                    self.authorization = Some(self.auth.answer(&self.transport, &answer.headers).await?);
                }
                _ => return Ok(answer),
            }
        }
    }
}

const fn unexpected(step: Step, status: StatusCode) -> PushError {
    PushError::Status {
        step,
        status: status.as_u16(),
    }
}

fn content_digest(headers: &HeaderMap) -> Option<Digest> {
    headers.get(CONTENT_DIGEST)?.to_str().ok()?.parse().ok()
}
