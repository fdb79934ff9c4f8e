//! Requests to a registry that change nothing. A reader without a [`super::registry::RegistryClient`] cannot push.

use http::header::{ACCEPT, AUTHORIZATION, HeaderMap};
use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::auth::Authenticator;
use super::error::{PushError, PushStep};
use super::transport::{RegistryRequest, RegistryResponse, Transport};
use crate::api::oci::Digest;

/// Where the protocol begins; a registry that wants a credential asks for it there.
const BASE: &str = "/v2/";
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// Whatever can be under a tag: another kind of artifact is a conflict too, not an absence.
const ANY_MANIFEST: HeaderValue = HeaderValue::from_static(
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v1+prettyjws, */*",
);

/// One repository of one registry, to be read.
#[derive(Debug)]
pub struct RegistryReader {
    transport: Transport,
    pub(super) auth: Authenticator,
    authorization: Option<HeaderValue>,
    has_sent_credential: bool,
}

impl RegistryReader {
    /// A registry that is not spoken to yet.
    #[must_use]
    pub const fn new(transport: Transport, auth: Authenticator) -> Self {
        Self {
            transport,
            auth,
            authorization: None,
            has_sent_credential: false,
        }
    }

    /// Whether the registry, or its token service, was sent the credential.
    #[must_use]
    pub const fn has_sent_credential(&self) -> bool {
        self.has_sent_credential
    }

    /// Digest of the manifest under a tag or digest; `None` if there is none.
    ///
    /// # Errors
    /// Anything that is neither a clear yes nor a clear no.
    pub async fn digest_of(&mut self, step: PushStep, name: &str) -> Result<Option<Digest>, PushError> {
        let mut call = self.call(step, Method::HEAD, &format!("manifests/{name}"))?;
        call.headers.insert(ACCEPT, ANY_MANIFEST);
        let answer = self.send(call).await?;
        match answer.status {
            StatusCode::NOT_FOUND => return Ok(None),
            StatusCode::OK => {}
            other => return Err(unexpected(step, other)),
        }
        if let Some(digest) = content_digest(&answer.headers) {
            return Ok(Some(digest));
        }
        // Registries may leave the header out of an answer to HEAD; then the manifest itself is the answer.
        self.digest_of_body(step, name).await.map(Some)
    }

    /// Digest of the manifest under a tag or digest, from its bytes.
    ///
    /// # Errors
    /// Anything but the manifest.
    pub async fn digest_of_body(&mut self, step: PushStep, name: &str) -> Result<Digest, PushError> {
        let mut call = self.call(step, Method::GET, &format!("manifests/{name}"))?;
        call.headers.insert(ACCEPT, ANY_MANIFEST);
        call.read = true;
        let answer = self.send(call).await?;
        match answer.status {
            // A web server that answers everything with a page holds no chart, and no other one either.
            StatusCode::OK if step == PushStep::Lookup && !is_manifest(&answer.body) => {
                Err(PushError::Protocol(step))
            }
            StatusCode::OK => Ok(Digest::of(&answer.body)),
            other => Err(unexpected(step, other)),
        }
    }

    /// Digest of the manifest under a tag or digest, also of a registry that answers no HEAD, or that hides what it has from clients
    /// without a credential; `None` if there is none.
    ///
    /// # Errors
    /// Anything that is neither a clear yes nor a clear no.
    pub async fn find(&mut self, step: PushStep, name: &str) -> Result<Option<Digest>, PushError> {
        let found = self.digest_with_get(step, name).await?;
        if found.is_none() && self.authorize(step).await? {
            return self.digest_with_get(step, name).await;
        }
        Ok(found)
    }

    async fn digest_with_get(&mut self, step: PushStep, name: &str) -> Result<Option<Digest>, PushError> {
        match self.digest_of(step, name).await {
            // A registry that answers no HEAD answers a GET.
            Err(PushError::Status { status: 405, .. }) => match self.digest_of_body(step, name).await {
                Err(PushError::Status { status: 404, .. }) => Ok(None),
                found => found.map(Some),
            },
            found => found,
        }
    }

    /// Asks the registry for a challenge where it has not seen the credential yet; returns whether it had one.
    async fn authorize(&mut self, step: PushStep) -> Result<bool, PushError> {
        if self.is_authorized() || self.auth.credential.is_none() {
            return Ok(false);
        }
        let uri = self.auth.origin.at(BASE).map_err(|_| PushError::Protocol(step))?;
        let call = RegistryRequest::new(step, Method::GET, uri);
        let answer = self.transport.send(&call).await?;
        match answer.status {
            StatusCode::UNAUTHORIZED => self.answer(&answer.headers).await.map(|()| true),
            // It did not say whether it wants a credential, so what it hides is not known.
            status if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() => {
                Err(unexpected(step, status))
            }
            _ => Ok(false),
        }
    }

    /// Answers a challenge, for all calls that follow.
    async fn answer(&mut self, challenge: &HeaderMap) -> Result<(), PushError> {
        let authorization = self.auth.answer(&self.transport, challenge).await;
        self.has_sent_credential |= self.auth.credential.is_some() && is_answered(&authorization);
        self.authorization = Some(authorization?);
        Ok(())
    }

    /// Whether calls carry an authorization.
    pub(super) const fn is_authorized(&self) -> bool {
        self.authorization.is_some()
    }

    pub(super) fn call(
        &self,
        step: PushStep,
        method: Method,
        path: &str,
    ) -> Result<RegistryRequest, PushError> {
        let path = format!("{BASE}{}/{path}", self.auth.repository);
        let uri = self
            .auth
            .origin
            .at(&path)
            .map_err(|_| PushError::Protocol(step))?;
        Ok(RegistryRequest::new(step, method, uri))
    }

    /// Sends a call, answers one challenge if there is one, and sorts out the answers that end every push.
    pub(super) async fn send(&mut self, mut call: RegistryRequest) -> Result<RegistryResponse, PushError> {
        let mut challenged = false;
        loop {
            if let Some(authorization) = &self.authorization {
                call.headers.insert(AUTHORIZATION, authorization.clone());
            }
            let answer = self.transport.send(&call).await?;
            match answer.status {
                status if status.is_redirection() => return Err(PushError::Redirect(call.step)),
                StatusCode::FORBIDDEN => return Err(self.denied(PushError::Forbidden)),
                // A second 401 for the same call means the credential is wrong; a token may expire between calls.
                StatusCode::UNAUTHORIZED if challenged => return Err(self.denied(PushError::Unauthorized)),
                StatusCode::UNAUTHORIZED => {
                    challenged = true;
                    self.answer(&answer.headers).await?;
                }
                _ => return Ok(answer),
            }
        }
    }

    /// A refusal, as one of the credential only where it was sent.
    const fn denied(&self, error: PushError) -> PushError {
        if self.has_sent_credential {
            error
        } else {
            PushError::CredentialRequired
        }
    }
}

/// What every kind of manifest has in common.
fn is_manifest(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ManifestHeader {
        #[expect(dead_code, reason = "only looked for")]
        schema_version: u64,
    }
    // A struct can be read from a list, too.
    body.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<ManifestHeader>(body).is_ok()
}

/// Whether a challenge was answered: by a header, or to a token service that had its say.
const fn is_answered(authorization: &Result<HeaderValue, PushError>) -> bool {
    !matches!(
        authorization,
        Err(PushError::CredentialRequired | PushError::Realm | PushError::Unreachable | PushError::Deadline)
    )
}

pub(super) const fn unexpected(step: PushStep, status: StatusCode) -> PushError {
    PushError::Status {
        step,
        status: status.as_u16(),
    }
}

pub(super) fn content_digest(headers: &HeaderMap) -> Option<Digest> {
    headers.get(CONTENT_DIGEST)?.to_str().ok()?.parse().ok()
}
