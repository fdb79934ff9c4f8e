//! Calls: late, endless, huge and lying answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::HeaderValue;
use renderhub::kubernetes::apply::{CallError, TransportStage};
use renderhub::remote::client::WatchEnd;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Http, Reply};
use secrecy::SecretString;
use tokio::time::Instant;

use crate::support::{
    BOTH, CANARY, TOKEN, check_silent, failed, get, link, link_with, post, short, while_others_work,
};

/// Holds: H2.
#[tokio::test]
async fn a_server_that_never_answers_is_left_at_the_deadline() {
    for http in BOTH {
        let server = Hostile::start(http, |_| Reply::Never).await.unwrap();
        let link = link(&server);
        let begin = Instant::now();
        let errors = while_others_work(async {
            let (read, write, probe) =
                tokio::join!(link.send(get("/x"), None), link.send(post(), None), link.probe());
            (failed(read), failed(write), failed(probe))
        })
        .await;
        assert_eq!(
            errors,
            (CallError::Timeout, CallError::Timeout, CallError::Timeout)
        );
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{http:?} {:?}",
            begin.elapsed()
        );
        assert_eq!(server.counts()["POST"], 1);
    }
}

/// Holds: H2.
#[tokio::test]
async fn one_byte_at_a_time_reaches_the_deadline_and_a_pause_the_shorter_one() {
    for (pause, limit) in [(100, 3_000), (1_500, 1_000)] {
        for http in BOTH {
            let server = Hostile::start(http, move |_| {
                Reply::parts(stream::unfold((), move |()| async move {
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    Some((Bytes::from_static(b"x"), ()))
                }))
            })
            .await
            .unwrap();
            let begin = Instant::now();
            let error = while_others_work(link(&server).send(get("/x"), None)).await;
            assert_eq!(failed(error), CallError::Timeout);
            let (took, least) = (begin.elapsed(), Duration::from_millis(limit));
            assert!(
                took >= least && took < least + Duration::from_secs(20),
                "{http:?} {pause} {took:?}"
            );
        }
    }
}

/// Holds: H1.
#[tokio::test]
async fn a_body_that_is_told_to_be_too_large_is_not_read() {
    for http in BOTH {
        let server = Hostile::start(http, |_| {
            let headers = vec![("content-length", (400 << 20).to_string())];
            Reply::Parts(200, headers, Box::pin(stream::pending()))
        })
        .await
        .unwrap();
        // A client that waited for the body would report a timeout.
        assert_eq!(
            failed(link(&server).send(get("/x"), None).await),
            CallError::TooLarge
        );
    }
}

/// Holds: H3.
#[tokio::test]
async fn only_a_get_is_repeated_and_no_wait_is_longer_than_the_deadline() {
    for code in [429, 503] {
        for (after, gets) in [("86400", 1), ("0", 3), ("soon", 3)] {
            let server = Hostile::start(Http::Two, move |_| {
                Reply::Whole(code, vec![("retry-after", after.to_owned())], CANARY.into())
            })
            .await
            .unwrap();
            let link = link(&server);
            let begin = Instant::now();
            assert_eq!(failed(link.send(get("/x"), None).await), CallError::Code(code));
            assert_eq!(failed(link.send(post(), None).await), CallError::Code(code));
            let delete = http::Request::delete("/x").body(Vec::new()).unwrap();
            assert_eq!(failed(link.send(delete, None).await), CallError::Code(code));
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
            let counts = server.counts();
            assert_eq!(
                (counts["GET"], counts["POST"], counts["DELETE"]),
                (gets, 1, 1),
                "{code} {after}"
            );
        }
    }
}

/// Holds: H3.
#[tokio::test]
async fn a_server_that_comes_back_in_time_is_asked_again() {
    let (busy, times) = (AtomicUsize::new(0), 2);
    let server = Hostile::start(Http::Two, move |_| {
        if busy.fetch_add(1, Ordering::Relaxed) < times {
            Reply::whole(503, "")
        } else {
            Reply::whole(200, "here")
        }
    })
    .await
    .unwrap();
    assert_eq!(link(&server).send(get("/x"), None).await, Ok(Bytes::from("here")));
    assert_eq!(server.counts()["GET"], 3);
}

/// Holds: H9.
#[tokio::test]
async fn a_redirect_is_an_answer_like_any_other() {
    for http in BOTH {
        let other = Hostile::start(http, |_| Reply::whole(200, "{}")).await.unwrap();
        let to = format!("https://{}/stolen", other.address());
        for code in [301, 302, 303, 307, 308] {
            let to = to.clone();
            let server = Hostile::start(http, move |_| {
                Reply::Whole(code, vec![("location", to.clone())], CANARY.into())
            })
            .await
            .unwrap();
            let link = link(&server);
            assert_eq!(failed(link.send(get("/x"), None).await), CallError::Code(code));
            assert_eq!(failed(link.send(post(), None).await), CallError::Code(code));
            assert_eq!((server.counts()["GET"], server.counts()["POST"]), (1, 1));
        }
        assert_eq!(other.accepted(), 0, "nobody follows it");
    }
}

/// Holds: E3.
#[tokio::test]
async fn of_an_error_only_its_code_and_one_known_word_count() {
    let taken = format!(
        "{{\"message\": \"{}\", \"reason\": \"AlreadyExists\"}}",
        "canary-7f3a"
    );
    let deep = "[".repeat(60_000);
    let long = format!(
        "{{\"reason\": \"AlreadyExists\", \"message\": \"{}\"}}",
        "canary".repeat(20_000)
    );
    let table: [(u16, &str, CallError); 12] = [
        (409, &taken, CallError::AlreadyExists),
        (409, CANARY, CallError::Conflict),
        (
            409,
            "{\"reason\": {\"reason\": \"AlreadyExists\"}}",
            CallError::Conflict,
        ),
        (409, &deep, CallError::Conflict),
        (409, &long, CallError::Conflict),
        (404, &taken, CallError::NotFound),
        (401, CANARY, CallError::Unauthorized),
        (403, CANARY, CallError::Forbidden),
        (422, CANARY, CallError::Invalid),
        (410, CANARY, CallError::Code(410)),
        (500, CANARY, CallError::Code(500)),
        (599, &long, CallError::Code(599)),
    ];
    for http in BOTH {
        for (code, body, expected) in &table {
            let (code, body) = (*code, Bytes::from((*body).to_owned()));
            let server = Hostile::start(http, move |_| {
                Reply::Whole(code, vec![("x-canary-7f3a", "canary".to_owned())], body.clone())
            })
            .await
            .unwrap();
            assert_eq!(
                failed(link(&server).send(post(), None).await),
                *expected,
                "{http:?} {code}"
            );
            assert_eq!(server.counts()["POST"], 1);
        }
    }
}

/// Holds: E3.
#[tokio::test]
async fn an_error_whose_body_never_ends_is_returned_all_the_same() {
    let server = Hostile::start(Http::Two, |_| {
        let parts = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Some((Bytes::from_static(b" "), ()))
        });
        Reply::Parts(403, Vec::new(), Box::pin(parts))
    })
    .await
    .unwrap();
    assert_eq!(
        failed(link(&server).send(post(), None).await),
        CallError::Forbidden
    );
}

#[tokio::test]
async fn all_calls_share_one_connection_and_a_new_token_is_sent_on_it() {
    for http in BOTH {
        let server = Hostile::start(http, |_| Reply::whole(200, "{}")).await.unwrap();
        let link = link(&server);
        let user = HeaderValue::from_static("system:serviceaccount:team-a:deployer");
        link.send(get("/a"), None).await.unwrap();
        link.send(get("/b"), Some(&user)).await.unwrap();
        link.set_token(&SecretString::from("another-token")).unwrap();
        link.clone().send(post(), None).await.unwrap();
        link.probe().await.unwrap();
        assert_eq!((server.accepted(), link.connections()), (1, 1), "{http:?}");
        let said = |name: &str| {
            let of = |asked: &renderhub_harness::hostile::Asked| {
                asked
                    .headers
                    .get(name)
                    .map(|value| value.to_str().unwrap().to_owned())
            };
            server.asked().iter().map(of).collect::<Vec<_>>()
        };
        let (old, new) = (
            Some(format!("Bearer {TOKEN}")),
            Some("Bearer another-token".to_owned()),
        );
        assert_eq!(said("authorization"), [old.clone(), old, new.clone(), new]);
        let user = Some("system:serviceaccount:team-a:deployer".to_owned());
        assert_eq!(said("impersonate-user"), [None, user, None, None]);
        assert_eq!(said("accept-encoding"), [const { None::<String> }; 4]);
        check_silent(&link, "");
    }
}

/// Holds: H2.
#[tokio::test]
async fn calls_wait_for_their_turn_and_no_longer_than_they_may() {
    let server = Hostile::start(Http::Two, |asked| match asked.target.as_str() {
        "/version" => Reply::whole(200, "{}"),
        _ => Reply::Never,
    })
    .await
    .unwrap();
    let mut limits = short();
    (limits.in_flight, limits.total) = (4, Duration::from_secs(4));
    limits.probe = Duration::from_secs(3);
    let link = link_with(&server, limits);
    let calls = futures::future::join_all((0..12).map(|_| link.send(get("/hang"), None)));
    let probes = async {
        for _ in 0..10 {
            link.probe().await.expect("a probe waits for nobody");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Before the first of them is cancelled, and another one may be sent.
        let asked = server.asked();
        asked.iter().filter(|asked| asked.target == "/hang").count()
    };
    let begin = Instant::now();
    let (calls, hung) = tokio::join!(calls, probes);
    assert!(
        calls
            .into_iter()
            .all(|answer| failed(answer) == CallError::Timeout)
    );
    assert!(
        begin.elapsed() < Duration::from_secs(8),
        "the wait counts: {:?}",
        begin.elapsed()
    );
    assert_eq!(hung, 4, "no more at a time");
}

#[tokio::test]
async fn a_link_that_is_cut_ends_what_runs_at_once() {
    for http in BOTH {
        let server = Hostile::start(http, |asked| match asked.target.as_str() {
            "/hang" => Reply::Never,
            _ => Reply::parts(stream::pending()),
        })
        .await
        .unwrap();
        let link = link(&server);
        let mut watch = link.watch(get("/watch"), None).await.unwrap();
        let other = link.clone();
        let (call, line, ()) = tokio::time::timeout(Duration::from_secs(10), async {
            tokio::join!(
                link.send(get("/hang"), None),
                futures::StreamExt::next(&mut watch),
                async {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    other.close();
                }
            )
        })
        .await
        .expect("it goes on");
        // Left alone, the call would end for lack of time, and later.
        assert_eq!(failed(call), CallError::Transport(TransportStage::Canceled));
        assert_eq!(line.unwrap(), Err(WatchEnd::Lost));
        let after = failed(link.probe().await);
        assert_eq!(after, CallError::Transport(TransportStage::Canceled), "for good");
    }
}
