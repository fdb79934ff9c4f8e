//! What a hostile registry gets out of a question for a chart: no credential for any other host, no hang, and no belief.

use std::time::Duration;

use renderhub::api::oci::Digest;
use renderhub::renderer::auth::TokenScope;
use renderhub::renderer::error::{PushError, PushStep};
use renderhub::renderer::reader::RegistryReader;

use support::registry::{Hostile, Reply, artifact, plain_http, reference, say};

async fn asked(registry: &Hostile) -> Result<Option<Digest>, PushError> {
    let (transport, auth) = plain_http(registry, TokenScope::Pull);
    let mut reader = RegistryReader::new(transport, auth);
    let tag = reference(registry.address).tag;
    let asked = reader.digest_with_get(PushStep::Lookup, tag.as_str());
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
