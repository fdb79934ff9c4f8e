//! Verifies that the platform's registries hold the pushed charts: requests that only read, bounded in time and number.
//!
//! The first request has no credential; the credential is read and sent only where the registry refuses that, or has no manifest for
//! it. The result is one of a few values.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use http::Uri;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::api::basic_auth::BasicCredential;
use crate::api::oci::Digest;
use crate::base::metrics::{Metrics, ResultLabel};
use crate::kubernetes::apply::HubClient;
use crate::plan::task::tenant::login;
use crate::plan::task::verification::{VerifyRequest, VerifyResult};
use crate::renderer::auth::{Authenticator, TokenScope};
use crate::renderer::error::{PushError, PushStep};
use crate::renderer::origin::{Origin, is_all_plain};
use crate::renderer::reader::RegistryReader;
use crate::renderer::tls;
use crate::renderer::transport::{Transport, TransportLimits};

/// Questions at once, to all registries and to one: a slow one holds up no other.
const AT_ONCE: [usize; 2] = [16, 4];
/// Longest time of one verification once it has its permits.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest time, with the wait for permits, where nothing depends on the answer.
const BRIEF: Duration = Duration::from_secs(1);
/// How long a registry that did not answer is not asked what nothing depends on.
const COOLDOWN: Duration = Duration::from_secs(60);
/// Largest manifest that is read.
const BODY: usize = 1024 * 1024;

/// Asks registries. Cheap to clone; clones share their bounds.
#[derive(Clone, Debug)]
pub struct Verifier(Arc<VerifierInner>);

#[derive(Debug)]
struct VerifierInner {
    hub_client: HubClient,
    metrics: Metrics,
    turns: Semaphore,
    /// By host; there are as many as the platform names.
    hosts: DashMap<String, Arc<RegistryHostState>>,
}

#[derive(Debug)]
struct RegistryHostState {
    turns: Semaphore,
    cooldown_until: Mutex<Option<Instant>>,
}

/// Why there is no answer that says anything.
struct NoRegistryAnswer;

impl Verifier {
    /// A verifier that reads credentials and certificates with these calls.
    #[must_use]
    pub fn new(calls: HubClient, metrics: Metrics) -> Self {
        Self(Arc::new(VerifierInner {
            hub_client: calls,
            metrics,
            turns: Semaphore::new(AT_ONCE[0]),
            hosts: DashMap::new(),
        }))
    }

    /// What the registry says.
    pub async fn verify(&self, request: &VerifyRequest) -> VerifyResult {
        let host = self.host(request.reference.host.as_str());
        if !request.is_required && host.is_cooling_down() {
            self.count("Skipped");
            return VerifyResult::Silent;
        }
        let found = if request.is_required {
            let _turns = self.permits(&host).await;
            timeout(LIMIT, self.send_request(request)).await
        } else {
            let brief = async {
                let _turns = self.permits(&host).await;
                self.send_request(request).await
            };
            timeout(BRIEF, brief).await
        };
        let result = found.unwrap_or(VerifyResult::Silent);
        host.answered(result != VerifyResult::Silent);
        self.count(label(result));
        result
    }

    fn host(&self, name: &str) -> Arc<RegistryHostState> {
        let known = self.0.hosts.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(RegistryHostState {
                turns: Semaphore::new(AT_ONCE[1]),
                cooldown_until: Mutex::default(),
            })
        });
        Arc::clone(&known)
    }

    /// A permit of the host, then one of all hosts, so that those who wait for a slow host hold none of the others. Neither
    /// semaphore is ever closed.
    async fn permits<'a>(&'a self, host: &'a RegistryHostState) -> [Option<SemaphorePermit<'a>>; 2] {
        let own = host.turns.acquire().await.ok();
        [own, self.0.turns.acquire().await.ok()]
    }

    fn count(&self, result: &'static str) {
        let counted = &self.0.metrics.verifications;
        counted.get_or_create(&ResultLabel { result }).inc();
    }

    async fn send_request(&self, request: &VerifyRequest) -> VerifyResult {
        let found = self.find_anonymously_or_with_credential(request).await;
        found.map_or(VerifyResult::Silent, |found| verify_result(request, &found))
    }

    async fn find_anonymously_or_with_credential(
        &self,
        request: &VerifyRequest,
    ) -> Result<Result<Option<Digest>, PushError>, NoRegistryAnswer> {
        let certificates = self.certificates(request).await?;
        let found = find(request, certificates.as_deref(), None).await;
        let says_little = matches!(
            found,
            Ok(None) | Err(PushError::Unauthorized | PushError::CredentialRequired | PushError::Forbidden)
        );
        let Some((name, host)) = request.means.secret.as_ref().filter(|_| says_little) else {
            return Ok(found);
        };
        let secret = self
            .0
            .hub_client
            .get_secret(name)
            .await
            .map_err(|_| NoRegistryAnswer)?;
        let login = secret.and_then(|secret| login(&secret, host).ok());
        let credential = login.ok_or(NoRegistryAnswer)?.credential;
        Ok(find(request, certificates.as_deref(), Some(credential)).await)
    }

    async fn certificates(&self, request: &VerifyRequest) -> Result<Option<String>, NoRegistryAnswer> {
        let named = request.means.certificates.as_ref();
        let is_plain = is_all_plain(request.plain_http, token_realm(request).as_ref());
        let Some((name, key)) = named.filter(|_| !is_plain) else {
            return Ok(None);
        };
        let map = self
            .0
            .hub_client
            .get_config_map(name)
            .await
            .map_err(|_| NoRegistryAnswer)?;
        let bundle = map.and_then(|map| map.data?.remove(key));
        bundle.ok_or(NoRegistryAnswer).map(Some)
    }
}

impl RegistryHostState {
    fn is_cooling_down(&self) -> bool {
        let until = *self.cooldown_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn answered(&self, has_answered: bool) {
        let until = (!has_answered).then(|| Instant::now() + COOLDOWN);
        *self.cooldown_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// The token service that the registry may send the hub to.
fn token_realm(request: &VerifyRequest) -> Option<Uri> {
    request.token_realm.as_ref().and_then(|realm| realm.parse().ok())
}

/// Digest of what the registry has there; by digest where it is known, because a tag may have moved on since.
async fn find(
    request: &VerifyRequest,
    certificates: Option<&str>,
    credential: Option<BasicCredential>,
) -> Result<Option<Digest>, PushError> {
    let token_realm = token_realm(request);
    let config = if is_all_plain(request.plain_http, token_realm.as_ref()) {
        tls::no_tls()
    } else {
        tls::client_config_of(certificates.as_slice())
    };
    let limits = TransportLimits {
        total: LIMIT,
        call: LIMIT,
        attempts: 1,
        body: BODY,
        ..TransportLimits::default()
    };
    let transport = Transport::new(config.map_err(|_| PushError::Unreachable)?, limits);
    let reference = &request.reference;
    let auth = Authenticator {
        origin: Origin::of_registry(&reference.host, request.plain_http),
        repository: reference.repository.clone(),
        credential,
        token_realm,
        access: TokenScope::Pull,
    };
    let mut reader = RegistryReader::new(transport, auth);
    let name = request
        .digest
        .as_ref()
        .map_or(reference.tag.as_str(), Digest::as_str);
    reader.find(PushStep::Verify, name).await
}

/// What it means that a registry showed this.
fn verify_result(request: &VerifyRequest, found: &Result<Option<Digest>, PushError>) -> VerifyResult {
    match (found, &request.digest) {
        (Ok(Some(found)), Some(named)) if found != named => VerifyResult::Different,
        (Ok(Some(_)), _) => VerifyResult::Held,
        (Ok(None) | Err(PushError::Status { status: 404, .. }), _) => VerifyResult::Missing,
        (
            Err(
                PushError::Unauthorized
                | PushError::CredentialRequired
                | PushError::Forbidden
                | PushError::Realm,
            ),
            _,
        ) => VerifyResult::Refused,
        (Err(_), _) => VerifyResult::Silent,
    }
}

const fn label(result: VerifyResult) -> &'static str {
    match result {
        VerifyResult::Held => "Held",
        VerifyResult::Missing => "Missing",
        VerifyResult::Different => "Different",
        VerifyResult::Refused => "Refused",
        VerifyResult::Silent => "Silent",
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, StatusCode};

    use super::*;
    use crate::api::names::HubId;
    use crate::kubernetes::tests::client_to_nowhere;
    use crate::plan::platform::catalog::CopyRequest;

    /// A registry whose manifest has no digest header and so many bytes.
    async fn registry(bytes: usize) -> String {
        let answer = move |method: Method| async move {
            if method == Method::HEAD {
                (StatusCode::METHOD_NOT_ALLOWED, String::new())
            } else {
                (StatusCode::OK, "x".repeat(bytes))
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        host
    }

    #[tokio::test]
    async fn a_manifest_is_read_up_to_its_bound_and_a_larger_one_is_no_answer() {
        for (bytes, expected) in [(BODY, VerifyResult::Held), (BODY + 1, VerifyResult::Silent)] {
            let request = VerifyRequest {
                reference: format!("{}/team-a/shop:1", registry(bytes).await)
                    .parse()
                    .unwrap(),
                plain_http: true,
                token_realm: None,
                means: CopyRequest {
                    secret: None,
                    certificates: None,
                },
                digest: Some(Digest::of("x".repeat(bytes).as_bytes())),
                is_required: true,
            };
            let (metrics, _) = Metrics::new();
            let client = client_to_nowhere();
            let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
            let calls = HubClient::new(client, metrics.clone(), "rendering".to_owned(), hub);
            let found = Verifier::new(calls, metrics.clone()).verify(&request).await;
            assert_eq!(found, expected, "{bytes} bytes");
            let result = label(expected);
            let counted = metrics.verifications.get_or_create(&ResultLabel { result }).get();
            assert_eq!(counted, 1);
        }
    }
}
