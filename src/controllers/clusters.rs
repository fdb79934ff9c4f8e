//! The cluster controller: reads kubeconfigs, keeps connections to clusters, and writes the status of each RenderCluster.
//!
//! Secrets of the platform are watched by metadata, and read when one changes that a `RenderCluster` names; Secrets of tenants
//! are read as the tenant. The loop never waits for a single cluster or Secret.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::JoinMap;

use crate::api::RenderCluster;
use crate::api::labels::TASK_UID;
use crate::base::metrics::Metrics;
use crate::controllers::platform::PublishedCatalog;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::tenant::TenantSessions;
use crate::kubernetes::watch::{dynamic, endless};
use crate::plan::queue::backoff::Backoff;
use crate::plan::queue::workqueue::WorkQueue;
use crate::plan::relist::ShownKeys;
use crate::plan::remote::cluster_quota::ClusterQuota;
use crate::plan::remote::health::ConnectionFault;
use crate::plan::remote::site::{Site, TenantKubeconfig};
use crate::remote::connection::ConnectionReport;
use crate::remote::connection_registry::{ConnectionRegistry, RateLimit};
use crate::remote::{ConnectionKey, SiteRequest};

mod connection_bindings;
mod kubeconfig_validator;
mod kubeconfig_watcher;
mod limits;
mod read_results;
mod requested_sites;
mod secret_reads;
mod site_requests;
mod status;
mod store;

use connection_bindings::{BindingAction, ConnectionBindings, KubeconfigRef};
use kubeconfig_validator::KubeconfigValidator;
use kubeconfig_watcher::KubeconfigReport;
pub use limits::ClusterControllerLimits;
use read_results::{ClusterStatusWrite, SecretReadResult, SecretReadState};
use requested_sites::RequestedSites;
use store::{ClusterChange, ClusterStore};

/// Jobs of this hub by the name of the `RenderCluster` they run on, published by the controller.
pub type ActiveJobs = watch::Receiver<Arc<BTreeMap<String, usize>>>;

/// Most reports on tenants' kubeconfigs that wait for the loop.
const BACKLOG: usize = 64;
/// Longest sleep of a loop that has nothing to do.
const FOREVER: Duration = Duration::from_secs(3600);

/// The clients, settings and channels of the controller.
pub struct ClusterControllerParts {
    /// Client of the hub's own cluster.
    pub client: Client,
    /// The hub's own calls to that cluster.
    pub hub_client: HubClient,
    /// Namespace of the Secrets that `RenderClusters` name.
    pub namespace: String,
    /// Sessions that read Secrets as tenants.
    pub sessions: Arc<TenantSessions>,
    /// All connections; only this loop makes and ends them.
    pub registry: ConnectionRegistry,
    /// The hub's metrics.
    pub metrics: Metrics,
    /// Recorder of the events of clusters that are connected, lost or refused.
    pub events: EventRecorder,
    /// Intervals, deadlines and bounds.
    pub limits: ClusterControllerLimits,
    /// The catalog, for the namespaces that a cluster refuses because they were recreated.
    pub catalog: watch::Receiver<PublishedCatalog>,
    /// Jobs by cluster.
    pub active: ActiveJobs,
    /// Requests of the task controller.
    pub site_requests: mpsc::UnboundedReceiver<SiteRequest>,
    /// Reports of connections.
    pub reports: mpsc::Receiver<ConnectionReport>,
}

/// The watcher of a tenant's kubeconfig.
struct WatcherHandle {
    /// Makes the watcher read its Secret again.
    reread: Arc<Notify>,
    /// Time since which no task uses the kubeconfig.
    idle: Option<Instant>,
}

/// The loop's state.
pub struct ClusterController {
    parts: ClusterControllerParts,
    validator: Arc<KubeconfigValidator>,
    store: ClusterStore,
    bindings: ConnectionBindings,
    /// The last report of each connection.
    reports: HashMap<ConnectionKey, ConnectionReport>,
    /// Rate limit of each connection.
    rate_limits: HashMap<ConnectionKey, RateLimit>,
    /// Sites that the task controller has requested.
    requested: RequestedSites,
    /// Secrets to read.
    read_queue: WorkQueue<String>,
    /// State of each Secret that is read.
    secrets: HashMap<String, SecretReadState>,
    shown_secrets: ShownKeys<(), String>,
    retries: Backoff<String>,
    reading: JoinMap<String, SecretReadResult>,
    /// Clusters whose status may be out of date.
    status_queue: WorkQueue<String>,
    /// When the status of each was last written.
    written_at: HashMap<String, Timestamp>,
    writing: JoinMap<String, ClusterStatusWrite>,
    quota: ClusterQuota<Arc<TenantKubeconfig>>,
    watchers: HashMap<Arc<TenantKubeconfig>, WatcherHandle>,
    watcher_tasks: JoinMap<Arc<TenantKubeconfig>, ()>,
    connect_permits: HashMap<String, Arc<Semaphore>>,
    /// Connect permits of connections whose first attempt is in flight.
    held_permits: HashMap<ConnectionKey, OwnedSemaphorePermit>,
    /// Tenants' kubeconfigs that no task uses, the longest unused first.
    idle: VecDeque<(Instant, Arc<TenantKubeconfig>)>,
    report_sender: mpsc::Sender<KubeconfigReport>,
    kubeconfig_reports: mpsc::Receiver<KubeconfigReport>,
    recreated: HashMap<String, Vec<String>>,
    active: Arc<BTreeMap<String, usize>>,
}

impl ClusterController {
    /// A controller that knows of no cluster yet.
    #[must_use]
    pub fn new(parts: ClusterControllerParts) -> Self {
        let (report_sender, kubeconfig_reports) = mpsc::channel(BACKLOG);
        let limits = parts.limits;
        Self {
            validator: Arc::new(KubeconfigValidator::new(
                kubeconfig_validator::decode,
                limits.budget,
            )),
            store: ClusterStore::default(),
            bindings: ConnectionBindings::default(),
            reports: HashMap::new(),
            rate_limits: HashMap::new(),
            requested: RequestedSites::default(),
            read_queue: WorkQueue::default(),
            secrets: HashMap::new(),
            shown_secrets: ShownKeys::default(),
            retries: Backoff::default(),
            reading: JoinMap::new(),
            status_queue: WorkQueue::default(),
            written_at: HashMap::new(),
            writing: JoinMap::new(),
            quota: ClusterQuota::new(limits.own_each, limits.own_all),
            watchers: HashMap::new(),
            watcher_tasks: JoinMap::new(),
            connect_permits: HashMap::new(),
            held_permits: HashMap::new(),
            idle: VecDeque::new(),
            report_sender,
            kubeconfig_reports,
            recreated: HashMap::new(),
            active: Arc::default(),
            parts,
        }
    }

    /// Runs until `stop`; its tasks end with it.
    pub async fn run(mut self, stop: CancellationToken) {
        let (client, metrics) = (&self.parts.client, &self.parts.metrics);
        // Not the catalog controller's: that one waits for its own writes, and a cluster that is disconnected is cut within seconds.
        let mut clusters = dynamic::<RenderCluster>(client, metrics, "renderclusters");
        let mut secrets = self.secret_events();
        loop {
            let wake = self.next_wake().into();
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = clusters.next() => self.handle_cluster_event(event),
                Some(event) = secrets.next() => self.handle_secret_event(event),
                Some(request) = self.parts.site_requests.recv() => self.handle_site_request(request),
                Some(report) = self.parts.reports.recv() => self.handle_connection_report(report),
                Some(report) = self.kubeconfig_reports.recv() => self.handle_kubeconfig_report(report),
                Some((secret, read)) = self.reading.join_next() => self.handle_read_result(&secret, read),
                Some((name, written)) = self.writing.join_next() => self.handle_write_result(name, written),
                Some(_) = self.watcher_tasks.join_next() => {}
                Ok(()) = self.parts.catalog.changed() => self.handle_catalog(),
                Ok(()) = self.parts.active.changed() => self.handle_active_jobs(),
                () = tokio::time::sleep_until(wake) => {}
            }
            self.remove_idle_kubeconfigs();
            self.hand_over_places();
            self.start_reads();
            self.start_writes();
        }
    }

    fn secret_events(&self) -> BoxStream<'static, Event<PartialObjectMeta<Secret>>> {
        // Config Secrets of tasks may be in the same namespace, and hold no kubeconfig of the platform.
        let platform = Config::default().labels(&format!("!{TASK_UID}"));
        let (client, metrics) = (self.parts.client.clone(), self.parts.metrics.clone());
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client, &self.parts.namespace);
        endless(secrets, platform, metrics, "kubeconfigs").boxed()
    }

    fn next_wake(&mut self) -> Instant {
        let idle = self
            .idle
            .front()
            .map(|(since, _)| *since + self.parts.limits.idle);
        let read = self.read_queue.next_wake();
        let write = self.status_queue.next_wake();
        let wakes = [idle, read, write, self.quota.due(Instant::now())]
            .into_iter()
            .flatten();
        wakes.min().unwrap_or_else(|| Instant::now() + FOREVER)
    }

    fn handle_cluster_event(&mut self, event: Event<DynamicObject>) {
        // A request that was sent before the event counts: a Job may run at the site.
        while let Ok(request) = self.parts.site_requests.try_recv() {
            self.handle_site_request(request);
        }
        for change in self.store.take(event) {
            match change {
                ClusterChange::Changed(name) => self.update_site(&name),
                ClusterChange::StatusWritten(name) => self.handle_written_status(&name),
            }
        }
    }

    /// Binds the site of a `RenderCluster` as its spec says, or unbinds it if the cluster is deleted.
    fn update_site(&mut self, name: &str) {
        let target = self.store.site_and_kubeconfig(name);
        let sites = self.bindings.sites_of(name);
        let before = sites.iter().filter_map(|site| self.bindings.kubeconfig_of(site));
        let before: Vec<KubeconfigRef> = before.cloned().collect();
        for site in sites {
            let is_meant = target.as_ref().is_some_and(|(meant, _)| *meant == site);
            if !is_meant {
                self.update_other_site(name, &site, target.as_ref().map(|(_, kubeconfig)| kubeconfig));
            }
        }
        if let Some((site, kubeconfig)) = target {
            if self.bindings.kubeconfig_of(&site) != Some(&kubeconfig) {
                self.bind_site(&site, &kubeconfig);
            }
            self.update_rate_limit(&kubeconfig);
        }
        // Other clusters that name the same kubeconfig may be free of this one's limit.
        for kubeconfig in &before {
            self.update_rate_limit(kubeconfig);
        }
        if self.store.get(name).is_none() {
            self.forget_name(name);
        }
        self.status_queue.add(&name.to_owned());
    }

    /// Decides about a site that the `RenderCluster` no longer names: it stays bound while tasks run there, unless the cluster is
    /// disconnected.
    fn update_other_site(&mut self, name: &str, site: &Arc<Site>, kubeconfig: Option<&KubeconfigRef>) {
        let is_wanted = self.requested.contains(site);
        let was_away = self.bindings.kubeconfig_of(site) == Some(&KubeconfigRef::Away);
        let is_gone = self.store.get(name).is_none();
        match kubeconfig {
            Some(kubeconfig) if is_wanted && (was_away || *kubeconfig == KubeconfigRef::Away) => {
                self.bind_site(site, kubeconfig);
            }
            None if is_wanted && was_away && is_gone => {
                let actions = self.bindings.unbind(site);
                self.apply_actions(actions);
                self.refuse_without_cluster(site);
            }
            Some(_) | None if is_wanted => {}
            Some(_) | None => {
                let actions = self.bindings.unbind(site);
                self.apply_actions(actions);
            }
        }
    }

    /// Binds a site to a kubeconfig of the platform.
    fn bind_site(&mut self, site: &Arc<Site>, kubeconfig: &KubeconfigRef) {
        let actions = self.bindings.bind(site, kubeconfig);
        self.apply_actions(actions);
        if let (KubeconfigRef::Platform { secret, .. }, None) =
            (kubeconfig, self.bindings.connection_of(site))
        {
            self.read_queue.add(secret);
        }
    }

    /// Applies actions to the connection registry.
    fn apply_actions(&mut self, actions: Vec<BindingAction>) {
        let registry = self.parts.registry.clone();
        for action in actions {
            match action {
                BindingAction::ApplyKubeconfig(key, config) => {
                    let (label, rate_limit) = (self.label(&key), self.rate_limit(&key));
                    registry.apply_kubeconfig(key.clone(), &label, config, rate_limit);
                    self.rate_limits.insert(key, rate_limit);
                }
                BindingAction::Open(key, site) => registry.open(&key, site),
                BindingAction::Close(site) => registry.close(&site),
                BindingAction::Refuse(site, state) => registry.refuse(site, state),
                BindingAction::EndConnection(key, fault) => {
                    registry.end_connection(&key, fault.reason());
                    self.reports.remove(&key);
                    self.rate_limits.remove(&key);
                    self.held_permits.remove(&key);
                }
            }
        }
    }

    fn handle_connection_report(&mut self, report: ConnectionReport) {
        if !self.bindings.is_held(&report.key) {
            // The connection ended meanwhile.
            return;
        }
        if report.health.fault != Some(ConnectionFault::Connecting) {
            // The first attempt is over.
            self.held_permits.remove(&report.key);
        }
        if report.health.wants_reread {
            self.reread(&report.key);
        }
        for name in self.bindings.names_at(&report.key) {
            self.record_probe(&name, &report);
            self.status_queue.add(&name);
        }
        self.reports.insert(report.key.clone(), report);
    }

    /// Reads the kubeconfigs of a connection again, and applies them, changed or not.
    fn reread(&mut self, key: &ConnectionKey) {
        let kubeconfigs: Vec<KubeconfigRef> = self.bindings.kubeconfigs_of(key).cloned().collect();
        for kubeconfig in kubeconfigs {
            match kubeconfig {
                KubeconfigRef::Platform { secret, .. } => {
                    self.secrets.entry(secret.clone()).or_default().must_report = true;
                    self.read_queue.add(&secret);
                }
                KubeconfigRef::Own(own) => {
                    if let Some(handle) = self.watchers.get(&own) {
                        handle.reread.notify_one();
                    }
                }
                KubeconfigRef::Away => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "clusters/tests.rs"]
mod tests;
