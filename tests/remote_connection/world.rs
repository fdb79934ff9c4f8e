//! Connections to real API servers, driven directly, with everything they say written down.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{Api, DeleteParams, PostParams};
use renderhub::api::conditions::Reason;
use renderhub::api::names::{HubId, TaskUid, job_name};
use renderhub::base::metrics::Metrics;
use renderhub::base::metrics::clusters::label;
use renderhub::kubernetes::apply::{ApiTransport, CallError, ResponseLimit};
use renderhub::kubernetes::watch::{ReceivedEvent, TaskWatchEvent, WatchChange};
use renderhub::plan::queue::backoff::BackoffPolicy;
use renderhub::plan::remote::address::AddressPolicy;
use renderhub::plan::remote::health::ConnectionTiming;
use renderhub::plan::remote::site::{ClusterName, Site, SiteState};
use renderhub::remote::ConnectionKey;
use renderhub::remote::client::RemoteClientSettings;
use renderhub::remote::connection::ConnectionReport;
use renderhub::remote::connection_registry::{
    ConnectionRegistry, ConnectionSettings, HubNamespaceLookup, RateLimit, SiteClient,
};
use renderhub::remote::kubeconfig;
use renderhub::remote::kubeconfig::{ApiServerHost, RemoteConfig};
use renderhub::remote::limits::RemoteClientLimits;
use renderhub::remote::memory_budget::MemoryBudget;
use renderhub::remote::resolve::Resolver;
use renderhub_harness::rights::{Bound, Rights};
use renderhub_harness::{AuditLevel, ControlPlane, Identity, wait_for};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::forward::Forward;
use support::claim::claimed;
use support::uids::{uid, word};

/// Longest that anything may take that normally takes moments.
pub const LIMIT: Duration = Duration::from_secs(60);
const UID: &str = "11111111-2222-3333-4444-555555555555";

/// The API server of this test binary, which is no hub's own.
pub async fn plane() -> Result<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    PLANE
        .get_or_try_init(|| {
            ControlPlane::builder()
                .with_audit(AuditLevel::Metadata)
                .without_job_controller()
                .start()
        })
        .await
}

/// An announcement of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Restart,
    Seen(String),
    Synced,
    Gone(String),
    Up,
    Down(Reason),
}

type Log = Arc<Mutex<Vec<(Arc<Site>, Said, SiteState)>>>;

/// Connections, and a listener in the task controller's place.
pub struct World {
    pub registry: ConnectionRegistry,
    pub metrics: Metrics,
    shown: Arc<prometheus_client::registry::Registry>,
    log: Log,
    reports: Arc<Mutex<HashMap<ConnectionKey, Vec<ConnectionReport>>>>,
    _listeners: [AbortOnDropHandle<()>; 2],
}

/// As a hub's, in a tenth of the time and less.
pub fn timing() -> ConnectionTiming {
    ConnectionTiming {
        probe_every: Duration::from_millis(500),
        tick: Duration::from_millis(25),
        origin: std::time::Instant::now(),
        misses: 5,
        unanswered: 3,
        reread: Duration::from_secs(20),
        backoff: BackoffPolicy {
            base: Duration::from_millis(200),
            cap: Duration::from_secs(1),
        },
        rewatch: Duration::from_secs(2),
        settle: Duration::from_secs(10),
    }
}

pub fn hub_id() -> HubId {
    HubId::new("main", UID).expect("it is one")
}

impl World {
    pub fn new() -> Self {
        Self::knowing(|_| None)
    }

    /// One whose hub has namespaces with these UIDs.
    pub fn knowing(own: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::with(timing(), Arc::new(own))
    }

    pub fn with(timing: ConnectionTiming, own_namespaces: HubNamespaceLookup) -> Self {
        let limits = RemoteClientLimits {
            probe: Duration::from_secs(2),
            connect: Duration::from_secs(5),
            ping: Duration::from_secs(1),
            ping_timeout: Duration::from_secs(2),
            qps: 1_000,
            burst: 1_000,
            ..RemoteClientLimits::default()
        };
        let guard = AddressPolicy {
            allowed: vec!["127.0.0.0/8".parse().expect("a network")],
            denied: Vec::new(),
        };
        let client = RemoteClientSettings {
            guard: Arc::new(guard),
            resolver: Resolver::system().expect("this machine has name servers"),
            limits: Arc::new(limits),
            memory_budget: MemoryBudget::default(),
            fence: claimed().0,
        };
        let (metrics, shown) = Metrics::new();
        let (inputs, heard) = mpsc::channel(64);
        let (reports, reported) = mpsc::channel(8);
        let settings = ConnectionSettings {
            hub_id: hub_id(),
            client,
            own_namespaces,
            timing,
        };
        let (log, told) = (Log::default(), Arc::default());
        Self {
            registry: ConnectionRegistry::new(settings, metrics.clone(), inputs, reports),
            metrics,
            shown,
            _listeners: [
                AbortOnDropHandle::new(tokio::spawn(listen(heard, Arc::clone(&log)))),
                AbortOnDropHandle::new(tokio::spawn(file(reported, Arc::clone(&told)))),
            ],
            log,
            reports: told,
        }
    }

    /// Applies it under the key's own name, as fast as the cluster lets it.
    pub fn apply_kubeconfig(&self, key: &ConnectionKey, config: RemoteConfig) {
        let pace = RateLimit {
            qps: 1_000,
            burst: 1_000,
        };
        self.registry
            .apply_kubeconfig(key.clone(), &key.secret_uid, config, pace);
    }

    /// The announcements of a site so far.
    pub fn said(&self, site: &Site) -> Vec<Said> {
        let log = lock(&self.log);
        let of_site = log.iter().filter(|(told, ..)| **told == *site);
        of_site.map(|(_, said, _)| said.clone()).collect()
    }

    /// The announcements of all sites so far, in their order.
    pub fn all(&self) -> Vec<(Arc<Site>, Said)> {
        let log = lock(&self.log);
        log.iter()
            .map(|(site, said, _)| (Arc::clone(site), said.clone()))
            .collect()
    }

    /// The last announced state of a site.
    pub fn state(&self, site: &Site) -> Option<SiteState> {
        let log = lock(&self.log);
        let of_site = log
            .iter()
            .rev()
            .find(|(told, said, _)| **told == *site && matches!(said, Said::Up | Said::Down(_)));
        of_site.map(|(.., state)| state.clone())
    }

    pub fn report(&self, key: &ConnectionKey) -> Option<ConnectionReport> {
        lock(&self.reports).get(key)?.last().cloned()
    }

    pub fn reports(&self, key: &ConnectionKey) -> Vec<ConnectionReport> {
        lock(&self.reports).get(key).cloned().unwrap_or_default()
    }

    pub async fn until_up(&self, site: &Site) -> Result<SiteClient> {
        let waited = wait_for("the site to be up", LIMIT, async || {
            let is_up = self.state(site) == Some(SiteState::Up);
            Ok(self.registry.client(site).filter(|_| is_up))
        });
        waited.await.with_context(|| format!("{:?}", self.said(site)))
    }

    /// Waits until a site is down for the reason.
    pub async fn until_down(&self, site: &Site, why: Reason) -> Result<()> {
        let waited = wait_for("the site to be down", LIMIT, async || {
            let reason = self.state(site).and_then(|state| state.reason());
            Ok((reason == Some(why)).then_some(()))
        });
        waited
            .await
            .with_context(|| format!("{why}: {:?}", self.said(site)))
    }

    pub async fn until_reported(
        &self,
        key: &ConnectionKey,
        what: &str,
        is_so: impl Fn(&ConnectionReport) -> bool,
    ) -> Result<ConnectionReport> {
        wait_for(what, LIMIT, async || {
            Ok(self.report(key).filter(|report| is_so(report)))
        })
        .await
    }

    /// Attempts to connect and connections in the place of another so far.
    pub fn connections(&self, key: &ConnectionKey) -> (u64, u64) {
        let clusters = &self.metrics.clusters;
        let of = label(&key.secret_uid);
        let attempts = clusters.attempts.get_or_create(&of).get();
        (attempts, clusters.reconnects.get_or_create(&of).get())
    }

    /// Lines of the metrics that name the cluster.
    pub fn series(&self, key: &ConnectionKey) -> usize {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.shown).expect("text is written");
        let named = format!("cluster=\"{}\"", key.secret_uid);
        text.lines().filter(|line| line.contains(&named)).count()
    }

    /// Ends everything; what does not end is a failure.
    pub async fn ended(self) -> Result<()> {
        let ended = tokio::time::timeout(LIMIT, self.registry.shutdown());
        ended.await.context("connections that do not end")
    }
}

async fn listen(mut heard: mpsc::Receiver<ReceivedEvent>, log: Log) {
    while let Some(ReceivedEvent { input, .. }) = heard.recv().await {
        let (site, said, state) = match input {
            TaskWatchEvent::Job(Some(site), change) => {
                let said = match change {
                    WatchChange::Restart => Said::Restart,
                    WatchChange::Seen(mark) => Said::Seen(word(mark.task.as_str())),
                    WatchChange::Synced => Said::Synced,
                    WatchChange::Gone(task) => Said::Gone(word(task.as_str())),
                };
                (site, said, SiteState::Up)
            }
            TaskWatchEvent::Site(site, state) => match &state {
                SiteState::Up => (site, Said::Up, state),
                SiteState::Down { reason, .. } => (site, Said::Down(*reason), state),
                SiteState::Refused(refusal) => (site, Said::Down(refusal.reason), state),
                SiteState::Disconnected => (site, Said::Down(Reason::Disconnected), state),
            },
            other => panic!("a connection says nothing else: {other:?}"),
        };
        lock(&log).push((site, said, state));
    }
}

async fn file(
    mut reported: mpsc::Receiver<ConnectionReport>,
    reports: Arc<Mutex<HashMap<ConnectionKey, Vec<ConnectionReport>>>>,
) {
    while let Some(report) = reported.recv().await {
        lock(&reports).entry(report.key.clone()).or_default().push(report);
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A namespace on the API server, with the documented Role in it.
pub struct Remote {
    pub plane: &'static ControlPlane,
    pub namespace: String,
}

impl Remote {
    pub async fn new(prefix: &str) -> Result<Self> {
        let plane = plane().await?;
        let namespace = plane.namespace(prefix).await?;
        Ok(Self { plane, namespace })
    }

    pub fn key(&self) -> ConnectionKey {
        key(&self.namespace)
    }

    pub fn site(&self) -> Arc<Site> {
        Arc::new(Site {
            cluster: ClusterName::Platform(self.namespace.clone()),
            namespace: self.namespace.clone(),
        })
    }

    /// A ServiceAccount with the Role, by a fresh token.
    pub async fn account(&self, name: &str) -> Result<Identity> {
        let account = self.plane.service_account(&self.namespace, name).await?;
        self.grant(&account, role()).await?;
        Ok(account)
    }

    /// Gives a user these rights in the namespace, in the place of those before.
    pub async fn grant(&self, who: &Identity, rules: Value) -> Result<()> {
        let rules: Vec<PolicyRule> = serde_json::from_value(rules)?;
        let bound = Bound {
            namespace: Some(self.namespace.clone()),
            role: "remote".to_owned(),
            is_cluster_role: false,
            labels: json!({}),
            rules,
        };
        let rights = Rights { bound: vec![bound] };
        self.plane.set_rights(who, &rights).await
    }

    pub fn address(&self) -> std::net::SocketAddr {
        (self.plane.address(), self.plane.port()).into()
    }

    /// Makes a Job as the hub would for the task, whose UID says this word.
    pub async fn make_job(&self, task: &str) -> Result<()> {
        let task = uid(task);
        let name = job_name("shop", &TaskUid::new(&task));
        let container = json!({"name": "renderer", "image": "registry.test/renderer:1"});
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {
                "app.kubernetes.io/managed-by": "renderhub",
                "renderhub.dev/hub-id": hub_id().as_str(),
                "renderhub.dev/task-uid": task,
            }},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
        }))?;
        self.jobs().await?.create(&PostParams::default(), &job).await?;
        Ok(())
    }

    pub async fn delete_job(&self, task: &str) -> Result<()> {
        let name = job_name("shop", &TaskUid::new(&uid(task)));
        let deletion = DeleteParams::background();
        self.jobs().await?.delete(&name, &deletion).await?;
        Ok(())
    }

    async fn jobs(&self) -> Result<Api<Job>> {
        let client = self.plane.admin().client().await?;
        Ok(Api::namespaced(client, &self.namespace))
    }
}

pub fn key(uid: &str) -> ConnectionKey {
    ConnectionKey {
        secret_uid: uid.into(),
        key: "value".into(),
    }
}

/// The rights that the hub asks for on a cluster, and no others.
pub fn role() -> Value {
    json!([
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "list", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    ])
}

/// The kubeconfig of a user, as the hub reads it.
pub fn config(who: &Identity) -> Result<RemoteConfig> {
    read(&who.kubeconfig()?)
}

fn read(path: &Path) -> Result<RemoteConfig> {
    Ok(kubeconfig::decode(&std::fs::read(path)?)?)
}

/// The same through a way that can be broken.
pub fn through(forward: &Forward, who: &Identity) -> Result<RemoteConfig> {
    let mut config = config(who)?;
    config.tls_server_name = Some(config.host.clone());
    config.host = ApiServerHost::Address(forward.address.ip());
    config.port = forward.address.port();
    Ok(config)
}

/// The user name of the client's requests, as the API server sees it.
pub async fn who(seat: &SiteClient) -> Result<String, CallError> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .expect("a request");
    let answer: Value =
        serde_json::from_slice(&seat.send(request, ResponseLimit::Object).await?).expect("an answer");
    Ok(answer["status"]["userInfo"]["username"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// A call that takes this long: the API server answers at once, and ends the answer then.
pub async fn slow_call(seat: &SiteClient, namespace: &str, seconds: u32) -> Result<(), CallError> {
    let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs?watch=true&timeoutSeconds={seconds}");
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    seat.send(request, ResponseLimit::Page).await.map(|_| ())
}
