//! Clients of hostile servers, Jobs as those send them, and a second cluster whose calls have to go on.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use renderhub::api::names::{HubId, TaskUid, job_name};
use renderhub::kubernetes::apply::CallError;
use renderhub::kubernetes::watch::{JobMetadata, WatchChange};
use renderhub::plan::remote::address::AddressPolicy;
use renderhub::remote::client::{RemoteClient, RemoteClientSettings, WatchEnd};
use renderhub::remote::jobs::watch_jobs;
use renderhub::remote::kubeconfig::{ApiServerHost, ClusterCredential, RemoteConfig};
use renderhub::remote::limits::RemoteClientLimits;
use renderhub::remote::memory_budget::MemoryBudget;
use renderhub::remote::resolve::Resolver;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Http, Reply};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::Instant;

use ::support::claim::claimed;
pub use ::support::uids::uid;
use ::support::uids::word;

/// A text of the server's; the hub must not repeat it.
pub const CANARY: &str = "canary-7f3a\u{1b}[31m";
/// A secret of the hub's.
pub const TOKEN: &str = "token-5b1e77c0";
/// Where Jobs are.
pub const NAMESPACE: &str = "render-here";
/// Both protocols, for what must hold with each.
pub const BOTH: [Http; 2] = [Http::One, Http::Two];

/// A configuration that leads to the address.
pub fn config(address: SocketAddr, authority: &str) -> RemoteConfig {
    RemoteConfig {
        host: ApiServerHost::Address(address.ip()),
        port: address.port(),
        tls_server_name: Some(ApiServerHost::Name("hostile.test".to_owned())),
        authorities: vec![
            CertificateDer::from_pem_slice(authority.as_bytes())
                .unwrap()
                .to_vec(),
        ],
        login: ClusterCredential::Token(SecretString::from(TOKEN)),
    }
}

pub fn settings(limits: RemoteClientLimits) -> RemoteClientSettings {
    RemoteClientSettings {
        guard: Arc::new(AddressPolicy {
            allowed: vec!["127.0.0.0/8".parse().unwrap()],
            denied: Vec::new(),
        }),
        resolver: Resolver::with_servers(&[]).unwrap(),
        limits: Arc::new(limits),
        memory_budget: MemoryBudget::default(),
        fence: claimed().0,
    }
}

pub fn link_with(server: &Hostile, limits: RemoteClientLimits) -> RemoteClient {
    RemoteClient::new(&config(server.address(), server.authority()), &settings(limits)).unwrap()
}

/// A link that does not wait as long as in production, and is not paced.
pub fn link(server: &Hostile) -> RemoteClient {
    link_with(server, short())
}

pub fn short() -> RemoteClientLimits {
    RemoteClientLimits {
        total: Duration::from_secs(3),
        idle: Duration::from_secs(1),
        connect: Duration::from_secs(2),
        probe: Duration::from_secs(3),
        retry_pause: Duration::from_millis(10),
        qps: 10_000,
        burst: 10_000,
        watch_pause: Duration::from_millis(20),
        watch_life: Duration::from_secs(2),
        ..RemoteClientLimits::default()
    }
}

pub fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).unwrap()
}

pub fn post() -> Request<Vec<u8>> {
    let request = Request::post(format!("/api/v1/namespaces/{NAMESPACE}/secrets"));
    request.body(b"{}".to_vec()).unwrap()
}

/// Fails if foreign text or a secret shows in what the hub could print.
pub fn check_silent(said: &impl Debug, display: &str) {
    let text = format!("{said:?} {display}");
    for word in ["canary", "7f3a", "\u{1b}", TOKEN] {
        assert!(!text.contains(word), "{text:?} says {word:?}");
    }
}

/// The error of a call, which has none of the server's text.
pub fn failed<T: Debug>(answer: Result<T, CallError>) -> CallError {
    let error = answer.unwrap_err();
    check_silent(&error, &error.to_string());
    error
}

/// Calls that take longer are slow.
const SLOW: Duration = Duration::from_millis(500);
/// Longest that slow calls may take together, however short the work: what a busy machine takes from everything at times.
const SPARE: Duration = Duration::from_secs(2);

/// Does the work while a link to an honest cluster is used, which has to be answered for the larger part of the time.
pub async fn while_others_work<T>(work: impl Future<Output = T>) -> T {
    let honest = Hostile::start(Http::Two, |_| Reply::whole(200, "{}"))
        .await
        .unwrap();
    let patient = RemoteClientLimits {
        qps: 10_000,
        burst: 10_000,
        ..RemoteClientLimits::default()
    };
    let other = link_with(&honest, patient);
    // At least one call, however short the work.
    other.send(get("/version"), None).await.unwrap();
    let (begin, mut asked, mut slow) = (Instant::now(), Instant::now(), Duration::ZERO);
    let done = {
        let calls = async {
            loop {
                asked = Instant::now();
                other.send(get("/version"), None).await.unwrap();
                slow += Some(asked.elapsed())
                    .filter(|took| *took > SLOW)
                    .unwrap_or_default();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::pin!(work, calls);
        tokio::select! {
            done = &mut work => done,
            () = &mut calls => unreachable!("they never end"),
        }
    };
    // The last call may not have been answered.
    slow += Some(asked.elapsed())
        .filter(|took| *took > SLOW)
        .unwrap_or_default();
    let all = begin.elapsed();
    assert!(
        slow < SPARE.max(all / 2),
        "another cluster's calls were slow for {slow:?} of {all:?}"
    );
    done
}

pub fn hub() -> HubId {
    HubId::new("main", "0f5a4e0c-0001").unwrap()
}

/// A Job of the task as a server sends it; both UIDs are said by a short word.
pub fn job(task: &str, job: &str, version: u64) -> Value {
    let (task, uid) = (uid(task), uid(job));
    json!({
        "metadata": {
            "name": job_name("shop", &TaskUid::new(&task)), "namespace": NAMESPACE, "uid": uid,
            "resourceVersion": version.to_string(),
            "labels": {
                "app.kubernetes.io/managed-by": "renderhub", "renderhub.dev/hub-id": hub().as_str(),
                "renderhub.dev/task-uid": task, "other": CANARY,
            },
            "annotations": {"renderhub.dev/spec-hash": "ab".repeat(32), "renderhub.dev/chart-url": "oci://r.test/x:1"},
            "managedFields": [{"manager": "hub", "fieldsV1": {"f:spec": {}}}],
        },
        "status": {"succeeded": 2_147_483_648_u64, "failed": -7, "message": CANARY},
    })
}

pub fn event(kind: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": kind, "object": object})).into()
}

pub fn list(items: &[Value]) -> Vec<u8> {
    json!({"metadata": {"resourceVersion": "100"}, "items": items})
        .to_string()
        .into_bytes()
}

/// Answers a list with the items, and a watch with what `watch` makes.
pub async fn cluster(
    http: Http,
    items: Vec<Value>,
    watch: impl Fn(&str) -> Reply + Send + Sync + 'static,
) -> Hostile {
    Hostile::start(http, move |asked| {
        if asked.target.contains("watch=true") {
            watch(&asked.target)
        } else {
            Reply::whole(200, list(&items))
        }
    })
    .await
    .unwrap()
}

/// The events of `watch_jobs`, in short, until it ended or there were enough.
pub async fn changes_seen(
    link: &RemoteClient,
    is_enough: impl Fn(&[String]) -> bool,
) -> (Vec<String>, Option<WatchEnd>) {
    let mut all = Vec::new();
    let (full, mut is_full) = tokio::sync::mpsc::channel(1);
    let hub = hub();
    let watch = watch_jobs(link, None, NAMESPACE, &hub, async |change| {
        all.push(shortly(&change));
        if is_enough(&all) {
            full.send(()).await.unwrap();
            std::future::pending::<()>().await;
        }
    });
    let ended = tokio::select! {
        end = watch => Some(end),
        _ = is_full.recv() => None,
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("the watch neither ends nor tells enough"),
    };
    if let Some(end) = ended {
        check_silent(&end, &end.to_string());
    }
    check_silent(&all, "");
    (all, ended)
}

fn shortly(change: &WatchChange<JobMetadata>) -> String {
    match change {
        WatchChange::Restart => "restart".to_owned(),
        WatchChange::Synced => "synced".to_owned(),
        WatchChange::Seen(mark) => format!(
            "{} is {} {:?}",
            word(mark.task.as_str()),
            word(&mark.uid),
            mark.hint
        ),
        WatchChange::Gone(task) => format!("{} is gone", word(task.as_str())),
    }
}

/// How `watch_jobs` ended, and its events before.
pub async fn ended(link: &RemoteClient) -> (Vec<String>, WatchEnd) {
    let (all, end) = changes_seen(link, |_| false).await;
    (all, end.unwrap())
}
