//! Names: a server that answers late or changes its answer delays no other, and leads to no refused address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use renderhub::kubernetes::apply::{CallError, TransportStage};
use renderhub::plan::remote::address::AddressPolicy;
use renderhub::remote::client::{RemoteClient, RemoteClientSettings};
use renderhub::remote::kubeconfig::ApiServerHost;
use renderhub::remote::limits::RemoteClientLimits;
use renderhub::remote::resolve::Resolver;
use renderhub_harness::dns::{Dns, Said};
use renderhub_harness::hostile::{Http, Reply};
use renderhub_harness::{Hostile, net};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::{config, failed, get, settings, short};

fn resolving(dns: &Dns, limits: RemoteClientLimits) -> RemoteClientSettings {
    RemoteClientSettings {
        resolver: Resolver::with_servers(&[dns.address()]).unwrap(),
        ..settings(limits)
    }
}

fn named(name: &str, server: &Hostile, settings: &RemoteClientSettings) -> RemoteClient {
    let mut config = config(server.address(), server.authority());
    config.host = ApiServerHost::Name(name.to_owned());
    RemoteClient::new(&config, settings).unwrap()
}

fn v4(server: SocketAddr) -> Ipv4Addr {
    match server.ip() {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => panic!("servers of a test have IPv4 addresses"),
    }
}

/// Holds: K14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_are_never_answered_delay_no_other() {
    const HOLES: usize = 1_000;
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let address = v4(server.address());
    let dns = Dns::start(move |name| {
        if name.starts_with("hole") {
            Said::Nothing
        } else {
            Said::Are(vec![address])
        }
    })
    .await
    .unwrap();
    let settings = resolving(&dns, short());
    named("known.test", &server, &settings).probe().await.unwrap();
    let holes: Vec<RemoteClient> = (0..HOLES)
        .map(|i| named(&format!("hole-{i}.test"), &server, &settings))
        .collect();
    let begin = Instant::now();
    let dead = join_all(holes.iter().map(|link| async {
        for _ in 0..2 {
            failed(link.send(get("/x"), None).await);
        }
    }));
    // As long as in production, for a machine that has much else to do.
    let patient = RemoteClientSettings {
        limits: Arc::new(RemoteClientLimits::default()),
        ..settings.clone()
    };
    let good = async {
        let mut worst = Duration::ZERO;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let begin = Instant::now();
            named("known.test", &server, &patient).probe().await.unwrap();
            worst = worst.max(begin.elapsed());
        }
        worst
    };
    let (_, worst) = tokio::join!(dead, good);
    assert!(
        worst < Duration::from_secs(8),
        "a name that is answered took {worst:?}"
    );
    // Each has 3 seconds; the rest is this machine's.
    assert!(begin.elapsed() < Duration::from_secs(40), "{:?}", begin.elapsed());
    // By now the holes have a line of their own, and a new name need not wait for them either.
    let still = join_all(holes.iter().map(RemoteClient::probe));
    let new = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        named("new.test", &server, &patient).probe().await
    };
    let (_, new) = tokio::join!(still, new);
    new.unwrap();
}

/// Holds: K14.
#[tokio::test]
async fn a_name_that_is_not_answered_fails_within_two_seconds() {
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let dns = Dns::start(|_| Said::Nothing).await.unwrap();
    let settings = resolving(&dns, RemoteClientLimits::default());
    let begin = Instant::now();
    assert_eq!(
        failed(named("hole.test", &server, &settings).probe().await),
        CallError::Transport(TransportStage::Resolve)
    );
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    let dns = Dns::start(|_| Said::Are(Vec::new())).await.unwrap();
    let settings = resolving(&dns, RemoteClientLimits::default());
    assert_eq!(
        failed(named("none.test", &server, &settings).probe().await),
        CallError::Transport(TransportStage::Resolve)
    );
}

/// Holds: K6.
#[tokio::test]
async fn a_name_that_turns_to_a_refused_address_leads_nowhere() {
    let refused = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = refused.local_addr().unwrap().port();
    let listener = TcpListener::bind((net::loopback(), port)).await.unwrap();
    let server = Hostile::on(listener, Http::One, |_| {
        // Each answer ends its connection, so that the next call needs another.
        Reply::Whole(200, vec![("connection", "close".to_owned())], "{}".into())
    })
    .unwrap();
    let (good, bad) = (v4(server.address()), Ipv4Addr::LOCALHOST);
    let (turn, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, questions) = (Arc::clone(&turn), Arc::clone(&asked));
    let dns = Dns::start(move |_| {
        questions.fetch_add(1, Ordering::Relaxed);
        let answers = [vec![good], vec![bad], vec![good, bad], vec![bad, good]];
        Said::Are(answers[now.load(Ordering::Relaxed) % answers.len()].clone())
    })
    .await
    .unwrap();
    let mut settings = resolving(&dns, short());
    settings.guard = Arc::new(AddressPolicy {
        allowed: vec![format!("{good}/32").parse().unwrap()],
        denied: Vec::new(),
    });
    let link = named("turns.test", &server, &settings);
    for i in 0..40 {
        turn.store(i, Ordering::Relaxed);
        let before = asked.load(Ordering::Relaxed);
        let answer = link.probe().await;
        // A question may be repeated where its answer was late.
        assert!(
            asked.load(Ordering::Relaxed) > before,
            "each connection asks anew"
        );
        assert_eq!(answer.is_ok(), i % 4 == 0, "{i} {answer:?}");
    }
    assert_eq!(server.accepted(), 10);
    let touched = tokio::time::timeout(Duration::from_millis(200), refused.accept()).await;
    assert!(touched.is_err(), "the refused address was connected to");
}

/// Holds: K6.
#[tokio::test]
async fn a_name_is_asked_for_as_it_is_written() {
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let address = v4(server.address());
    let names = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&names);
    let dns = Dns::start(move |name| {
        seen.lock().unwrap().push(name.to_owned());
        Said::Are(vec![address])
    })
    .await
    .unwrap();
    let settings = resolving(&dns, short());
    named("kubernetes.default", &server, &settings)
        .probe()
        .await
        .unwrap();
    assert_eq!(
        *names.lock().unwrap(),
        ["kubernetes.default"],
        "no domain of the hub's own is added"
    );
}

/// Addresses of this machine at which no server listens.
fn silent(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 250, 250, number)
}

/// Holds: K14.
#[tokio::test]
async fn of_many_addresses_of_a_name_the_first_are_looked_at_and_fewer_are_tried() {
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let (good, refused) = (v4(server.address()), Ipv4Addr::new(127, 251, 0, 1));
    let dns = Dns::start(move |name| {
        let silent = |most: u8| (1..=most).map(silent);
        Said::Are(match name.split('.').next().unwrap_or_default() {
            "fourth" => silent(3).chain([good]).collect(),
            "fifth" => silent(4).chain([good]).collect(),
            "refused-16th" => [good].into_iter().chain(silent(14)).chain([refused]).collect(),
            _ => [good].into_iter().chain(silent(15)).chain([refused]).collect(),
        })
    })
    .await
    .unwrap();
    let mut settings = resolving(&dns, short());
    settings.guard = Arc::new(AddressPolicy {
        allowed: vec!["127.0.0.0/8".parse().unwrap()],
        denied: vec![format!("{refused}/32").parse().unwrap()],
    });
    for (name, expected) in [
        ("fourth", None),
        ("fifth", Some(CallError::Transport(TransportStage::Connect))),
        ("refused-16th", Some(CallError::Barred)),
        ("refused-17th", None),
    ] {
        let answer = named(&format!("{name}.test"), &server, &settings).probe().await;
        assert_eq!(answer.err(), expected, "{name}");
    }
}
