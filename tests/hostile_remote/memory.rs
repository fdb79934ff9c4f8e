//! Memory and processor time of the hub's side alone: each case runs in a process of its own, which holds only the links, while the
//! server is in this one.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use renderhub::kubernetes::apply::CallError;
use renderhub::remote::client::{RemoteClient, WatchEnd};
use renderhub::remote::jobs::watch_jobs;
use renderhub::remote::limits::RemoteClientLimits;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Asked, Http, Reply};
use tokio::net::TcpListener;

use crate::support::{
    BOTH, NAMESPACE, changes_seen, cluster, config, ended, event, failed, get, hub, job, list, settings,
    short,
};

/// Which case the process is for.
const CASE: &str = "RENDERHUB_TEST_CASE";
/// Where its server is, and which authority it trusts.
const ADDRESS: &str = "RENDERHUB_TEST_ADDRESS";
const AUTHORITY: &str = "RENDERHUB_TEST_AUTHORITY";
/// What any of them may take: a page of 8 MiB and what it grew out of, and half as much for the connection and the allocator.
const MOST: u64 = 24 << 20;
/// Links of the case that counts what one costs.
const LINKS: u64 = 200;

/// Runs this very test again in a process of its own, for the case, with the environment given.
async fn in_a_process_of_its_own(test: &str, case: &str, server: &Hostile, environment: &[(&str, String)]) {
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", &format!("memory::{test}"), "--nocapture"])
        .kill_on_drop(true);
    child
        .env(CASE, case)
        .env(ADDRESS, server.address().to_string())
        .env(AUTHORITY, server.authority());
    child.envs(environment.iter().map(|(name, value)| (name, value)));
    let output = child
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let limit = Duration::from_secs(240);
    let output = tokio::time::timeout(limit, output.wait_with_output())
        .await
        .expect("it did not end")
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    for line in said.lines().filter(|line| line.contains("KiB")) {
        println!("{case}: {line}");
    }
    assert!(output.status.success(), "{case}:\n{said}");
    assert!(
        !said.contains("canary") && said.contains("1 passed"),
        "{case}:\n{said}"
    );
}

fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

fn server_of_the_case() -> (SocketAddr, String) {
    (
        std::env::var(ADDRESS).unwrap().parse().unwrap(),
        std::env::var(AUTHORITY).unwrap(),
    )
}

fn link_of_the_case(limits: RemoteClientLimits) -> RemoteClient {
    let (address, authority) = server_of_the_case();
    RemoteClient::new(&config(address, &authority), &settings(limits)).unwrap()
}

/// Bytes of memory that this process holds.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

/// Processor time of this process.
fn busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// The most memory that is held during the work, above what was held before.
async fn growth<T>(work: impl Future<Output = T>) -> (T, u64) {
    let (before, most, over) = (
        resident(),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (seen, ends) = (Arc::clone(&most), Arc::clone(&over));
    let sampler = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            seen.fetch_max(resident(), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let done = work.await;
    over.store(true, Ordering::Relaxed);
    sampler.join().unwrap();
    (done, most.load(Ordering::Relaxed).saturating_sub(before))
}

/// 64 KiB of the same byte for ever.
fn endless(byte: u8) -> Reply {
    let part = Bytes::from(vec![byte; 64 << 10]);
    Reply::parts(stream::repeat(part))
}

/// One byte in each part for ever.
fn crumbs(byte: &'static [u8]) -> Reply {
    Reply::parts(stream::repeat(Bytes::from_static(byte)))
}

/// A body of 7 MiB that is as many small things as can be.
fn small_things() -> Reply {
    let items = "{},".repeat((7 << 20) / 3);
    Reply::whole(
        200,
        format!("{{\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{items}{{}}]}}"),
    )
}

fn flood_of(events: fn(u64) -> Bytes) -> Reply {
    Reply::parts(stream::iter((0..).map(events)))
}

/// A quarter of what production reads: of the whole, a debug build takes half of a core on a slow machine.
fn paced() -> RemoteClientLimits {
    let standard = RemoteClientLimits::default();
    RemoteClientLimits {
        read_rate: standard.read_rate / 4,
        read_burst: standard.read_burst / 4,
        event_rate: standard.event_rate / 4,
        event_burst: standard.event_burst / 4,
        ..standard
    }
}

/// What the server of a case does.
fn script(case: &str) -> fn(&Asked) -> Reply {
    fn watched(asked: &Asked, watch: fn() -> Reply) -> Reply {
        match asked.target.as_str() {
            "/version" => Reply::whole(200, "{}"),
            target if target.contains("watch=true") => watch(),
            _ => Reply::whole(200, list(&[])),
        }
    }
    match case {
        "list" | "call" => |asked| match asked.target.as_str() {
            "/version" => Reply::whole(200, "{}"),
            _ => endless(b' '),
        },
        "items" => |asked| match asked.target.as_str() {
            "/version" => Reply::whole(200, "{}"),
            _ => small_things(),
        },
        "line" => |asked| watched(asked, || endless(b'x')),
        "newlines" => |asked| watched(asked, || endless(b'\n')),
        "crumbs" => |asked| watched(asked, || crumbs(b"\n")),
        "events" => |asked| {
            watched(asked, || {
                flood_of(|i| event("ADDED", &job(&format!("t{i}"), "j", i)))
            })
        },
        "same" => |asked| watched(asked, || flood_of(|i| event("MODIFIED", &job("t1", "j1", i)))),
        _ => panic!("no such case"),
    }
}

/// Runs the case in this process.
async fn run(case: &str) {
    let calm = RemoteClientLimits {
        watch_pause: Duration::from_millis(20),
        ..RemoteClientLimits::default()
    };
    let link = link_of_the_case(calm);
    let answered = async || Ok(link.probe().await.ok());
    renderhub_harness::wait_for("the server of the case", Duration::from_secs(60), answered)
        .await
        .unwrap();
    let watch_for = async |limits: RemoteClientLimits, time| {
        let link = link_of_the_case(limits);
        tokio::time::timeout(time, changes_seen(&link, |_| false))
            .await
            .map(|(_, end)| end)
    };
    let seconds = Duration::from_secs(4);
    let after_the_burst = async || {
        tokio::time::sleep(seconds).await;
        busy()
    };
    let (begin, grown) = growth(async {
        match case {
            "call" => assert_eq!(failed(link.send(get("/x"), None).await), CallError::TooLarge),
            "list" => {
                let end = WatchEnd::Call(CallError::TooLarge);
                assert_eq!(ended(&link).await.1, end);
            }
            "items" => assert_eq!(ended(&link).await.1, WatchEnd::TooMuch),
            "line" => assert_eq!(ended(&link).await.1, WatchEnd::TooLong),
            "events" => {
                let mut limits = RemoteClientLimits::default();
                (limits.event_rate, limits.event_burst) = (100_000, 100_000);
                assert_eq!(
                    watch_for(limits, Duration::from_secs(180)).await,
                    Ok(Some(WatchEnd::TooMuch))
                );
            }
            // Read at its pace for as long as one looks.
            _ => {
                let (ended, begin) = tokio::join!(watch_for(paced(), seconds * 2), after_the_burst());
                // Some stacks end a connection with too many crumbs, which is as good.
                assert!(ended.is_err() || case == "crumbs", "{case} ended");
                return Some(begin);
            }
        }
        None
    })
    .await;
    println!("{case}: {} KiB", grown >> 10);
    assert!(grown <= MOST, "{case} took {} KiB", grown >> 10);
    if let Some(begin) = begin {
        // Without a pace it is all of the time, and more.
        let took = busy().saturating_sub(begin);
        println!("{case}: {took:?} of processor time in {seconds:?}");
        assert!(took < seconds / 2, "{case} took {took:?} of {seconds:?}");
    }
}

/// Holds: H1, H4.
#[tokio::test]
async fn what_a_server_sends_takes_neither_memory_nor_a_processor() {
    if let Some(case) = case() {
        return run(&case).await;
    }
    // One after another, because the servers share a thread, and a flood leaves no time of it to another.
    for http in BOTH {
        for case in [
            "call", "list", "items", "line", "newlines", "crumbs", "events", "same",
        ] {
            let server = Hostile::start(http, script(case)).await.unwrap();
            let test = "what_a_server_sends_takes_neither_memory_nor_a_processor";
            in_a_process_of_its_own(test, case, &server, &[]).await;
        }
    }
}

/// Holds: K5.
#[tokio::test]
async fn a_proxy_in_the_environment_is_not_used() {
    if case().is_some() {
        let link = link_of_the_case(short());
        link.probe().await.unwrap();
        link.send(get("/x"), None).await.unwrap();
        return;
    }
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", proxy.local_addr().unwrap());
    let names = [
        "HTTPS_PROXY",
        "https_proxy",
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
    ];
    let environment: Vec<(&str, String)> = names.iter().map(|name| (*name, at.clone())).collect();
    let server = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    in_a_process_of_its_own(
        "a_proxy_in_the_environment_is_not_used",
        "proxy",
        &server,
        &environment,
    )
    .await;
    assert_eq!(server.asked().len(), 2);
    let touched = tokio::time::timeout(Duration::from_millis(200), proxy.accept()).await;
    assert!(touched.is_err(), "the proxy was connected to");
}

#[tokio::test]
async fn a_cluster_that_is_idle_costs_less_than_100_kib_and_one_socket() {
    if case().is_some() {
        let warm = link_of_the_case(RemoteClientLimits::default());
        warm.probe().await.unwrap();
        let (before, mut watches) = (resident(), Vec::new());
        for count in 0..LINKS {
            // A few at a time, as a hub connects.
            if count % 10 == 9 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let link = link_of_the_case(RemoteClientLimits::default());
            watches.push(tokio::spawn(async move {
                let hub = hub();
                watch_jobs(&link, None, NAMESPACE, &hub, |_| std::future::ready(())).await
            }));
        }
        // At their largest, and quiet since then.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let (each, sockets) = (
            (resident() - before) / LINKS,
            std::fs::read_dir("/proc/self/fd").unwrap().count(),
        );
        println!("{} KiB for each link, {sockets} files", each >> 10);
        assert!(watches.iter().all(|watch| !watch.is_finished()));
        assert!(each < 100 << 10, "{} KiB", each >> 10);
        assert!(sockets < usize::try_from(LINKS).unwrap() + 30, "{sockets}");
        return;
    }
    for http in BOTH {
        let items = (0..3).map(|i| job(&format!("t{i}"), "j", i)).collect();
        let server = cluster(http, items, |_| {
            let line = event(
                "BOOKMARK",
                &serde_json::json!({"metadata": {"resourceVersion": "2"}}),
            );
            Reply::parts(stream::iter([line]).chain(stream::pending()))
        })
        .await;
        let test = "a_cluster_that_is_idle_costs_less_than_100_kib_and_one_socket";
        in_a_process_of_its_own(test, "idle", &server, &[]).await;
    }
}
