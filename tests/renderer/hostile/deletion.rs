//! What a hostile registry gets out of a deletion: no credential for any other host, and no hang.

use std::time::Duration;

use renderhub::api::oci::Digest;
use renderhub::renderer::auth::TokenScope;
use renderhub::renderer::deleter::{DeleteOutcome, RegistryDeleter};
use renderhub::renderer::error::{PushError, PushStep};

use support::registry::{
    BASIC, Hostile, Reply, Seen, artifact, client, credential, limits, plain_http, reference, say,
};

fn deleter(registry: &Hostile) -> RegistryDeleter {
    let (transport, auth) = plain_http(registry, TokenScope::Delete);
    RegistryDeleter::new(transport, auth)
}

fn digest() -> Digest {
    artifact("a").manifest.digest
}

fn is_delete(seen: &Seen) -> bool {
    seen.method() == "DELETE"
}

#[tokio::test]
async fn a_manifest_is_deleted_by_its_digest_with_a_token_to_read_and_delete_in_its_repository() {
    let registry = Hostile::start(|seen, _| match seen.step() {
        "token" => Some(Reply::Say(200, Vec::new(), br#"{"token":"t0"}"#.to_vec())),
        _ if seen.authorization() != Some("Bearer t0") => {
            let realm = format!("http://{}/token", seen.headers["host"]);
            Some(say(
                401,
                &[("WWW-Authenticate", format!("Bearer realm=\"{realm}\""))],
            ))
        }
        _ => is_delete(seen).then(|| say(202, &[])),
    })
    .await;
    client(registry.address, Some(credential()), limits())
        .push(&reference(registry.address).tag, &artifact("a"))
        .await
        .unwrap();
    let before = registry.seen().len();
    let mut deleter = deleter(&registry);
    let tag = reference(registry.address).tag;
    assert_eq!(deleter.digest_of(&tag).await, Ok(Some(digest())));
    assert_eq!(deleter.delete(&digest()).await, Ok(DeleteOutcome::Deleted));
    assert!(deleter.has_sent_credential());
    let seen = registry.seen().split_off(before);
    let lines: Vec<_> = seen
        .iter()
        .filter(|seen| is_delete(seen))
        .map(|seen| seen.target().to_owned())
        .collect();
    assert_eq!(lines, [format!("/v2/team-a/shop/manifests/{}", digest())]);
    let tokens: Vec<_> = seen.iter().filter(|seen| seen.step() == "token").collect();
    assert_eq!((tokens.len(), tokens[0].authorization()), (1, Some(BASIC)));
    assert!(
        tokens[0]
            .target()
            .ends_with("scope=repository%3Ateam-a%2Fshop%3Apull%2Cdelete")
    );
}

/// Holds: O1, O3, F14.
#[tokio::test]
async fn a_deletion_sends_no_credential_elsewhere_and_ends_whatever_is_answered() {
    let elsewhere = Hostile::start_at("127.0.0.2", None, |_, _| Some(say(202, &[]))).await;
    let there = format!("http://{}/v2/team-a/shop/manifests/x", elsewhere.address);
    let challenge = |realm: &str| say(401, &[("WWW-Authenticate", format!("Bearer realm=\"{realm}\""))]);
    let status = |status| PushError::Status {
        step: PushStep::Delete,
        status,
    };
    let rows = [
        (
            say(307, &[("Location", there.clone())]),
            PushError::Redirect(PushStep::Delete),
        ),
        (
            say(302, &[("Location", there.clone())]),
            PushError::Redirect(PushStep::Delete),
        ),
        (challenge(&there), PushError::Realm),
        (
            say(401, &[("WWW-Authenticate", "Basic realm=\"r\"".to_owned())]),
            PushError::Unauthorized,
        ),
        (say(401, &[]), PushError::CredentialRequired),
        (say(403, &[]), PushError::CredentialRequired),
        (say(400, &[]), status(400)),
        (say(405, &[]), status(405)),
        (say(503, &[("Retry-After", "86400".to_owned())]), status(503)),
        (Reply::Hang, PushError::Deadline),
        (Reply::EndlessHeader, PushError::Unreachable),
        (Reply::Close, PushError::Unreachable),
    ];
    for (reply, expected) in rows {
        let answer = reply.clone();
        let registry = Hostile::start(move |_, _| Some(answer.clone())).await;
        let mut deleter = deleter(&registry);
        let found = tokio::time::timeout(Duration::from_secs(30), deleter.delete(&digest())).await;
        assert_eq!(found.expect("it ends"), Err(expected), "{reply:?}");
    }
    // Where a success says that the manifest is, nothing is looked for.
    let registry = Hostile::start(move |_, _| Some(say(202, &[("Location", there.clone())]))).await;
    let found = deleter(&registry).delete(&digest()).await;
    assert_eq!(found, Ok(DeleteOutcome::Deleted));
    assert!(elsewhere.seen().is_empty() && elsewhere.connections() == 0);
}

#[tokio::test]
async fn a_registry_that_answers_no_head_is_asked_for_the_manifest() {
    let tag = reference("127.0.0.1:1".parse().unwrap()).tag;
    for (body, expected) in [(Some("{}"), Some(Digest::of(b"{}"))), (None, None)] {
        let registry = Hostile::start(move |seen, _| {
            Some(match (seen.method(), body) {
                ("HEAD", _) => say(405, &[]),
                (_, Some(body)) => Reply::Say(200, Vec::new(), body.as_bytes().to_vec()),
                (_, None) => say(404, &[]),
            })
        })
        .await;
        assert_eq!(deleter(&registry).digest_of(&tag).await, Ok(expected));
    }
    let registry = Hostile::start(|seen, _| is_delete(seen).then(|| say(404, &[]))).await;
    assert_eq!(deleter(&registry).digest_of(&tag).await, Ok(None));
    assert_eq!(
        deleter(&registry).delete(&digest()).await,
        Ok(DeleteOutcome::Absent)
    );
}
