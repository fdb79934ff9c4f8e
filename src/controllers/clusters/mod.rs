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
use crate::controllers::platform::{Published, dynamic};
use crate::kubernetes::apply::Calls;
use crate::kubernetes::events::Events;
use crate::kubernetes::tenant::Identities;
use crate::kubernetes::watch::endless;
use crate::plan::queue::backoff::Backoff;
use crate::plan::queue::workqueue::WorkQueue;
use crate::plan::remote::health::Fault;
use crate::plan::remote::places::Places;
use crate::plan::remote::site::{OwnKubeconfig, Site};
use crate::remote::handle::Report;
use crate::remote::registry::{Pace, Registry};
use crate::remote::{ClusterKey, Want};

mod answers;
mod guests;
mod leads;
mod limits;
mod platform;
mod reads;
mod secrets;
mod status;
mod tenants;

use answers::{Known, Read, Written};
use leads::{Act, Lead, Leads};
pub use limits::Limits;
use platform::{Shelf, Sight};
use secrets::Judge;
use tenants::Told;

/// Jobs of this hub by the name of the `RenderCluster` they run on, published by the engine.
pub type ActiveJobs = watch::Receiver<Arc<BTreeMap<String, usize>>>;

/// Verdicts on tenants' kubeconfigs that may wait for the loop.
const BACKLOG: usize = 64;
/// Longest sleep of a loop that has nothing to do.
const FOREVER: Duration = Duration::from_secs(3600);

/// What the loop works with.
pub struct Parts {
    /// Client of the hub's own cluster.
    pub client: Client,
    /// Its calls there.
    pub calls: Calls,
    /// Namespace of the Secrets that `RenderClusters` name.
    pub namespace: String,
    /// Who reads what tenants name.
    pub identities: Arc<Identities>,
    /// All connections; the loop is the only one that makes and ends them.
    pub registry: Registry,
    /// What is counted.
    pub metrics: Metrics,
    /// Where people are told of clusters that are connected, lost or refused.
    pub events: Events,
    /// How long things take.
    pub limits: Limits,
    /// What the platform offers, for the namespaces that a cluster refuses because they were recreated.
    pub catalog: watch::Receiver<Published>,
    /// Jobs by cluster.
    pub active: ActiveJobs,
    /// What the engine asks for.
    pub wants: mpsc::UnboundedReceiver<Want>,
    /// What became of connections.
    pub reports: mpsc::Receiver<Report>,
}

enum Change {
    Cluster(Event<DynamicObject>),
    Secret(Event<PartialObjectMeta<Secret>>),
}

/// One that is followed for a tenant.
struct Follows {
    /// Ends its following.
    task: AbortHandle,
    /// Asks for its Secret to be read anew.
    again: Arc<Notify>,
    /// Since when no task is for it.
    idle: Option<Instant>,
}

/// The loop's state.
pub struct ClusterLoop {
    parts: Parts,
    judge: Arc<Judge>,
    shelf: Shelf,
    leads: Leads,
    /// What was last said of each connection.
    reports: HashMap<ClusterKey, Report>,
    /// How many requests each connection gets.
    paces: HashMap<ClusterKey, Pace>,
    /// Sites that the engine wants.
    wanted: HashSet<Arc<Site>>,
    /// Secrets that are to be read.
    to_read: WorkQueue<String>,
    /// What is known of Secrets that were read.
    secrets: HashMap<String, Known>,
    retries: Backoff<String>,
    reading: JoinSet<Read>,
    /// Clusters whose status may not say what is so.
    to_tell: WorkQueue<String>,
    /// When the status of each was last written.
    told_at: HashMap<String, Timestamp>,
    writing: JoinSet<Written>,
    places: Places<Arc<OwnKubeconfig>>,
    follows: HashMap<Arc<OwnKubeconfig>, Follows>,
    following: JoinSet<()>,
    turns: HashMap<String, Arc<Semaphore>>,
    /// Turns of connections whose first attempt is under way.
    taken: HashMap<ClusterKey, OwnedSemaphorePermit>,
    /// Tenants' kubeconfigs that no task is for, in the order in which they became so.
    idle: VecDeque<(Instant, Arc<OwnKubeconfig>)>,
    tell: mpsc::Sender<Told>,
    told: mpsc::Receiver<Told>,
    recreated: HashMap<String, Vec<String>>,
    active: Arc<BTreeMap<String, usize>>,
}

impl ClusterLoop {
    /// A loop that knows of no cluster yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let (tell, told) = mpsc::channel(BACKLOG);
        let limits = parts.limits;
        Self {
            judge: Arc::new(Judge::new(secrets::decode, limits.budget)),
            shelf: Shelf::default(),
            leads: Leads::default(),
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
            places: Places::new(limits.own_each, limits.own_all),
            follows: HashMap::new(),
            following: JoinSet::new(),
            turns: HashMap::new(),
            taken: HashMap::new(),
            idle: VecDeque::new(),
            tell,
            told,
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
                Some(told) = self.told.recv() => self.take_told(told),
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

    fn changes(&self) -> BoxStream<'static, Change> {
        let (client, metrics) = (&self.parts.client, &self.parts.metrics);
        let clusters = dynamic::<RenderCluster>(client, metrics, "renderclusters").map(Change::Cluster);
        // Config Secrets of tasks may be in the same namespace; they are not the platform's.
        let platform = Config::default().labels(&format!("!{TASK_UID}"));
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &self.parts.namespace);
        let secrets = endless(secrets, platform, metrics.clone(), "kubeconfigs").map(Change::Secret);
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

    fn take_in(&mut self, change: Change) {
        match change {
            Change::Cluster(event) => {
                for sight in self.shelf.take(event) {
                    match sight {
                        Sight::Changed(name) => self.place(&name),
                        Sight::Told(name) => self.heard(&name),
                    }
                }
            }
            Change::Secret(event) => self.take_secret(event),
        }
    }

    /// Lets a `RenderCluster` be reached as it says, or no more if it is gone.
    fn place(&mut self, name: &str) {
        let place = self.shelf.get(name).and_then(|seen| seen.place(name));
        let sites = self.leads.sites_of(name);
        for site in sites {
            let is_meant = place.as_ref().is_some_and(|(meant, _)| *meant == site);
            if !is_meant {
                self.place_other(name, &site, place.as_ref().map(|(_, lead)| lead));
            }
        }
        if let Some((site, lead)) = place {
            if self.leads.lead_of(&site) != Some(&lead) {
                self.seat(&site, &lead);
            }
            self.repace(&lead);
        }
        if self.shelf.get(name).is_none() {
            self.forget_name(name);
        }
        self.to_tell.add(&name.to_owned());
    }

    /// Decides about a site that the `RenderCluster` does not mean any more: tasks that run there are seen to their end, where
    /// the hub does not keep away from the cluster.
    fn place_other(&mut self, name: &str, site: &Arc<Site>, lead: Option<&Lead>) {
        let is_wanted = self.wanted.contains(site);
        let was_away = self.leads.lead_of(site) == Some(&Lead::Away);
        let is_gone = self.shelf.get(name).is_none();
        match lead {
            Some(lead) if is_wanted && (was_away || *lead == Lead::Away) => self.seat(site, lead),
            None if is_wanted && was_away && is_gone => {
                let acts = self.leads.unseat(site);
                self.act(acts);
                self.no_cluster(site);
            }
            Some(_) | None if is_wanted => {}
            Some(_) | None => {
                let acts = self.leads.unseat(site);
                self.act(acts);
            }
        }
    }

    /// Lets a site be reached by a lead of the platform's.
    fn seat(&mut self, site: &Arc<Site>, lead: &Lead) {
        let acts = self.leads.seat(site, lead, Timestamp::now());
        self.act(acts);
        if let (Lead::Platform { secret, .. }, None) = (lead, self.leads.way_to(site)) {
            self.to_read.add(secret);
        }
    }

    /// Does what is to be done with connections.
    fn act(&mut self, acts: Vec<Act>) {
        let registry = self.parts.registry.clone();
        for act in acts {
            match act {
                Act::Bind(key, config) => {
                    let (label, pace) = (self.label(&key), self.pace(&key));
                    registry.bind(key.clone(), &label, config, pace);
                    self.paces.insert(key, pace);
                }
                Act::Open(key, site) => registry.open(&key, site),
                Act::Close(site) => registry.close(&site),
                Act::Refuse(site, state) => registry.refuse(site, state),
                Act::Unbind(key, fault) => {
                    registry.unbind(&key, fault.reason());
                    self.reports.remove(&key);
                    self.paces.remove(&key);
                    self.taken.remove(&key);
                }
            }
        }
    }

    fn take_report(&mut self, report: Report) {
        if !self.leads.is_held(&report.key) {
            // Its connection ended meanwhile.
            return;
        }
        if report.health.fault != Some(Fault::Connecting) {
            // The first attempt is over.
            self.taken.remove(&report.key);
        }
        if report.health.reread {
            self.read_again(&report.key);
        }
        for name in self.leads.names_at(&report.key) {
            self.count(&name, &report);
            self.to_tell.add(&name);
        }
        self.reports.insert(report.key.clone(), report);
    }

    /// Reads what leads to a connection anew, and binds it whatever it is.
    fn read_again(&mut self, key: &ClusterKey) {
        let leads: Vec<Lead> = self.leads.leads_of(key).cloned().collect();
        for lead in leads {
            match lead {
                Lead::Platform { secret, .. } => {
                    self.secrets.entry(secret.clone()).or_default().is_told_anyway = true;
                    self.to_read.add(&secret);
                }
                Lead::Own(own) => {
                    if let Some(follows) = self.follows.get(&own) {
                        follows.again.notify_one();
                    }
                }
                Lead::Away => {}
            }
        }
    }
}
