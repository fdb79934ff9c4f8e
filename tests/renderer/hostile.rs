//! What a hostile registry gets out of a push: no credential and no content for any other host, no success by lying, no hang.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "this is all test code, and its tables are long"
)]

#[path = "hostile/deletion.rs"]
mod deletion;
#[path = "hostile/lookup.rs"]
mod lookup;
#[path = "hostile/matrix.rs"]
mod matrix;

use std::net::SocketAddr;

use renderhub::api::oci::Digest;
use renderhub::renderer::error::{PushError, PushStep};
use renderhub::renderer::registry::PushOutcome;
use renderhub::renderer::transport::TransportLimits;
use support::registry::{
    BASIC, Hostile, PASSWORD, Reply, Seen, artifact, client, credential, limits, reference, say,
};

async fn push(address: SocketAddr, content: &str) -> Result<PushOutcome, PushError> {
    let tag = reference(address).tag;
    client(address, Some(credential()), limits())
        .push(&tag, &artifact(content))
        .await
}

fn basic(seen: &Seen) -> Option<Reply> {
    let challenge = [("WWW-Authenticate", "Basic realm=\"x\"".to_owned())];
    (seen.authorization() != Some(BASIC)).then(|| say(401, &challenge))
}

/// Holds: C8, O6.
#[tokio::test]
async fn a_push_is_seen_once_and_found_again() {
    let registry = Hostile::honest().await;
    assert_eq!(push(registry.address, "a").await, Ok(PushOutcome::Uploaded));
    let expected = [
        "lookup", "blob", "open", "upload", "blob", "open", "upload", "manifest", "verify", "lookup",
    ];
    assert_eq!(registry.steps(), expected);
    assert_eq!(push(registry.address, "a").await, Ok(PushOutcome::AlreadyExists));
    assert_eq!(
        registry.steps().len(),
        expected.len() + 1,
        "one look-up is all a second push costs"
    );
    assert_eq!(push(registry.address, "b").await, Err(PushError::TagConflict));
    assert_eq!(
        registry.steps().len(),
        expected.len() + 2,
        "nothing is uploaded to a tag that is taken"
    );
    for seen in registry.seen() {
        assert!(
            !seen.target().contains("mount") && !seen.target().contains("from"),
            "{}",
            seen.line
        );
        assert_eq!(seen.authorization(), None, "nobody asked for the credential");
    }
}

#[tokio::test]
async fn a_blob_that_is_there_is_not_sent_again() {
    let registry = Hostile::start(|seen, _| (seen.step() == "blob").then(|| say(200, &[]))).await;
    assert_eq!(push(registry.address, "a").await, Ok(PushOutcome::Uploaded));
    assert_eq!(
        registry.steps(),
        ["lookup", "blob", "blob", "manifest", "verify", "lookup"]
    );
}

#[tokio::test]
async fn challenges_nobody_can_answer() {
    for challenge in [
        "Digest realm=\"x\"",
        "Negotiate",
        "",
        "Bearer",
        "x y z=",
        "Basic realm=\"",
        &"Basic a=b, ".repeat(5000),
    ] {
        let challenge = challenge.to_owned();
        let registry =
            Hostile::start(move |_, _| Some(say(401, &[("WWW-Authenticate", challenge.clone())]))).await;
        let error = push(registry.address, "a").await.unwrap_err();
        assert!(
            [
                PushError::CredentialRequired,
                PushError::Realm,
                PushError::Unreachable
            ]
            .contains(&error),
            "{error}"
        );
        assert!(registry.seen().iter().all(|seen| seen.authorization().is_none()));
    }
}

#[tokio::test]
async fn a_credential_that_is_not_accepted_is_not_sent_again() {
    let refused = [("WWW-Authenticate", "Basic realm=\"x\"".to_owned())];
    let registry = Hostile::start(move |_, _| Some(say(401, &refused))).await;
    assert_eq!(push(registry.address, "a").await, Err(PushError::Unauthorized));
    assert_eq!(registry.seen().len(), 2);
}

#[tokio::test]
async fn without_a_credential_none_is_sent() {
    let registry = Hostile::start(|seen, _| basic(seen)).await;
    let tag = reference(registry.address).tag;
    let outcome = client(registry.address, None, limits())
        .push(&tag, &artifact("a"))
        .await;
    assert_eq!(outcome, Err(PushError::CredentialRequired));
    assert!(registry.seen().iter().all(|seen| seen.authorization().is_none()));
}

/// A web server that answers everything with a page is no registry, so its tag is not taken either.
///
/// Holds: B26.
#[tokio::test]
async fn a_page_under_the_tag_is_no_manifest() {
    for body in ["<html></html>", "{}", "[1]", ""] {
        let server = Hostile::start(|_, _| Some(Reply::Say(200, Vec::new(), body.as_bytes().to_vec()))).await;
        let error = push(server.address, "a").await.unwrap_err();
        assert_eq!(error, PushError::Protocol(PushStep::Lookup), "{body}");
    }
}

/// Whether a credential was sent is known for each kind of failure, since the hub's message to a tenant says more where it was.
///
/// Holds: B26.
#[tokio::test]
async fn a_push_knows_whether_its_credential_was_sent() {
    let basic = || [("WWW-Authenticate", "Basic realm=\"x\"".to_owned())];
    for (status, is_challenged, error, is_sent) in [
        (401, true, PushError::Unauthorized, true),
        (403, true, PushError::Forbidden, true),
        (401, false, PushError::CredentialRequired, false),
        (403, false, PushError::CredentialRequired, false),
        (302, false, PushError::Redirect(PushStep::Lookup), false),
        (
            400,
            true,
            PushError::Status {
                step: PushStep::Lookup,
                status: 400,
            },
            true,
        ),
    ] {
        let server = Hostile::start(move |seen, _| {
            Some(if is_challenged && seen.authorization().is_none() {
                say(401, &basic())
            } else {
                say(status, &[])
            })
        })
        .await;
        let mut client = client(server.address, Some(credential()), limits());
        let tag = reference(server.address).tag;
        assert_eq!(client.push(&tag, &artifact("a")).await, Err(error), "{status}");
        assert_eq!(client.has_sent_credential(), is_sent, "{status} {is_challenged}");
        let was_sent = server.seen().iter().any(|seen| seen.authorization().is_some());
        assert_eq!(was_sent, is_sent);
    }
}

/// A registry with a token service of its own; uploading the manifest needs the token of number `last`.
async fn with_tokens(last: usize) -> Hostile {
    Hostile::start(move |seen, before| {
        let host = &seen.headers["host"];
        if seen.step() == "token" {
            let body = format!(r#"{{"token":"t{before}","expires_in":60}}"#);
            return Some(Reply::Say(200, Vec::new(), body.into_bytes()));
        }
        let challenge =
            format!("Bearer realm=\"http://{host}/token\",service=\"reg\",scope=\"repository:other:*\"");
        let expired = seen.step() == "manifest" && seen.authorization() != Some(&format!("Bearer t{last}"));
        (expired || seen.authorization().is_none()).then(|| say(401, &[("WWW-Authenticate", challenge)]))
    })
    .await
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_per_call() {
    let tokens = |registry: &Hostile| registry.steps().iter().filter(|step| **step == "token").count();
    let renewed = with_tokens(1).await;
    assert_eq!(push(renewed.address, "a").await, Ok(PushOutcome::Uploaded));
    assert_eq!(tokens(&renewed), 2);
    let never = with_tokens(7).await;
    assert_eq!(push(never.address, "a").await, Err(PushError::Unauthorized));
    assert_eq!(tokens(&never), 2);
}

/// Whatever scope a challenge asks for, the token is for one repository.
///
/// Holds: O1, R6.
#[tokio::test]
async fn the_token_service_gets_the_credential_and_the_registry_the_token() {
    let registry = with_tokens(0).await;
    assert_eq!(push(registry.address, "a").await, Ok(PushOutcome::Uploaded));
    for seen in registry.seen() {
        if seen.step() == "token" {
            assert_eq!(seen.authorization(), Some(BASIC));
            assert_eq!(
                seen.target(),
                "/token?service=reg&scope=repository%3Ateam-a%2Fshop%3Apull%2Cpush"
            );
        } else {
            assert!(
                seen.authorization().is_none_or(|one| one == "Bearer t0"),
                "{seen:?}"
            );
        }
    }
    assert_eq!(
        registry.steps().iter().filter(|step| **step == "token").count(),
        1
    );
}

#[tokio::test]
async fn anonymous_tokens_need_no_credential() {
    let registry = with_tokens(0).await;
    let tag = reference(registry.address).tag;
    let outcome = client(registry.address, None, limits())
        .push(&tag, &artifact("a"))
        .await;
    assert_eq!(outcome, Ok(PushOutcome::Uploaded));
    let token = registry
        .seen()
        .into_iter()
        .find(|seen| seen.step() == "token")
        .unwrap();
    assert_eq!(token.authorization(), None);
}

/// Holds: C4, O6.
#[tokio::test]
async fn lies_about_digests_are_found() {
    let other = Digest::of(b"other").to_string();
    let lie = move |step: &'static str, status: u16| {
        let other = other.clone();
        Hostile::start(move |seen, _| {
            (seen.step() == step).then(|| say(status, &[("Docker-Content-Digest", other.clone())]))
        })
    };
    assert_eq!(
        push(lie("lookup", 200).await.address, "a").await,
        Err(PushError::TagConflict)
    );
    assert_eq!(
        push(lie("manifest", 201).await.address, "a").await,
        Err(PushError::DigestMismatch)
    );
    assert_eq!(
        push(lie("verify", 200).await.address, "a").await,
        Err(PushError::DigestMismatch)
    );
    assert_eq!(
        push(lie("verify", 404).await.address, "a").await,
        Err(PushError::DigestMismatch)
    );
}

/// Holds: C4.
#[tokio::test]
async fn a_tag_that_another_pusher_took_meanwhile_is_a_conflict() {
    // Both found the tag free; the other one's manifest came later, so this one is there, but not under the tag.
    let other = Digest::of(b"other").to_string();
    let taken = Hostile::start(move |seen, before| {
        let is_check = seen.step() == "lookup" && before > 0;
        is_check.then(|| say(200, &[("Docker-Content-Digest", other.clone())]))
    })
    .await;
    assert_eq!(push(taken.address, "a").await, Err(PushError::TagConflict));
    assert_eq!(taken.steps().last(), Some(&"lookup"), "the tag is asked last");
    let gone = Hostile::start(|seen, _| (seen.step() == "lookup").then(|| say(404, &[]))).await;
    assert_eq!(push(gone.address, "a").await, Err(PushError::TagConflict));
    let broken =
        Hostile::start(|seen, before| (seen.step() == "lookup" && before > 0).then(|| say(400, &[]))).await;
    let unknown = PushError::Status {
        step: PushStep::Verify,
        status: 400,
    };
    assert_eq!(
        push(broken.address, "a").await,
        Err(unknown),
        "an error is no answer"
    );
}

/// Holds: O6.
#[tokio::test]
async fn without_a_digest_header_the_manifest_itself_counts() {
    let honest = Hostile::start(|seen, _| {
        let manifest = artifact("a").manifest.bytes.to_vec();
        match seen.step() {
            "verify" => Some(say(200, &[("Docker-Content-Digest", "sha512:0".to_owned())])),
            "fetch" => Some(Reply::Say(200, Vec::new(), manifest)),
            _ => None,
        }
    })
    .await;
    assert_eq!(push(honest.address, "a").await, Ok(PushOutcome::Uploaded));
    let lying = Hostile::start(|seen, _| match seen.step() {
        "verify" => Some(say(200, &[])),
        "fetch" => Some(Reply::Say(200, Vec::new(), b"other".to_vec())),
        _ => None,
    })
    .await;
    assert_eq!(push(lying.address, "a").await, Err(PushError::DigestMismatch));
}

/// Holds: C4.
#[tokio::test]
async fn an_error_is_never_an_absence() {
    for status in [
        201, 202, 204, 400, 402, 405, 410, 418, 429, 451, 500, 501, 502, 503, 504,
    ] {
        let registry = Hostile::start(move |_, _| Some(say(status, &[]))).await;
        let step = PushStep::Lookup;
        assert_eq!(
            push(registry.address, "a").await,
            Err(PushError::Status { step, status })
        );
        assert!(
            registry.steps().iter().all(|step| *step == "lookup"),
            "{status}: nothing else is asked"
        );
    }
    let registry = Hostile::start(|_, _| Some(say(403, &[]))).await;
    assert_eq!(
        push(registry.address, "a").await,
        Err(PushError::CredentialRequired)
    );
}

#[tokio::test]
async fn each_step_has_its_status() {
    for (name, step, status) in [
        ("blob", PushStep::Blob, 204),
        ("open", PushStep::Open, 201),
        ("upload", PushStep::Upload, 202),
        ("manifest", PushStep::Manifest, 200),
        ("manifest", PushStep::Manifest, 409),
        ("verify", PushStep::Verify, 400),
    ] {
        let registry = Hostile::start(move |seen, _| (seen.step() == name).then(|| say(status, &[]))).await;
        assert_eq!(
            push(registry.address, "a").await,
            Err(PushError::Status { step, status }),
            "{name}"
        );
    }
    let registry = Hostile::start(|seen, _| (seen.step() == "open").then(|| say(202, &[]))).await;
    assert_eq!(
        push(registry.address, "a").await,
        Err(PushError::Protocol(PushStep::Open)),
        "no Location"
    );
}

#[tokio::test]
async fn who_never_answers_is_left() {
    for step in ["lookup", "upload", "verify"] {
        let registry = Hostile::start(move |seen, _| (seen.step() == step).then_some(Reply::Hang)).await;
        assert_eq!(
            push(registry.address, "a").await,
            Err(PushError::Deadline),
            "{step}"
        );
    }
    // The total holds even where each call is within its own limit.
    let registry = Hostile::start(|_, _| Some(Reply::Hang)).await;
    let total = TransportLimits {
        total: limits().call / 10,
        call: TransportLimits::default().call,
        ..limits()
    };
    let tag = reference(registry.address).tag;
    let outcome = client(registry.address, None, total)
        .push(&tag, &artifact("a"))
        .await;
    assert_eq!(outcome, Err(PushError::Deadline));
}

/// Holds: E3.
#[tokio::test]
async fn bodies_and_headers_without_end_are_cut() {
    let token = Hostile::start(|seen, _| {
        let challenge = format!("Bearer realm=\"http://{}/token\"", seen.headers["host"]);
        Some(match seen.step() {
            "token" => Reply::Endless(200),
            _ => say(401, &[("WWW-Authenticate", challenge)]),
        })
    })
    .await;
    assert_eq!(
        push(token.address, "a").await,
        Err(PushError::Protocol(PushStep::Token))
    );
    let manifest = Hostile::start(|seen, _| match seen.step() {
        "verify" => Some(say(200, &[])),
        "fetch" => Some(Reply::Endless(200)),
        _ => None,
    })
    .await;
    assert_eq!(
        push(manifest.address, "a").await,
        Err(PushError::Protocol(PushStep::Verify))
    );
    let error = Hostile::start(|_, _| Some(Reply::Endless(400))).await;
    let expected = PushError::Status {
        step: PushStep::Lookup,
        status: 400,
    };
    assert_eq!(
        push(error.address, "a").await,
        Err(expected),
        "the body of an error is not read"
    );
    let header = Hostile::start(|_, _| Some(Reply::EndlessHeader)).await;
    assert_eq!(push(header.address, "a").await, Err(PushError::Unreachable));
}

#[tokio::test]
async fn a_busy_registry_is_asked_again_but_not_for_ever() {
    let wait = |seconds: &str| vec![("Retry-After", seconds.to_owned())];
    let recovers = Hostile::start(move |_, before| (before < 2).then(|| say(429, &wait("0")))).await;
    assert_eq!(push(recovers.address, "a").await, Ok(PushOutcome::Uploaded));
    for status in [429, 503] {
        let busy = Hostile::start(move |_, _| Some(say(status, &wait("86400")))).await;
        let step = PushStep::Lookup;
        assert_eq!(
            push(busy.address, "a").await,
            Err(PushError::Status { step, status })
        );
        assert_eq!(busy.seen().len(), 4, "a day is cut to the longest pause");
    }
    let busy = Hostile::start(move |_, _| Some(say(429, &wait("60")))).await;
    let no_time = TransportLimits {
        total: limits().call,
        ..TransportLimits::default()
    };
    let tag = reference(busy.address).tag;
    let outcome = client(busy.address, None, no_time)
        .push(&tag, &artifact("a"))
        .await;
    assert_eq!(
        outcome,
        Err(PushError::Status {
            step: PushStep::Lookup,
            status: 429
        })
    );
    assert_eq!(busy.seen().len(), 1, "a pause beyond the deadline is not begun");
}

#[tokio::test]
async fn a_broken_connection_is_tried_again_and_a_closed_port_reported() {
    let flaky = Hostile::start(|_, before| (before == 0).then_some(Reply::Close)).await;
    assert_eq!(push(flaky.address, "a").await, Ok(PushOutcome::Uploaded));
    let gone = Hostile::honest().await.address;
    assert_eq!(push(gone, "a").await, Err(PushError::Unreachable));
}

/// Holds: E3, E4.
#[tokio::test]
async fn no_error_repeats_what_the_registry_said_or_the_credential() {
    let body = b"canary-body \x1b[31m".to_vec();
    for status in [400, 401, 403, 404, 409, 418, 429, 500] {
        for step in ["lookup", "open", "upload", "manifest", "verify"] {
            let body = body.clone();
            let registry = Hostile::start(move |seen, _| {
                let headers = vec![
                    ("Location", "canary-location".to_owned()),
                    ("X-Canary", "canary".to_owned()),
                ];
                basic(seen)
                    .or_else(|| (seen.step() == step).then(|| Reply::Say(status, headers, body.clone())))
            })
            .await;
            if let Err(error) = push(registry.address, "a").await {
                let text = format!("{error} {error:?}");
                assert!(!text.contains("canary") && !text.contains(PASSWORD), "{text}");
            }
        }
    }
}
