//! A session of one identity: it reads single objects, and reveals neither the identity nor the method.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderValue, Request as HttpRequest};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{GetParams, WatchParams};
use kube::client::Body;
use kube::core::request::Error as RequestError;
use kube::core::{PartialObjectMeta, Request};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::base::metrics::Metrics;
use crate::kubernetes::apply::{CallError, OBJECT_MAX, SecretBody, TransportStage, fetch, log_call};

/// Longest a read may take.
const DEADLINE: Duration = Duration::from_secs(15);
/// Secrets as a metric label.
const SECRETS: &str = "secrets (tenant)";

/// The meaning of a response to the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantReadError {
    /// It does not exist.
    #[error("it does not exist")]
    NotFound,
    /// The identity may not read it.
    #[error("the reader may not read it")]
    Forbidden,
    /// The API server does not know the identity any more, or the hub may not act as it.
    #[error("the API server does not know the reader")]
    Unauthorized,
    /// The call failed.
    #[error("the call failed")]
    Call(#[from] CallError),
}

impl TenantReadError {
    /// The failed call, where the API server gave no verdict on the identity.
    const fn call(self) -> Option<CallError> {
        match self {
            Self::NotFound | Self::Forbidden | Self::Unauthorized => None,
            Self::Call(error) => Some(error),
        }
    }
}

/// An answer that is not what was asked for.
const UNREADABLE: TenantReadError = TenantReadError::Call(CallError::Transport(TransportStage::Decode));

/// How a request shows whose it is.
pub(super) enum SessionCredential {
    /// A header on a client that is anonymous without it.
    Bearer(HeaderValue),
    /// A header on the hub's client.
    Impersonation(HeaderValue),
    /// The hub itself, where one team owns the cluster.
    Hub,
}

/// A session of one identity.
pub struct TenantSession {
    client: Client,
    credential: SessionCredential,
    metrics: Metrics,
}

impl TenantSession {
    pub(super) fn new(client: Client, credential: SessionCredential, metrics: Metrics) -> Self {
        Self {
            client,
            credential,
            metrics,
        }
    }

    /// Reads an object of the kind `K` as `T`.
    ///
    /// # Errors
    /// What the answer means to the identity.
    pub async fn get<K, T>(&self, namespace: &str, name: &str) -> Result<T, TenantReadError>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let path = K::url_path(&(), Some(namespace));
        let request = Request::new(path).get(name, &GetParams::default());
        let answer = self.exchange(request).await;
        let answer = answer
            .map(|body| Zeroizing::new(Vec::from(body)))
            .and_then(|body| serde_json::from_slice(&body).map_err(|_| UNREADABLE));
        self.count("get", resource_of::<K>(), answer.as_ref().err());
        answer
    }

    /// Reads a Secret as it is.
    ///
    /// # Errors
    /// What the answer means to the identity.
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<SecretBody, TenantReadError> {
        let request = secrets(namespace).get(name, &GetParams::default());
        let answer = self.exchange(request).await;
        self.count("get", SECRETS, answer.as_ref().err());
        answer.map(|body| SecretBody::new(body.into()))
    }

    /// Resource version of a Secret, of which no value is read.
    ///
    /// # Errors
    /// What the answer means to the identity.
    pub async fn secret_version(&self, namespace: &str, name: &str) -> Result<String, TenantReadError> {
        let request = secrets(namespace).get_metadata(name, &GetParams::default());
        let answer = self.exchange(request).await.and_then(|body| {
            let read: Result<PartialObjectMeta<Secret>, _> = serde_json::from_slice(&body);
            let version = read.ok().and_then(|object| object.metadata.resource_version);
            version.ok_or(UNREADABLE)
        });
        self.count("get", SECRETS, answer.as_ref().err());
        answer
    }

    /// Opens a watch of one Secret from this version on (empty: from its beginning), which the server ends after `longest`,
    /// in whole seconds. Only metadata are asked for.
    ///
    /// # Errors
    /// What the answer means to the identity.
    pub async fn watch_secret(
        &self,
        namespace: &str,
        name: &str,
        version: &str,
        longest: Duration,
    ) -> Result<SecretWatch, TenantReadError> {
        let seconds = u32::try_from(longest.as_secs()).unwrap_or(u32::MAX);
        let only = WatchParams::default()
            .fields(&format!("metadata.name={name}"))
            .timeout(seconds)
            .disable_bookmarks();
        let request = self.shown(secrets(namespace).watch_metadata(&only, version))?;
        let answer = tokio::time::timeout(DEADLINE, self.client.send(request.map(Body::from))).await;
        let answer = answer.map_err(|_| TenantReadError::Call(CallError::Timeout));
        let answer = answer.and_then(|answer| answer.map_err(|error| classify(&error)));
        let opened = answer.and_then(|answer| match answer.status().as_u16() {
            200 => Ok(SecretWatch(Some(answer.into_body()))),
            // The version is too old to go on from.
            410 => Ok(SecretWatch(None)),
            code => Err(meaning(code)),
        });
        self.count("watch", SECRETS, opened.as_ref().err());
        opened
    }

    async fn exchange(
        &self,
        request: Result<HttpRequest<Vec<u8>>, RequestError>,
    ) -> Result<Bytes, TenantReadError> {
        let request = self.shown(request)?;
        let answer = tokio::time::timeout(DEADLINE, fetch(&self.client, request, OBJECT_MAX)).await;
        answer
            .unwrap_or(Err(CallError::Timeout))
            .map_err(|error| match error {
                CallError::NotFound => TenantReadError::NotFound,
                CallError::Forbidden => TenantReadError::Forbidden,
                CallError::Unauthorized => TenantReadError::Unauthorized,
                CallError::AlreadyExists
                | CallError::Conflict
                | CallError::Invalid
                | CallError::TooLarge
                | CallError::Crowded
                | CallError::Barred
                | CallError::Timeout
                | CallError::Code(_)
                | CallError::Transport(_)
                | CallError::NoClaim => TenantReadError::Call(error),
            })
    }

    fn count(&self, verb: &'static str, resource: &'static str, error: Option<&TenantReadError>) {
        let (code, call) = (code(error), error.copied().and_then(TenantReadError::call));
        log_call(verb, resource, code, call);
        self.metrics.call(verb, resource, code);
    }

    /// The request with what shows whose it is.
    fn shown(
        &self,
        request: Result<HttpRequest<Vec<u8>>, RequestError>,
    ) -> Result<HttpRequest<Vec<u8>>, TenantReadError> {
        let mut request = request.map_err(|_| CallError::Transport(TransportStage::Internal))?;
        if let Some((header, value)) = self.header() {
            request.headers_mut().insert(header, value);
        }
        Ok(request)
    }

    /// The token that the session shows, if it shows one.
    pub(super) const fn token(&self) -> Option<&HeaderValue> {
        match &self.credential {
            SessionCredential::Bearer(token) => Some(token),
            SessionCredential::Impersonation(_) | SessionCredential::Hub => None,
        }
    }

    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match &self.credential {
            SessionCredential::Bearer(token) => Some((AUTHORIZATION, token.clone())),
            SessionCredential::Impersonation(user) => {
                Some((HeaderName::from_static("impersonate-user"), user.clone()))
            }
            SessionCredential::Hub => None,
        }
    }
}

/// A watch of one Secret.
pub struct SecretWatch(Option<Body>);

impl SecretWatch {
    /// Waits, for `longest` and a little more at most, for the first event: the Secret changed, or the watch must begin again.
    /// `false` where the watch ended without one. The event itself is not read.
    pub async fn changed(self, longest: Duration) -> bool {
        let Some(mut lines) = self.0 else {
            return true;
        };
        let first = tokio::time::timeout(longest + DEADLINE, lines.frame()).await;
        matches!(first, Ok(Some(Ok(_))))
    }
}

/// The resource as a metric label: a closed list, apart from what the hub reads as itself.
fn resource_of<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::kind(&()).as_ref() {
        "Secret" => SECRETS,
        "ConfigMap" => "configmaps (tenant)",
        _ => "registries (tenant)",
    }
}

fn code(error: Option<&TenantReadError>) -> u16 {
    match error {
        None => 200,
        Some(TenantReadError::NotFound) => 404,
        Some(TenantReadError::Forbidden) => 403,
        Some(TenantReadError::Unauthorized) => 401,
        Some(TenantReadError::Call(error)) => error.code(),
    }
}

fn classify(error: &kube::Error) -> TenantReadError {
    let kube::Error::Api(status) = error else {
        return CallError::Transport(TransportStage::of(error)).into();
    };
    meaning(status.code)
}

fn meaning(code: u16) -> TenantReadError {
    match code {
        401 => TenantReadError::Unauthorized,
        403 => TenantReadError::Forbidden,
        404 => TenantReadError::NotFound,
        code => CallError::Code(code).into(),
    }
}

fn secrets(namespace: &str) -> Request {
    Request::new(Secret::url_path(&(), Some(namespace)))
}
