//! HTTP/2 as no server should send it: frames that end, reset, flood or never finish.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use renderhub::kubernetes::apply::{CallError, TransportStage};
use renderhub::remote::client::WatchEnd;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Http, Reply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::support::{ended, failed, get, link, post, while_others_work};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;

/// A frame as it is sent.
pub fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    let mut out = len[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(body);
    out
}

/// What a client sent: the kind of the frame, its flags, its stream and how long its body is.
pub struct Sent {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub len: usize,
}

/// Begins a connection as a server does; `None` when the client went away.
pub async fn greet(stream: &mut TlsStream<TcpStream>) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok()?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.ok()
}

/// The next frame of the client; `None` when it went away.
pub async fn next(stream: &mut TlsStream<TcpStream>) -> Option<Sent> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let len = usize::try_from(len).unwrap();
    stream.read_exact(&mut vec![0; len]).await.ok()?;
    Some(Sent {
        kind: head[3],
        flags: head[4],
        stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
        len,
    })
}

/// Reads frames until the client opened a stream, whose id it returns, or went away.
async fn opened(stream: &mut TlsStream<TcpStream>, is_first: bool) -> Option<u32> {
    if is_first {
        greet(stream).await?;
    }
    loop {
        let sent = next(stream).await?;
        if sent.kind == HEADERS {
            return Some(sent.stream);
        }
    }
}

/// What a server does about each stream that a client opens: frames that it sends once, or again and again.
struct Trick {
    what: &'static str,
    once: fn(u32) -> Vec<u8>,
    again: fn(u32) -> Vec<u8>,
    expected: &'static [CallError],
}

fn none(_: u32) -> Vec<u8> {
    Vec::new()
}

const BROKEN: &[CallError] = &[
    CallError::Transport(TransportStage::Send),
    CallError::Transport(TransportStage::Body),
];
/// Either is right: the flood is noticed, or nothing of it is an answer.
const FLOODED: &[CallError] = &[
    CallError::Transport(TransportStage::Send),
    CallError::Transport(TransportStage::Body),
    CallError::Timeout,
];

fn tricks() -> Vec<Trick> {
    let trick = |what, once, again, expected| Trick {
        what,
        once,
        again,
        expected,
    };
    vec![
        trick(
            "the stream is reset",
            |s| frame(RESET, 0, s, &[0, 0, 0, 2]),
            none,
            BROKEN,
        ),
        trick(
            "the stream is refused",
            |s| frame(RESET, 0, s, &[0, 0, 0, 7]),
            none,
            BROKEN,
        ),
        trick(
            "the connection goes away",
            |_| frame(GOAWAY, 0, 0, &[0; 8]),
            none,
            BROKEN,
        ),
        trick(
            "the connection goes away in anger",
            |_| frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 11]),
            none,
            BROKEN,
        ),
        trick(
            "a frame is too long",
            |s| frame(DATA, 0, s, &[0; 20_000]),
            none,
            BROKEN,
        ),
        trick(
            "a frame is on no stream",
            |_| frame(DATA, 0, 9_999, &[0; 10]),
            none,
            BROKEN,
        ),
        trick(
            "a push is promised",
            |s| frame(PUSH, 4, s, &[0, 0, 0, 2, 0x88]),
            none,
            BROKEN,
        ),
        trick(
            "the window overflows",
            |_| frame(WINDOW, 0, 0, &[0x7f, 255, 255, 255]),
            none,
            BROKEN,
        ),
        trick(
            "headers never end",
            |s| frame(HEADERS, 0, s, &[0x88]),
            |s| frame(CONTINUATION, 0, s, &[0; 16_384]),
            BROKEN,
        ),
        trick(
            "empty headers never end",
            |s| frame(HEADERS, 0, s, &[0x88]),
            |s| frame(CONTINUATION, 0, s, &[]),
            FLOODED,
        ),
        trick("pings", none, |_| frame(PING, 0, 0, &[1; 8]), FLOODED),
        trick(
            "settings",
            none,
            |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]),
            FLOODED,
        ),
        trick("resets", none, |s| frame(RESET, 0, s, &[0, 0, 0, 8]), FLOODED),
        trick("windows", none, |s| frame(WINDOW, 0, s, &[0, 0, 0, 1]), FLOODED),
    ]
}

/// Sends what the trick says; 1,000 frames at a time, so that it is a flood.
async fn play(trick: &Trick, stream: &mut TlsStream<TcpStream>, posts: &AtomicUsize) -> Option<()> {
    let mut is_first = true;
    loop {
        let id = opened(stream, is_first).await?;
        is_first = false;
        posts.fetch_add(1, Ordering::Relaxed);
        stream.write_all(&(trick.once)(id)).await.ok()?;
        let flood = (trick.again)(id).repeat(if (trick.again)(id).len() > 1_000 {
            10
        } else {
            1_000
        });
        while !flood.is_empty() {
            stream.write_all(&flood).await.ok()?;
            tokio::task::yield_now().await;
        }
        stream.flush().await.ok()?;
    }
}

/// Holds: H9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_break_the_rules_end_the_call_and_nothing_else() {
    for trick in tricks() {
        let (what, expected) = (trick.what, trick.expected);
        let (trick, opened) = (Arc::new(trick), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&opened);
        let server = Hostile::raw(Http::Two, move |mut stream| {
            let (trick, count) = (Arc::clone(&trick), Arc::clone(&count));
            async move {
                _ = play(&trick, &mut stream, &count).await;
            }
        })
        .await
        .unwrap();
        let link = link(&server);
        let begin = Instant::now();
        let error = while_others_work(async { failed(link.send(post(), None).await) }).await;
        assert!(expected.contains(&error), "{what}: {error:?}");
        assert_eq!(opened.load(Ordering::Relaxed), 1, "{what}: a write is sent once");
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{what} {:?}",
            begin.elapsed()
        );
        link.close();
        let error = failed(self::link(&server).send(get("/x"), None).await);
        assert!(expected.contains(&error), "{what}: {error:?}");
        assert!(
            opened.load(Ordering::Relaxed) <= 1 + 3,
            "{what}: a read is sent three times at most"
        );
        assert!(
            server.accepted() <= 1 + 3,
            "{what}: {} connections",
            server.accepted()
        );
    }
}

/// Holds: H9.
#[tokio::test]
async fn a_watch_whose_stream_is_reset_is_lost() {
    let server = Hostile::raw(Http::Two, |mut stream| async move {
        let mut is_first = true;
        while let Some(id) = opened(&mut stream, is_first).await {
            // `:status: 200` for whatever is asked; the list is empty, the watch is reset.
            let body = br#"{"metadata": {"resourceVersion": "1"}, "items": []}"#;
            let mut answer = frame(HEADERS, 4, id, &[0x88]);
            if is_first {
                answer.extend(frame(DATA, 1, id, body));
            } else {
                answer.extend(frame(RESET, 0, id, &[0, 0, 0, 8]));
            }
            is_first = false;
            if stream.write_all(&answer).await.is_err() {
                break;
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(ended(&link(&server)).await.1, WatchEnd::Lost);
}

/// Holds: H1.
#[tokio::test]
async fn headers_without_measure_are_not_read() {
    for http in crate::support::BOTH {
        for (count, size) in [(1, 1 << 20), (2_000, 100)] {
            let server = Hostile::start(http, move |_| {
                Reply::Whole(200, vec![("x-canary", "y".repeat(size)); count], "{}".into())
            })
            .await
            .unwrap();
            let error = failed(link(&server).send(post(), None).await);
            assert_eq!(
                error,
                CallError::Transport(TransportStage::Send),
                "{http:?} {count} {size}"
            );
        }
    }
}
