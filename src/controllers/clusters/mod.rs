//! Keeps connections to clusters: reads the kubeconfigs that lead there, and says of each cluster how it stands.
//!
//! Secrets of the platform's are watched by metadata and read one at a time when one that a `RenderCluster` names changes;
//! those of tenants are read as the tenant. Nothing that this loop does waits for one cluster, or for one Secret.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::api::RenderCluster;
use crate::api::labels::TASK_UID;
use crate::base::metrics::Metrics;
use crate::controllers::platform::{PublishedCatalog, dynamic};
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::tenant::TenantSessions;
use crate::kubernetes::watch::endless;
use crate::plan::queue::backoff::Backoff;
use crate::plan::queue::workqueue::WorkQueue;
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
mod secret_reads;
mod site_requests;
mod status;
mod store;

use connection_bindings::{BindingAction, ConnectionBindings, KubeconfigRef};
use kubeconfig_validator::KubeconfigValidator;
use kubeconfig_watcher::KubeconfigReport;
pub use limits::ClusterControllerLimits;
use read_results::{ClusterStatusWrite, SecretReadResult, SecretReadState};
use store::{ClusterChange, ClusterStore};

/// Jobs of this hub by the name of the `RenderCluster` they run on, published by the controller.
pub type ActiveJobs = watch::Receiver<Arc<BTreeMap<String, usize>>>;

/// Verdicts on tenants' kubeconfigs that may wait for the loop.
const BACKLOG: usize = 64;
/// Longest sleep of a loop that has nothing to do.
const FOREVER: Duration = Duration::from_secs(3600);

/// What the loop works with.
pub struct ClusterControllerParts {
    /// Client of the hub's own cluster.
    pub client: Client,
    /// Its calls there.
    pub calls: HubClient,
    /// Namespace of the Secrets that `RenderClusters` name.
    pub namespace: String,
    /// Who reads what tenants name.
    pub identities: Arc<TenantSessions>,
    /// All connections; the loop is the only one that makes and ends them.
    pub registry: ConnectionRegistry,
    /// What is counted.
    pub metrics: Metrics,
    /// Where people are told of clusters that are connected, lost or refused.
    pub events: EventRecorder,
    /// How long things take.
    pub limits: ClusterControllerLimits,
    /// What the platform offers, for the namespaces that a cluster refuses because they were recreated.
    pub catalog: watch::Receiver<PublishedCatalog>,
    /// Jobs by cluster.
    pub active: ActiveJobs,
    /// What the controller asks for.
    pub wants: mpsc::UnboundedReceiver<SiteRequest>,
    /// What became of connections.
    pub reports: mpsc::Receiver<ConnectionReport>,
}

enum ClusterWatchEvent {
    Cluster(Event<DynamicObject>),
    Secret(Event<PartialObjectMeta<Secret>>),
}

/// One that is followed for a tenant.
struct WatcherHandle {
    /// Ends its following.
    task: AbortHandle,
    /// Asks for its Secret to be read anew.
    again: Arc<Notify>,
    /// Since when no task is for it.
    idle: Option<Instant>,
}

/// The loop's state.
pub struct ClusterController {
    parts: ClusterControllerParts,
    judge: Arc<KubeconfigValidator>,
    store: ClusterStore,
    bindings: ConnectionBindings,
    /// What was last said of each connection.
    reports: HashMap<ConnectionKey, ConnectionReport>,
    /// How many requests each connection gets.
    paces: HashMap<ConnectionKey, RateLimit>,
    /// Sites that the controller wants.
    wanted: HashSet<Arc<Site>>,
    /// Secrets that are to be read.
    to_read: WorkQueue<String>,
    /// What is known of Secrets that were read.
    secrets: HashMap<String, SecretReadState>,
    retries: Backoff<String>,
    reading: JoinSet<SecretReadResult>,
    /// Clusters whose status may not say what is so.
    to_tell: WorkQueue<String>,
    /// When the status of each was last written.
    told_at: HashMap<String, Timestamp>,
    writing: JoinSet<ClusterStatusWrite>,
    places: ClusterQuota<Arc<TenantKubeconfig>>,
    follows: HashMap<Arc<TenantKubeconfig>, WatcherHandle>,
    following: JoinSet<()>,
    turns: HashMap<String, Arc<Semaphore>>,
    /// Turns of connections whose first attempt is under way.
    taken: HashMap<ConnectionKey, OwnedSemaphorePermit>,
    /// Tenants' kubeconfigs that no task is for, in the order in which they became so.
    idle: VecDeque<(Instant, Arc<TenantKubeconfig>)>,
    report_sender: mpsc::Sender<KubeconfigReport>,
    kubeconfig_reports: mpsc::Receiver<KubeconfigReport>,
    recreated: HashMap<String, Vec<String>>,
    active: Arc<BTreeMap<String, usize>>,
}

impl ClusterController {
    /// A loop that knows of no cluster yet.
    #[must_use]
    pub fn new(parts: ClusterControllerParts) -> Self {
        let (tell, told) = mpsc::channel(BACKLOG);
        let limits = parts.limits;
        Self {
            judge: Arc::new(KubeconfigValidator::new(
                kubeconfig_validator::decode,
                limits.budget,
            )),
            store: ClusterStore::default(),
            bindings: ConnectionBindings::default(),
            reports: HashMap::new(),
            paces: HashMap::new(),
            wanted: HashSet::new(),
            to_read: WorkQueue::default(),
            secrets: HashMap::new(),
            retries: Backoff::default(),
            reading: JoinSet::new(),
            to_tell: WorkQueue::default(),
            told_at: HashMap::new(),
            writing: JoinSet::new(),
            places: ClusterQuota::new(limits.own_each, limits.own_all),
            follows: HashMap::new(),
            following: JoinSet::new(),
            turns: HashMap::new(),
            taken: HashMap::new(),
            idle: VecDeque::new(),
            report_sender: tell,
            kubeconfig_reports: told,
            recreated: HashMap::new(),
            active: Arc::default(),
            parts,
        }
    }

    /// Runs until `stop`; what it started ends with it.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.changes();
        loop {
            let wake = self.next_wake().into();
            tokio::select! {
                () = stop.cancelled() => return,
                Some(change) = changes.next() => self.take_in(change),
                Some(want) = self.parts.wants.recv() => self.take_want(want),
                Some(report) = self.parts.reports.recv() => self.take_report(report),
                Some(told) = self.kubeconfig_reports.recv() => self.take_told(told),
                Some(Ok(read)) = self.reading.join_next() => self.take_read(read),
                Some(Ok(written)) = self.writing.join_next() => self.take_written(written),
                Some(_) = self.following.join_next() => {}
                Ok(()) = self.parts.catalog.changed() => self.take_catalog(),
                Ok(()) = self.parts.active.changed() => self.take_active(),
                () = tokio::time::sleep_until(wake) => {}
            }
            self.let_idle_go();
            self.take_turns();
            self.start_reads();
            self.start_writes();
        }
    }

    fn changes(&self) -> BoxStream<'static, ClusterWatchEvent> {
        let (client, metrics) = (&self.parts.client, &self.parts.metrics);
        let clusters =
            dynamic::<RenderCluster>(client, metrics, "renderclusters").map(ClusterWatchEvent::Cluster);
        // Config Secrets of tasks may be in the same namespace; they are not the platform's.
        let platform = Config::default().labels(&format!("!{TASK_UID}"));
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &self.parts.namespace);
        let secrets =
            endless(secrets, platform, metrics.clone(), "kubeconfigs").map(ClusterWatchEvent::Secret);
        stream::select(clusters, secrets).boxed()
    }

    fn next_wake(&mut self) -> Instant {
        let idle = self
            .idle
            .front()
            .map(|(since, _)| *since + self.parts.limits.idle);
        let read = self.to_read.next_wake();
        let tell = self.to_tell.next_wake();
        let wakes = [idle, read, tell, self.places.due(Instant::now())]
            .into_iter()
            .flatten();
        wakes.min().unwrap_or_else(|| Instant::now() + FOREVER)
    }

    fn take_in(&mut self, change: ClusterWatchEvent) {
        match change {
            ClusterWatchEvent::Cluster(event) => {
                for sight in self.store.take(event) {
                    match sight {
                        ClusterChange::Changed(name) => self.place(&name),
                        ClusterChange::Told(name) => self.heard(&name),
                    }
                }
            }
            ClusterWatchEvent::Secret(event) => self.take_secret(event),
        }
    }

    /// Lets a `RenderCluster` be reached as it says, or no more if it is gone.
    fn place(&mut self, name: &str) {
        let place = self
            .store
            .get(name)
            .and_then(|seen| seen.site_and_kubeconfig(name));
        let sites = self.bindings.sites_of(name);
        for site in sites {
            let is_meant = place.as_ref().is_some_and(|(meant, _)| *meant == site);
            if !is_meant {
                self.place_other(name, &site, place.as_ref().map(|(_, lead)| lead));
            }
        }
        if let Some((site, lead)) = place {
            if self.bindings.kubeconfig_of(&site) != Some(&lead) {
                self.seat(&site, &lead);
            }
            self.repace(&lead);
        }
        if self.store.get(name).is_none() {
            self.forget_name(name);
        }
        self.to_tell.add(&name.to_owned());
    }

    /// Decides about a site that the `RenderCluster` does not mean any more: tasks that run there are seen to their end, where
    /// the hub does not keep away from the cluster.
    fn place_other(&mut self, name: &str, site: &Arc<Site>, lead: Option<&KubeconfigRef>) {
        let is_wanted = self.wanted.contains(site);
        let was_away = self.bindings.kubeconfig_of(site) == Some(&KubeconfigRef::Away);
        let is_gone = self.store.get(name).is_none();
        match lead {
            Some(lead) if is_wanted && (was_away || *lead == KubeconfigRef::Away) => self.seat(site, lead),
            None if is_wanted && was_away && is_gone => {
                let acts = self.bindings.unbind(site);
                self.act(acts);
                self.no_cluster(site);
            }
            Some(_) | None if is_wanted => {}
            Some(_) | None => {
                let acts = self.bindings.unbind(site);
                self.act(acts);
            }
        }
    }

    /// Lets a site be reached by a lead of the platform's.
    fn seat(&mut self, site: &Arc<Site>, lead: &KubeconfigRef) {
        let acts = self.bindings.bind(site, lead, Timestamp::now());
        self.act(acts);
        if let (KubeconfigRef::Platform { secret, .. }, None) = (lead, self.bindings.way_to(site)) {
            self.to_read.add(secret);
        }
    }

    /// Does what is to be done with connections.
    fn act(&mut self, acts: Vec<BindingAction>) {
        let registry = self.parts.registry.clone();
        for act in acts {
            match act {
                BindingAction::Bind(key, config) => {
                    let (label, pace) = (self.label(&key), self.rate_limit(&key));
                    registry.bind(key.clone(), &label, config, pace);
                    self.paces.insert(key, pace);
                }
                BindingAction::Open(key, site) => registry.open(&key, site),
                BindingAction::Close(site) => registry.close(&site),
                BindingAction::Refuse(site, state) => registry.refuse(site, state),
                BindingAction::Unbind(key, fault) => {
                    registry.unbind(&key, fault.reason());
                    self.reports.remove(&key);
                    self.paces.remove(&key);
                    self.taken.remove(&key);
                }
            }
        }
    }

    fn take_report(&mut self, report: ConnectionReport) {
        if !self.bindings.is_held(&report.key) {
            // Its connection ended meanwhile.
            return;
        }
        if report.health.fault != Some(ConnectionFault::Connecting) {
            // The first attempt is over.
            self.taken.remove(&report.key);
        }
        if report.health.reread {
            self.read_again(&report.key);
        }
        for name in self.bindings.names_at(&report.key) {
            self.count(&name, &report);
            self.to_tell.add(&name);
        }
        self.reports.insert(report.key.clone(), report);
    }

    /// Reads what leads to a connection anew, and binds it whatever it is.
    fn read_again(&mut self, key: &ConnectionKey) {
        let leads: Vec<KubeconfigRef> = self.bindings.kubeconfigs_of(key).cloned().collect();
        for lead in leads {
            match lead {
                KubeconfigRef::Platform { secret, .. } => {
                    self.secrets.entry(secret.clone()).or_default().is_told_anyway = true;
                    self.to_read.add(&secret);
                }
                KubeconfigRef::Own(own) => {
                    if let Some(follows) = self.follows.get(&own) {
                        follows.again.notify_one();
                    }
                }
                KubeconfigRef::Away => {}
            }
        }
    }
}
