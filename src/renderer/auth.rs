//! Answering a registry's challenge: Basic, or Bearer with a token of its token service.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Uri};
use http_auth::ChallengeRef;
use secrecy::ExposeSecret as _;
use serde::Deserialize;

use super::error::{PushError, PushStep};
use super::origin::Origin;
use super::transport::{RegistryRequest, Transport};
use crate::api::basic_auth::BasicCredential;
use crate::api::names::percent_encode;
use crate::api::oci::Repository;

/// Longest challenge in bytes that is parsed.
const MAX_CHALLENGE: usize = 8 * 1024;
/// Longest token in bytes that is sent.
const MAX_TOKEN: usize = 64 * 1024;

/// What a token is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenScope {
    /// To read.
    Pull,
    /// To read and write.
    Push,
    /// To read and delete.
    Delete,
}

/// What is needed to answer a challenge.
#[derive(Debug)]
pub struct Authenticator {
    /// The registry.
    pub origin: Origin,
    /// Repository the token is for.
    pub repository: Repository,
    /// User name and password; `None` for anonymous.
    pub credential: Option<BasicCredential>,
    /// A token service elsewhere that may receive the credential.
    pub token_realm: Option<Uri>,
    /// What tokens are asked for.
    pub access: TokenScope,
}

#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

impl Authenticator {
    /// The `Authorization` header that answers the challenges of a 401.
    ///
    /// # Errors
    /// When there is no credential, no challenge we know, or the token service is not allowed, refuses or fails.
    pub async fn answer(&self, transport: &Transport, headers: &HeaderMap) -> Result<HeaderValue, PushError> {
        let text = challenges(headers).ok_or(PushError::CredentialRequired)?;
        let challenges = http_auth::parse_challenges(&text).map_err(|_| PushError::CredentialRequired)?;
        let find = |scheme: &str| {
            challenges
                .iter()
                .find(|one| one.scheme.eq_ignore_ascii_case(scheme))
        };
        match (find("Bearer"), find("Basic")) {
            (Some(bearer), _) => self.bearer(transport, bearer).await,
            (None, Some(_)) => self.basic()?.ok_or(PushError::CredentialRequired),
            (None, None) => Err(PushError::CredentialRequired),
        }
    }

    fn basic(&self) -> Result<Option<HeaderValue>, PushError> {
        let Some(BasicCredential { username, password }) = &self.credential else {
            return Ok(None);
        };
        let pair = format!("{username}:{}", password.expose_secret());
        header(&format!("Basic {}", STANDARD.encode(pair)), PushStep::Lookup).map(Some)
    }

    async fn bearer(
        &self,
        transport: &Transport,
        challenge: &ChallengeRef<'_>,
    ) -> Result<HeaderValue, PushError> {
        let realm = parameter(challenge, "realm").ok_or(PushError::Realm)?;
        let realm = self
            .origin
            .vet_realm(&realm, self.token_realm.as_ref())
            .ok_or(PushError::Realm)?;
        let service = parameter(challenge, "service").unwrap_or_default();
        let uri = self
            .token_uri(&realm, &service)
            .ok_or(PushError::Protocol(PushStep::Token))?;
        let mut call = RegistryRequest::new(PushStep::Token, Method::GET, uri);
        call.read = true;
        if let Some(basic) = self.basic()? {
            call.headers.insert(AUTHORIZATION, basic);
        }
        let answer = transport.send(&call).await?;
        match answer.status.as_u16() {
            200 => token_header(&answer.body),
            300..=399 => Err(PushError::Redirect(PushStep::Token)),
            401 | 403 if self.credential.is_none() => Err(PushError::CredentialRequired),
            401 => Err(PushError::Unauthorized),
            403 => Err(PushError::Forbidden),
            status => Err(PushError::Status {
                step: PushStep::Token,
                status,
            }),
        }
    }

    /// The scope is what we need and nothing the registry asks for.
    fn token_uri(&self, realm: &Uri, service: &str) -> Option<Uri> {
        let actions = match self.access {
            TokenScope::Pull => "pull",
            TokenScope::Push => "pull,push",
            TokenScope::Delete => "pull,delete",
        };
        let scope = format!("repository:{}:{actions}", self.repository);
        let mut query = realm.query().map(|query| format!("{query}&")).unwrap_or_default();
        if !service.is_empty() {
            query.extend(["service=", &percent_encode(service), "&"]);
        }
        query.extend(["scope=", &percent_encode(&scope)]);
        let mut parts = realm.clone().into_parts();
        parts.path_and_query = format!("{}?{query}", realm.path()).parse().ok();
        Uri::from_parts(parts).ok()
    }
}

fn token_header(body: &[u8]) -> Result<HeaderValue, PushError> {
    let invalid = PushError::Protocol(PushStep::Token);
    let answer: TokenResponse = serde_json::from_slice(body).map_err(|_| invalid)?;
    let token = answer
        .token
        .filter(|token| !token.is_empty())
        .or(answer.access_token)
        .unwrap_or_default();
    if token.is_empty() || token.len() > MAX_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid);
    }
    header(&format!("Bearer {token}"), PushStep::Token)
}

/// All challenges as one list; `None` if there are none or they are too long.
fn challenges(headers: &HeaderMap) -> Option<String> {
    let values: Option<Vec<_>> = headers
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .map(|value| value.to_str().ok())
        .collect();
    values
        .map(|values| values.join(", "))
        .filter(|text| !text.is_empty() && text.len() <= MAX_CHALLENGE)
}

fn parameter(challenge: &ChallengeRef<'_>, name: &str) -> Option<String> {
    let found = challenge
        .params
        .iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_unescaped())
}

fn header(text: &str, step: PushStep) -> Result<HeaderValue, PushError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| PushError::Protocol(step))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_checked_before_they_become_a_header() {
        let header =
            |body: &str| token_header(body.as_bytes()).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header(r#"{"token":"a.b-c"}"#).unwrap(), "Bearer a.b-c");
        assert_eq!(
            header(r#"{"token":"","access_token":"d","expires_in":60}"#).unwrap(),
            "Bearer d"
        );
        let long = format!(r#"{{"token":"{}"}}"#, "x".repeat(MAX_TOKEN + 1));
        for body in [
            "",
            "{}",
            "[]x",
            r#"{"token":1}"#,
            r#"{"token":"a b"}"#,
            r#"{"token":"a\r\nX: y"}"#,
            r#"{"token":"ä"}"#,
            &long,
        ] {
            assert_eq!(header(body), Err(PushError::Protocol(PushStep::Token)), "{body}");
        }
    }

    /// Holds: O1, R6.
    #[test]
    fn a_token_is_asked_for_one_repository_whatever_the_challenge_says() {
        let authenticator = Authenticator {
            origin: Origin::of_registry(&"r".parse().unwrap(), false),
            repository: "team-a/shop".parse().unwrap(),
            credential: None,
            token_realm: None,
            access: TokenScope::Push,
        };
        let uri = |realm: &str, service: &str| {
            authenticator
                .token_uri(&realm.parse().unwrap(), service)
                .unwrap()
                .to_string()
        };
        assert_eq!(
            uri("https://r/token", "a b&scope=x"),
            "https://r/token?service=a%20b%26scope%3Dx&scope=repository%3Ateam-a%2Fshop%3Apull%2Cpush"
        );
        assert_eq!(
            uri("https://r/token?a=b", ""),
            "https://r/token?a=b&scope=repository%3Ateam-a%2Fshop%3Apull%2Cpush"
        );
    }
}
