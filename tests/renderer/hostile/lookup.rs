//! What a hostile registry gets out of a question for a chart: no credential for any other host, no hang, and no belief.

use std::time::Duration;

use renderhub::api::names::HubId;
use renderhub::api::oci::Digest;
use renderhub::base::metrics::Metrics;
use renderhub::controllers::verify::Verifier;
use renderhub::kubernetes::apply::HubClient;
use renderhub::plan::platform::catalog::CopyRequest;
use renderhub::plan::task::verification::{VerifyRequest, VerifyResult};
use renderhub::renderer::auth::TokenScope;
use renderhub::renderer::deleter::RegistryDeleter;
use renderhub::renderer::error::{PushError, PushStep};
use renderhub::renderer::reader::RegistryReader;
use renderhub_harness::pki::Authority;
use serde_json::json;

use super::push;
use support::registry::{BASIC, Hostile, Reply, acceptor, artifact, plain_http, reference, say};

async fn asked(registry: &Hostile) -> Result<Option<Digest>, PushError> {
    let (transport, auth) = plain_http(registry, TokenScope::Pull);
    let mut reader = RegistryReader::new(transport, auth);
    let tag = reference(registry.address).tag;
    let asked = reader.find(PushStep::Lookup, tag.as_str());
    tokio::time::timeout(Duration::from_secs(30), asked)
        .await
        .expect("it ends")
}

/// Holds: O1, O3, F18.
#[tokio::test]
async fn a_question_sends_no_credential_elsewhere_and_ends_whatever_is_answered() {
    let elsewhere = Hostile::start_at("127.0.0.2", None, |_, _| Some(say(200, &[]))).await;
    let there = format!("http://{}/v2/team-a/shop/manifests/x", elsewhere.address);
    let challenge = |realm: &str| say(401, &[("WWW-Authenticate", format!("Bearer realm=\"{realm}\""))]);
    let page = |body: &str| Reply::Say(200, Vec::new(), body.as_bytes().to_vec());
    let step = PushStep::Lookup;
    let status = |status| Err(PushError::Status { step, status });
    let digest = artifact("a").manifest.digest;
    let named = say(200, &[("Docker-Content-Digest", digest.to_string())]);
    let manifest = r#"{"schemaVersion":2}"#;
    let rows = [
        (
            say(307, &[("Location", there.clone())]),
            Err(PushError::Redirect(step)),
        ),
        (challenge(&there), Err(PushError::Realm)),
        (
            say(401, &[("WWW-Authenticate", "Basic realm=\"r\"".to_owned())]),
            Err(PushError::Unauthorized),
        ),
        (say(403, &[]), Err(PushError::CredentialRequired)),
        (say(503, &[("Retry-After", "86400".to_owned())]), status(503)),
        (Reply::Hang, Err(PushError::Deadline)),
        (Reply::EndlessHeader, Err(PushError::Unreachable)),
        (Reply::Close, Err(PushError::Unreachable)),
        (page("<html>welcome</html>"), Err(PushError::Protocol(step))),
        (page(manifest), Ok(Some(Digest::of(manifest.as_bytes())))),
        (named, Ok(Some(digest))),
        (say(404, &[]), Ok(None)),
    ];
    for (reply, expected) in rows {
        let answer = reply.clone();
        let registry = Hostile::start(move |_, _| Some(answer.clone())).await;
        assert_eq!(asked(&registry).await, expected, "{reply:?}");
    }
    assert!(elsewhere.seen().is_empty() && elsewhere.connections() == 0);
}

/// Holds: C4.
#[tokio::test]
async fn a_chart_that_a_registry_hides_from_strangers_is_found_with_the_credential() {
    let digest = artifact("a").manifest.digest;
    let held = digest.to_string();
    let registry = Hostile::start(move |seen, _| {
        Some(match (seen.target(), seen.authorization()) {
            ("/v2/", None) => say(401, &[("WWW-Authenticate", "Basic realm=\"r\"".to_owned())]),
            ("/v2/", Some(_)) => say(200, &[]),
            (_, Some(BASIC)) => say(200, &[("Docker-Content-Digest", held.clone())]),
            _ => say(404, &[]),
        })
    })
    .await;
    assert_eq!(asked(&registry).await, Ok(Some(digest.clone())));
    let (transport, auth) = plain_http(&registry, TokenScope::Delete);
    let found = RegistryDeleter::new(transport, auth)
        .digest_of(&reference(registry.address).tag)
        .await;
    assert_eq!(found, Ok(Some(digest.clone())));
    let (transport, mut auth) = plain_http(&registry, TokenScope::Pull);
    auth.credential = None;
    let found = RegistryReader::new(transport, auth)
        .find(PushStep::Verify, digest.as_str())
        .await;
    assert_eq!(found, Ok(None), "no credential is asked for where there is none");
}

/// Holds: C4.
#[tokio::test]
async fn a_registry_that_does_not_say_whether_it_wants_the_credential_has_not_said_that_there_is_nothing() {
    let status = |status| {
        Err(PushError::Status {
            step: PushStep::Lookup,
            status,
        })
    };
    for (code, expected) in [
        (503, status(503)),
        (429, status(429)),
        (403, Ok(None)),
        (307, Ok(None)),
        (200, Ok(None)),
    ] {
        let registry =
            Hostile::start(move |seen, _| Some(say(if seen.target() == "/v2/" { code } else { 404 }, &[])))
                .await;
        assert_eq!(asked(&registry).await, expected, "{code}");
    }
}

/// Some registries say to whom they do not know that there is nothing, and ask for a credential only at a write.
///
/// Holds: C4.
#[tokio::test]
async fn what_a_registry_hides_from_strangers_keeps_its_tag() {
    let other = artifact("other").manifest.digest;
    let registry = Hostile::start(move |seen, _| {
        let is_known = seen.authorization() == Some(BASIC);
        match seen.step() {
            "lookup" if is_known => Some(say(200, &[("Docker-Content-Digest", other.to_string())])),
            "lookup" | "blob" if !is_known => Some(say(404, &[])),
            "open" if !is_known => Some(say(401, &[("WWW-Authenticate", "Basic realm=\"r\"".to_owned())])),
            _ => None,
        }
    })
    .await;
    assert_eq!(push(registry.address, "a").await, Err(PushError::TagConflict));
    assert!(!registry.steps().contains(&"manifest"), "{:?}", registry.steps());
}

/// As a renderer does: the registry is in the hub's cluster, and its token service is not.
#[tokio::test]
async fn a_plain_registry_with_an_encrypted_token_service_is_asked_whether_it_has_a_chart() {
    let authority = Authority::new("tokens").unwrap();
    let token = br#"{"token":"t"}"#.to_vec();
    let tokens = Hostile::start_at("127.0.0.1", Some(acceptor(&authority)), move |_, _| {
        Some(Reply::Say(200, Vec::new(), token.clone()))
    })
    .await;
    let realm = format!("https://{}/token", tokens.address);
    let digest = artifact("a").manifest.digest;
    let (challenge, held) = (
        format!("Bearer realm=\"{realm}\",service=\"s\""),
        digest.to_string(),
    );
    let registry = Hostile::start(move |seen, _| {
        Some(match seen.authorization() {
            Some("Bearer t") => say(200, &[("Docker-Content-Digest", held.clone())]),
            _ => say(401, &[("WWW-Authenticate", challenge.clone())]),
        })
    })
    .await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca"}, "data": {"ca.crt": authority.pem()},
    });
    let map = map.to_string().into_bytes();
    let api_server = Hostile::start(move |_, _| {
        let json = ("Content-Type", "application/json".to_owned());
        Some(Reply::Say(200, vec![json], map.clone()))
    })
    .await;
    let config = kube::Config::new(format!("http://{}", api_server.address).parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
    let (metrics, _) = Metrics::new();
    let calls = HubClient::new(client, metrics.clone(), "rendering".to_owned(), hub);
    for (certificates, expected) in [
        (Some(("ca".to_owned(), "ca.crt".to_owned())), VerifyResult::Held),
        (None, VerifyResult::Silent),
    ] {
        let request = VerifyRequest {
            reference: reference(registry.address),
            plain_http: true,
            token_realm: Some(realm.clone()),
            means: CopyRequest {
                secret: None,
                certificates,
            },
            digest: Some(digest.clone()),
            is_required: true,
        };
        let verifier = Verifier::new(calls.clone(), metrics.clone());
        assert_eq!(verifier.verify(&request).await, expected);
    }
}
