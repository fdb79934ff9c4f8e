//! A session of one reader: it reads single objects, and shows nothing of who it is or how.

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use http::header::{AUTHORIZATION, HeaderName};
use kube::Client;
use kube::Resource;
use kube::api::GetParams;
use kube::core::Request;
use serde::de::DeserializeOwned;

use crate::apply::CallError;
use crate::metrics::Metrics;

/// Longest a read may take.
const DEADLINE: Duration = Duration::from_secs(15);

/// What an answer means to the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It does not exist.
    #[error("it does not exist")]
    NotFound,
    /// The reader may not read it.
    #[error("the reader may not read it")]
    Forbidden,
    /// The API server does not know the reader any more.
    #[error("the API server does not know the reader")]
    Unauthorized,
    /// The call failed.
    #[error("the call failed")]
    Call(#[from] CallError),
}

/// How a request shows whose it is.
pub(super) enum Proof {
    /// A header on a client that is nobody without it.
    Bearer(HeaderValue),
    /// A header on the hub's client.
    Impersonation(HeaderValue),
    /// The hub itself, where one team owns the cluster.
    Hub,
}

/// Somebody's session.
pub struct Session {
    client: Client,
    proof: Proof,
    metrics: Metrics,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(client: Client, proof: Proof, metrics: Metrics) -> Self {
        Self {
            client,
            proof,
            metrics,
        }
    }

    /// Reads an object of the kind `K` as `T`.
    ///
    /// # Errors
    /// What the answer means to the reader.
    pub async fn get<K, T>(&self, namespace: &str, name: &str) -> Result<T, ReadError>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let path = K::url_path(&(), Some(namespace));
        let mut request = Request::new(path)
            .get(name, &GetParams::default())
            .map_err(|_| CallError::Transport)?;
        if let Some((header, value)) = self.header() {
            request.headers_mut().insert(header, value);
        }
        // As text, because kube logs the whole of an answer that it cannot decode.
        let answer = tokio::time::timeout(DEADLINE, self.client.request_text(request)).await;
        let answer = answer
            .map_err(|_| ReadError::Call(CallError::Timeout))
            .and_then(|answer| answer.map_err(|error| classify(&error)))
            .and_then(|text| serde_json::from_str(&text).map_err(|_| ReadError::Call(CallError::Transport)));
        self.metrics
            .call("get", resource_of::<K>(), code(answer.as_ref().err()));
        answer
    }

    /// The token that the session shows, if it shows one.
    pub(super) const fn token(&self) -> Option<&HeaderValue> {
        match &self.proof {
            Proof::Bearer(token) => Some(token),
            Proof::Impersonation(_) | Proof::Hub => None,
        }
    }

    fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        match &self.proof {
            Proof::Bearer(token) => Some((AUTHORIZATION, token.clone())),
            Proof::Impersonation(user) => Some((HeaderName::from_static("impersonate-user"), user.clone())),
            Proof::Hub => None,
        }
    }
}

/// The resource as a metric label: a closed list, told apart from what the hub reads as itself.
fn resource_of<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::kind(&()).as_ref() {
        "Secret" => "secrets (tenant)",
        "ConfigMap" => "configmaps (tenant)",
        _ => "registries (tenant)",
    }
}

fn code(error: Option<&ReadError>) -> u16 {
    match error {
        None => 200,
        Some(ReadError::NotFound) => 404,
        Some(ReadError::Forbidden) => 403,
        Some(ReadError::Unauthorized) => 401,
        Some(ReadError::Call(CallError::Code(code))) => *code,
        Some(ReadError::Call(_)) => 0,
    }
}

fn classify(error: &kube::Error) -> ReadError {
    let kube::Error::Api(status) = error else {
        return CallError::Transport.into();
    };
    match status.code {
        401 => ReadError::Unauthorized,
        403 => ReadError::Forbidden,
        404 => ReadError::NotFound,
        code => CallError::Code(code).into(),
    }
}
