//! Keeps the catalog: registries with the verdict on their credential, renderer classes, clusters, and the namespaces that
//! all of them grant by name. Of a cluster only its record of namespaces is written here; how it stands is told by whoever
//! connects to it.
//!
//! Secrets are watched by metadata and read one at a time when one that a registry names changes; their bytes are
//! dropped with the verdict. Of namespaces only name and UID are kept.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::labels::TASK_UID;
use crate::api::{
    AllowedNamespace, ClusterRegistry, ClusterRegistrySpec, QueuePolicy, QueuePolicySpec, RenderCluster,
    RenderClusterSpec, RendererClass, RendererClassSpec,
};
use crate::base::metrics::Metrics;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::watch::endless;
use crate::plan::platform::catalog::Catalog;
use crate::plan::platform::namespaces::{NamespaceUids, named};
use crate::plan::platform::registry::CredentialAssessment;

mod dry_run;
mod lists;
mod namespace_recorder;
mod namespace_store;
mod reconcile;
mod store;

use dry_run::ClassDryRuns;
pub use dry_run::DryRunContext;
use namespace_store::{NamespaceStore, NamespaceWatchScope};
use store::{PlatformStore, StoreChange};

/// Pause before what a failed call left open is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The catalog as the controller sees it; `None` until everything was seen once.
pub type PublishedCatalog = Option<Arc<Catalog>>;

enum PlatformWatchEvent {
    Registry(Event<DynamicObject>),
    Class(Event<DynamicObject>),
    Cluster(Event<DynamicObject>),
    Policy(Event<DynamicObject>),
    Secret(Event<PartialObjectMeta<Secret>>),
    Namespace(NamespaceWatchScope, Event<PartialObjectMeta<Namespace>>),
}

/// Something that must be seen whole before anything is judged or published.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PlatformSource {
    Registries,
    Classes,
    Clusters,
    Policies,
    Secrets,
    Namespaces(NamespaceWatchScope),
}

/// The loop's state.
pub struct CatalogController {
    calls: HubClient,
    out: watch::Sender<PublishedCatalog>,
    fallback: RendererClassSpec,
    registries: PlatformStore<ClusterRegistrySpec>,
    classes: PlatformStore<RendererClassSpec>,
    clusters: PlatformStore<RenderClusterSpec>,
    policies: PlatformStore<QueuePolicySpec>,
    namespaces: NamespaceStore,
    /// The verdict on each registry's credential; kept until there is a newer one.
    credentials: BTreeMap<String, CredentialAssessment>,
    /// Registries whose verdict is open.
    open: BTreeSet<String>,
    /// Registries whose status may not say what is so.
    registries_to_tell: BTreeSet<String>,
    /// Classes whose status may not say what is so.
    classes_to_tell: BTreeSet<String>,
    /// Clusters whose record may lack a namespace, or hold one too many.
    clusters_to_record: BTreeSet<String>,
    /// What is being listed.
    unseen: HashSet<PlatformSource>,
    has_changed: bool,
    /// Whether a namespace went that some list names.
    has_withdrawn: bool,
    /// Which classes' Jobs the API server accepts.
    trials: ClassDryRuns,
    /// UIDs of all namespaces that this hub sees; `None` until all were seen once.
    sight: watch::Sender<Option<NamespaceUids>>,
}

impl CatalogController {
    /// A loop that publishes to `out`; tasks without a class get `fallback`. With an empty list of watched namespaces the
    /// hub answers for all.
    #[must_use]
    pub fn new(
        calls: HubClient,
        fallback: RendererClassSpec,
        watched: &[String],
        out: watch::Sender<PublishedCatalog>,
    ) -> Self {
        let land = NamespaceStore::new(watched);
        let namespaces = land.parts().map(PlatformSource::Namespaces);
        let others = [
            PlatformSource::Registries,
            PlatformSource::Classes,
            PlatformSource::Clusters,
            PlatformSource::Policies,
            PlatformSource::Secrets,
        ];
        Self {
            calls,
            out,
            fallback,
            registries: PlatformStore::default(),
            classes: PlatformStore::default(),
            clusters: PlatformStore::default(),
            policies: PlatformStore::default(),
            credentials: BTreeMap::new(),
            open: BTreeSet::new(),
            registries_to_tell: BTreeSet::new(),
            classes_to_tell: BTreeSet::new(),
            clusters_to_record: BTreeSet::new(),
            unseen: namespaces.chain(others).collect(),
            namespaces: land,
            has_changed: false,
            has_withdrawn: false,
            trials: ClassDryRuns::default(),
            sight: watch::channel(None).0,
        }
    }

    /// The same, which shows all namespaces that it sees.
    #[must_use]
    pub fn showing(mut self, sight: watch::Sender<Option<NamespaceUids>>) -> Self {
        self.sight = sight;
        self
    }

    /// The same, which asks the API server whether it accepts the Jobs of classes.
    #[must_use]
    pub fn checking(mut self, check: DryRunContext) -> Self {
        self.trials.begin(check);
        self
    }

    /// Runs until `stop`.
    pub async fn run(mut self, client: Client, namespace: String, metrics: Metrics, stop: CancellationToken) {
        let mut changes = changes(&client, &namespace, &self.namespaces, &metrics);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(change) = changes.next() => self.take_in(change),
                tried = self.trials.next(&self.classes, &self.calls) => self.take_trial(tried),
                () = tokio::time::sleep(RETRY), if self.has_work() => {}
            }
            if self.unseen.is_empty() {
                self.catch_up().await;
            }
        }
    }

    fn take_in(&mut self, change: PlatformWatchEvent) {
        match change {
            PlatformWatchEvent::Registry(event) => {
                let turn = self.registries.take(event);
                self.turn_registries(turn);
            }
            PlatformWatchEvent::Class(event) => {
                let turn = self.classes.take(event);
                self.turn_classes(turn);
            }
            PlatformWatchEvent::Cluster(event) => {
                let turn = self.clusters.take(event);
                self.turn_clusters(turn);
            }
            PlatformWatchEvent::Policy(event) => {
                let turn = self.policies.take(event);
                self.turn_policies(turn);
            }
            PlatformWatchEvent::Secret(
                Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret),
            ) => {
                self.reopen(secret.metadata.name.as_deref());
            }
            PlatformWatchEvent::Secret(Event::Init) => {}
            PlatformWatchEvent::Secret(Event::InitDone) => {
                self.unseen.remove(&PlatformSource::Secrets);
                self.open.extend(self.registries.names().cloned());
            }
            PlatformWatchEvent::Namespace(part, event) => self.take_in_namespace(part, event),
        }
    }

    fn take_in_namespace(&mut self, part: NamespaceWatchScope, event: Event<PartialObjectMeta<Namespace>>) {
        match event {
            Event::Init => {
                self.namespaces.begin(&part);
                self.unseen.insert(PlatformSource::Namespaces(part));
            }
            Event::InitDone => {
                let gone = self.namespaces.end(&part);
                self.unseen.remove(&PlatformSource::Namespaces(part));
                let is_listing = |source: &PlatformSource| matches!(source, PlatformSource::Namespaces(_));
                if self.sight.borrow().is_none() && !self.unseen.iter().any(is_listing) {
                    self.sight.send_replace(Some(self.namespaces.existing().clone()));
                }
                self.turn_namespaces(gone);
            }
            Event::Apply(namespace) | Event::InitApply(namespace) => {
                let moved = self.namespaces.put(&namespace.metadata);
                self.turn_namespaces(moved);
            }
            Event::Delete(namespace) => {
                let gone = self.namespaces.drop(&namespace.metadata);
                self.turn_namespaces(gone);
            }
        }
    }

    fn turn_registries(&mut self, turn: StoreChange) {
        match turn {
            StoreChange::Listing => _ = self.unseen.insert(PlatformSource::Registries),
            StoreChange::Listed => {
                let left = &self.registries;
                self.credentials.retain(|name, _| left.get(name).is_some());
                self.unseen.remove(&PlatformSource::Registries);
                self.has_changed = true;
            }
            StoreChange::NewSpec(name) => {
                self.credentials.remove(&name);
                self.open.insert(name);
            }
            StoreChange::NewRecord(name) => {
                self.registries_to_tell.insert(name);
                self.has_changed = true;
            }
            StoreChange::Gone(name) => {
                self.credentials.remove(&name);
                self.has_changed = true;
            }
            StoreChange::Nothing => {}
        }
    }

    fn turn_classes(&mut self, turn: StoreChange) {
        self.has_changed |= !matches!(turn, StoreChange::Listing | StoreChange::Nothing);
        match turn {
            StoreChange::Listing => _ = self.unseen.insert(PlatformSource::Classes),
            StoreChange::Listed => _ = self.unseen.remove(&PlatformSource::Classes),
            StoreChange::NewSpec(name) => {
                self.trials.put(&name);
                if self.classes.get(&name).is_some_and(|class| class.spec.is_none()) {
                    self.trials.forget(&name);
                    tracing::warn!(
                        class = name,
                        "this renderer class cannot be decoded; its tasks wait"
                    );
                }
                self.classes_to_tell.insert(name);
            }
            StoreChange::NewRecord(name) => _ = self.classes_to_tell.insert(name),
            StoreChange::Gone(name) => self.trials.forget(&name),
            StoreChange::Nothing => {}
        }
    }

    fn turn_clusters(&mut self, turn: StoreChange) {
        self.has_changed |= !matches!(turn, StoreChange::Listing | StoreChange::Nothing);
        match turn {
            StoreChange::Listing => _ = self.unseen.insert(PlatformSource::Clusters),
            StoreChange::Listed => _ = self.unseen.remove(&PlatformSource::Clusters),
            StoreChange::NewSpec(name) | StoreChange::NewRecord(name) => {
                _ = self.clusters_to_record.insert(name);
            }
            StoreChange::Gone(_) | StoreChange::Nothing => {}
        }
    }

    fn turn_policies(&mut self, turn: StoreChange) {
        self.has_changed |= !matches!(turn, StoreChange::Listing | StoreChange::Nothing);
        match turn {
            StoreChange::Listing => _ = self.unseen.insert(PlatformSource::Policies),
            StoreChange::Listed => _ = self.unseen.remove(&PlatformSource::Policies),
            StoreChange::NewSpec(name)
                if self
                    .policies
                    .get(&name)
                    .is_some_and(|policy| policy.spec.is_none()) =>
            {
                tracing::warn!(
                    policy = name,
                    "this queue policy cannot be decoded; it counts for nobody"
                );
            }
            StoreChange::NewSpec(_)
            | StoreChange::NewRecord(_)
            | StoreChange::Gone(_)
            | StoreChange::Nothing => {}
        }
    }

    /// Another namespace has this name now, or none has.
    fn turn_namespaces(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.show(&name);
            let lists_it = |allowed: &[AllowedNamespace]| named(allowed).any(|listed| *listed == name);
            let registries = self.registries.naming(|spec| lists_it(&spec.allowed_namespaces));
            let classes = self.classes.naming(|spec| lists_it(&spec.allowed_namespaces));
            let clusters = self.clusters.naming(|spec| lists_it(&spec.allowed_namespaces));
            let is_listed = !(registries.is_empty() && classes.is_empty() && clusters.is_empty());
            self.has_changed |= is_listed;
            self.has_withdrawn |= is_listed;
            self.registries_to_tell.extend(registries);
            self.classes_to_tell.extend(classes);
            self.clusters_to_record.extend(clusters);
        }
    }

    /// Shows which namespace has this name now, once all were seen.
    fn show(&self, name: &str) {
        let uid = self.namespaces.existing().get(name);
        self.sight.send_if_modified(|shown| {
            let Some(shown) = shown else { return false };
            match uid {
                Some(uid) => _ = shown.insert(name.to_owned(), uid.clone()),
                None => _ = shown.remove(name),
            }
            true
        });
    }

    /// Asks for a new verdict on the registries that name a Secret.
    fn reopen(&mut self, secret: Option<&str>) {
        let names_it = |spec: &ClusterRegistrySpec| {
            let named = spec.push_secret_ref.as_ref();
            secret.is_some() && named.map(|named| named.name.as_str()) == secret
        };
        self.open.extend(self.registries.naming(names_it));
    }
}

fn changes(
    client: &Client,
    rendering: &str,
    land: &NamespaceStore,
    metrics: &Metrics,
) -> BoxStream<'static, PlatformWatchEvent> {
    let registries =
        dynamic::<ClusterRegistry>(client, metrics, "clusterregistries").map(PlatformWatchEvent::Registry);
    let classes = dynamic::<RendererClass>(client, metrics, "rendererclasses").map(PlatformWatchEvent::Class);
    let clusters =
        dynamic::<RenderCluster>(client, metrics, "renderclusters").map(PlatformWatchEvent::Cluster);
    let policies = dynamic::<QueuePolicy>(client, metrics, "queuepolicies").map(PlatformWatchEvent::Policy);
    // Config Secrets of tasks are in the same namespace; they are not the platform's.
    let platform = Config::default().labels(&format!("!{TASK_UID}"));
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), rendering);
    let secrets = endless(secrets, platform, metrics.clone(), "secrets").map(PlatformWatchEvent::Secret);
    let namespaces = land.parts().map(|part| {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        let config = match &part {
            Some(name) => Config::default().fields(&format!("metadata.name={name}")),
            None => Config::default(),
        };
        let seen = endless(api, config, metrics.clone(), "namespaces");
        seen.map(move |event| PlatformWatchEvent::Namespace(part.clone(), event))
            .boxed()
    });
    let others = [
        registries.boxed(),
        classes.boxed(),
        clusters.boxed(),
        policies.boxed(),
        secrets.boxed(),
    ];
    stream::select_all(namespaces.chain(others)).boxed()
}

/// Watches a kind without its Rust type, so that an object the type cannot decode stops nobody else.
pub(super) fn dynamic<K: Resource<DynamicType = ()>>(
    client: &Client,
    metrics: &Metrics,
    name: &'static str,
) -> BoxStream<'static, Event<DynamicObject>> {
    let resource = kube::api::ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    endless(api, Config::default(), metrics.clone(), name).boxed()
}

#[cfg(test)]
mod tests;
