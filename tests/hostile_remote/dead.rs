//! Peers that are gone without a close: noticed in time, with the times of production, on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use renderhub::kubernetes::apply::CallError;
use renderhub::plan::remote::address::AddressPolicy;
use renderhub::remote::client::{RemoteClient, WatchEnd};
use renderhub::remote::limits::RemoteClientLimits;
use renderhub_harness::hostile::{Http, Reply};
use renderhub_harness::{Hostile, Islet};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::support::{BOTH, config, failed, get, settings, while_others_work};

/// A watch that says one line and then nothing, and calls that are answered.
fn quiet(asked: &renderhub_harness::hostile::Asked) -> Reply {
    if asked.target.contains("watch") {
        return Reply::parts(stream::iter([Bytes::from_static(b"{}\n")]).chain(stream::pending()));
    }
    Reply::whole(200, "{}")
}

fn link_at(address: SocketAddr, server: &Hostile) -> RemoteClient {
    let mut settings = settings(RemoteClientLimits::default());
    let allowed = ["127.0.0.0/8", "198.18.0.0/15"].map(|net| net.parse().unwrap());
    settings.guard = Arc::new(AddressPolicy {
        allowed: allowed.into(),
        denied: Vec::new(),
    });
    RemoteClient::new(&config(address, server.authority()), &settings).unwrap()
}

/// Opens a quiet watch, lets `end` take the peer away, and returns how long it took to notice.
async fn notice(link: &RemoteClient, end: impl FnOnce()) -> Duration {
    let mut lines = link.watch(get("/watch"), None).await.unwrap();
    assert_eq!(lines.next().await, Some(Ok(Bytes::from_static(b"{}"))));
    end();
    let begin = Instant::now();
    let limit = Duration::from_secs(90);
    let line = while_others_work(tokio::time::timeout(limit, lines.next())).await;
    assert_eq!(line.expect("it was never noticed"), Some(Err(WatchEnd::Lost)));
    begin.elapsed()
}

#[tokio::test]
async fn a_network_that_drops_everything_is_noticed_in_20_seconds_by_a_quiet_watch() {
    let check = async |http| {
        let islet = Islet::start().await.unwrap();
        let server = Hostile::on(islet.listen().unwrap(), http, quiet).unwrap();
        let took = notice(&link_at(server.address(), &server), || islet.cut().unwrap()).await;
        assert!(
            took > Duration::from_secs(3) && took <= Duration::from_secs(20),
            "{http:?} {took:?}"
        );
    };
    tokio::join!(check(Http::One), check(Http::Two));
}

/// Holds: H2.
#[tokio::test]
async fn a_server_whose_packets_are_dropped_is_no_longer_waited_for_than_a_connection_may_take() {
    let islet = Islet::start().await.unwrap();
    let server = Hostile::on(islet.listen().unwrap(), Http::Two, quiet).unwrap();
    islet.cut().unwrap();
    let link = link_at(server.address(), &server);
    let begin = Instant::now();
    let (probe, write) =
        while_others_work(async { tokio::join!(link.probe(), link.send(crate::support::post(), None)) })
            .await;
    assert_eq!(failed(probe), CallError::Timeout);
    assert_eq!(failed(write), CallError::Timeout);
    assert!(begin.elapsed() < Duration::from_secs(17), "{:?}", begin.elapsed());
    assert_eq!(server.accepted(), 0);
}

/// How the box in the middle treats a connection from some moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    /// It forwards.
    Fine,
    /// It takes everything and forwards nothing.
    Swallows,
    /// It reads nothing any more, as a process that is stopped.
    Frozen,
}

/// A box between a link and its server.
struct Middlebox {
    address: SocketAddr,
    mood: watch::Sender<Mood>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Middlebox {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Middlebox {
    async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mood, watched) = watch::channel(Mood::Fine);
        let task = tokio::spawn(async move {
            let mut held = tokio::task::JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(server).await.unwrap();
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                held.spawn(forward(near_in, far_out, watched.clone()));
                held.spawn(forward(far_in, near_out, watched.clone()));
            }
        });
        Self { address, mood, task }
    }
}

async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut mood: watch::Receiver<Mood>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let now = *mood.borrow_and_update();
        if now == Mood::Frozen {
            std::future::pending::<()>().await;
        }
        tokio::select! {
            _ = mood.changed() => {}
            read = from.read(&mut buffer) => match read {
                Ok(len) if len > 0 => {
                    if now == Mood::Fine && to.write_all(&buffer[..len]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

#[tokio::test]
async fn a_peer_that_is_frozen_is_noticed_in_60_seconds_by_a_quiet_watch() {
    let check = async |http, mood| {
        let server = Hostile::start(http, quiet).await.unwrap();
        let middle = Middlebox::before(server.address()).await;
        let took = notice(&link_at(middle.address, &server), || {
            middle.mood.send(mood).unwrap();
        })
        .await;
        let most = if http == Http::Two { 20 } else { 60 };
        assert!(
            took > Duration::from_secs(3) && took <= Duration::from_secs(most),
            "{http:?} {mood:?} {took:?}"
        );
    };
    tokio::join!(
        check(Http::One, Mood::Swallows),
        check(Http::One, Mood::Frozen),
        check(Http::Two, Mood::Swallows),
        check(Http::Two, Mood::Frozen),
    );
}

#[tokio::test]
async fn a_peer_that_is_there_and_says_nothing_is_not_given_up() {
    let check = async |http: Http| {
        let server = Hostile::start(http, quiet).await.unwrap();
        let link = link_at(server.address(), &server);
        let mut lines = link.watch(get("/watch"), None).await.unwrap();
        lines.next().await;
        let next = tokio::time::timeout(Duration::from_secs(40), lines.next()).await;
        assert!(next.is_err(), "{http:?} {next:?}");
        assert_eq!(link.connections(), 1);
    };
    let [one, two] = BOTH;
    tokio::join!(check(one), check(two));
}
