//! The gate on a link: what may change something is sent only during a claim, and given up when that ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use http::{Method, Request};
use renderhub::kubernetes::apply::CallError;
use renderhub::kubernetes::write_fence::WriteFence;
use renderhub::remote::client::{RemoteClient, RemoteClientSettings};
use renderhub::remote::limits::RemoteClientLimits;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Http, Reply};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::frames::{DATA, WINDOW, frame, greet, next};
use crate::support::{BOTH, config, failed, get, post, settings, short};
use ::support::claim::claimed;

const WRITES: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

fn link(server: &Hostile, gate: &WriteFence, limits: RemoteClientLimits) -> RemoteClient {
    let settings = RemoteClientSettings {
        fence: gate.clone(),
        ..settings(limits)
    };
    RemoteClient::new(&config(server.address(), server.authority()), &settings).unwrap()
}

fn write(method: &Method, body: &'static str) -> Request<Vec<u8>> {
    let request = Request::builder().method(method).uri("/x");
    request.body(body.as_bytes().to_vec()).unwrap()
}

/// Holds: M5.
#[tokio::test]
async fn without_the_lease_nothing_but_a_get_is_sent() {
    for http in BOTH {
        let server = Hostile::start(http, |_| Reply::whole(200, "{}")).await.unwrap();
        let (gate, renewed) = claimed();
        let link = link(&server, &gate, short());
        renewed.send_replace(Instant::now());
        link.send(get("/x"), None).await.unwrap();
        link.probe().await.unwrap();
        for method in WRITES {
            for body in ["{}", ""] {
                let refused = link.send(write(&method, body), None).await;
                assert_eq!(failed(refused), CallError::NoClaim, "{http:?} {method}");
            }
        }
        assert_eq!(server.counts().len(), 1, "{http:?} {:?}", server.counts());
        renewed.send_replace(Instant::now() + Duration::from_secs(60));
        for method in WRITES {
            link.send(write(&method, "{}"), None).await.unwrap();
        }
        assert_eq!(server.counts()["POST"], 1);
    }
}

/// Holds: M5.
#[tokio::test]
async fn a_write_that_waited_for_its_permit_while_the_lease_ended_is_not_sent() {
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let (gate, renewed) = claimed();
    // One call now, and another each second.
    let limits = RemoteClientLimits {
        qps: 1,
        burst: 1,
        total: Duration::from_secs(30),
        ..short()
    };
    let link = link(&server, &gate, limits);
    link.send(get("/x"), None).await.unwrap();
    renewed.send_replace(Instant::now() + Duration::from_millis(200));
    let before = join_all((0..6).map(|_| link.send(get("/x"), None)));
    let write = async {
        let begin = Instant::now();
        assert_eq!(failed(link.send(post(), None).await), CallError::NoClaim);
        begin.elapsed()
    };
    let (before, waited) = tokio::join!(before, write);
    for answer in before {
        answer.unwrap();
    }
    assert!(
        waited < Duration::from_secs(4),
        "it waited for its turn all the same: {waited:?}"
    );
    // A moment later it would have come.
    link.send(get("/x"), None).await.unwrap();
    assert!(!server.counts().contains_key("POST"), "{:?}", server.counts());
}

/// Holds: M5.
#[tokio::test]
async fn a_write_in_flight_is_cancelled_when_the_lease_ends_and_goes_on_while_it_is_renewed() {
    for http in BOTH {
        let server = Hostile::start(http, |_| Reply::Never).await.unwrap();
        let (gate, renewed) = claimed();
        let patient = RemoteClientLimits {
            total: Duration::from_secs(30),
            ..short()
        };
        let link = link(&server, &gate, patient);
        let begin = Instant::now();
        renewed.send_replace(begin + Duration::from_millis(500));
        let later = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            renewed.send_replace(begin + Duration::from_secs(1));
        };
        let (given_up, ()) = tokio::join!(link.send(post(), None), later);
        assert_eq!(failed(given_up), CallError::NoClaim);
        let took = begin.elapsed();
        assert!(
            took >= Duration::from_secs(1) && took < Duration::from_secs(25),
            "{http:?} {took:?}"
        );
        assert_eq!(server.counts()["POST"], 1);
    }
}

/// Bytes of a body that a client may send before the server says that it may send more.
const FIRST_WINDOW: usize = 65_535;
/// In a frame: nothing comes after it on its stream.
const END_OF_STREAM: u8 = 1;

/// Takes as much of a body as the first window lets through, then all of it once it may go on; whether its end came.
async fn take(mut stream: TlsStream<TcpStream>, (is_full, may_go_on): (&Notify, &Notify)) -> Option<bool> {
    greet(&mut stream).await?;
    let mut taken = 0;
    let id = loop {
        let sent = next(&mut stream).await?;
        if sent.kind == DATA {
            taken += sent.len;
        }
        if taken >= FIRST_WINDOW {
            break sent.stream;
        }
    };
    is_full.notify_one();
    may_go_on.notified().await;
    let more = (1_u32 << 20).to_be_bytes();
    let windows = [frame(WINDOW, 0, 0, &more), frame(WINDOW, 0, id, &more)].concat();
    stream.write_all(&windows).await.ok()?;
    while let Some(sent) = next(&mut stream).await {
        if sent.kind == DATA && sent.flags & END_OF_STREAM != 0 {
            return Some(true);
        }
    }
    Some(false)
}

/// Holds: M5.
#[tokio::test]
async fn what_a_connection_took_of_a_write_with_the_lease_does_not_leave_after_it() {
    let (is_full, may_go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (came, mut whole) = mpsc::unbounded_channel();
    let signals = (Arc::clone(&is_full), Arc::clone(&may_go_on));
    let server = Hostile::raw(Http::Two, move |stream| {
        let (came, (is_full, may_go_on)) = (came.clone(), signals.clone());
        async move { _ = came.send(take(stream, (&is_full, &may_go_on)).await) }
    })
    .await
    .unwrap();
    let (gate, renewed) = claimed();
    let link = link(&server, &gate, short());
    let large = Request::post("/x").body(vec![b'x'; 3 * FIRST_WINDOW]).unwrap();
    let mut call = Box::pin(link.send(large, None));
    tokio::select! {
        answer = &mut call => panic!("the server has not answered: {answer:?}"),
        () = is_full.notified() => {}
    }
    // From here on the call is not polled, but its connection is: as in a process that wakes, where the connection is first.
    renewed.send_replace(Instant::now());
    may_go_on.notify_one();
    let whole = timeout(Duration::from_secs(60), whole.recv()).await;
    assert_eq!(whole.unwrap(), Some(Some(false)), "the write came whole");
    drop(call);
}
