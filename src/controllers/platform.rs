//! The catalog controller: publishes the registries, renderer classes, clusters and queue policies that tasks can use, and writes
//! their statuses. Of a cluster it writes only the record of namespaces; the cluster controller writes the rest.
//!
//! Secrets are watched by metadata and read one at a time when one that a registry names changes; their bytes are
//! dropped with the verdict. Of namespaces only name and UID are kept.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::labels::TASK_UID;
use crate::api::{
    ClusterRegistry, ClusterRegistrySpec, QueuePolicy, RenderCluster, RendererClass, RendererClassSpec,
};
use crate::base::metrics::Metrics;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::watch::endless;
use crate::plan::platform::catalog::Catalog;
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::platform::registry::CredentialAssessment;

mod dry_run;
mod kind_store;
mod kinds;
mod namespace_store;
mod reconcile;

use dry_run::ClassDryRuns;
pub use dry_run::DryRunContext;
use kind_store::{KindStore, StoreChange};
pub(super) use kinds::dynamic;
use kinds::{ObjectHandler, PlatformKind, WATCHES};
use namespace_store::{NamespaceStore, NamespaceWatchScope};

/// Pause before failed calls are repeated.
const RETRY: Duration = Duration::from_secs(2);

/// The catalog, published by the controller; `None` until every watch has listed once.
pub type PublishedCatalog = Option<Arc<Catalog>>;

enum PlatformWatchEvent {
    Object(ObjectHandler, Event<DynamicObject>),
    Secret(Event<PartialObjectMeta<Secret>>),
    Namespace(NamespaceWatchScope, Event<PartialObjectMeta<Namespace>>),
}

/// A watch that must have listed before the controller judges or publishes anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PlatformSource {
    /// Objects of the kind with this plural.
    Objects(&'static str),
    Secrets,
    Namespaces(NamespaceWatchScope),
}

/// The loop's state.
pub struct CatalogController {
    hub_client: HubClient,
    out: watch::Sender<PublishedCatalog>,
    fallback: RendererClassSpec,
    registries: KindStore<ClusterRegistry>,
    classes: KindStore<RendererClass>,
    clusters: KindStore<RenderCluster>,
    policies: KindStore<QueuePolicy>,
    namespaces: NamespaceStore,
    /// The verdict on each registry's credential; kept until there is a newer one.
    credentials: BTreeMap<String, CredentialAssessment>,
    /// Registries whose credential is to be judged.
    unjudged: BTreeSet<String>,
    /// Watches whose current list has not ended.
    unlisted: HashSet<PlatformSource>,
    /// Whether the published catalog is out of date.
    has_changed: bool,
    /// Whether a namespace that an object lists is gone.
    has_withdrawn: bool,
    /// Whether the API server accepts the Jobs of each class.
    dry_runs: ClassDryRuns,
    /// UIDs of all namespaces that this hub sees; `None` until all were listed once.
    namespace_uids: watch::Sender<Option<NamespaceUids>>,
}

impl CatalogController {
    /// A controller that publishes to `out`; tasks without a class get `fallback`. With an empty list of watched namespaces the
    /// hub serves all.
    #[must_use]
    pub fn new(
        hub_client: HubClient,
        fallback: RendererClassSpec,
        watched: &[String],
        out: watch::Sender<PublishedCatalog>,
    ) -> Self {
        let namespaces = NamespaceStore::new(watched);
        let unlisted = namespaces.scopes().map(PlatformSource::Namespaces);
        let unlisted = unlisted.chain([PlatformSource::Secrets]);
        let kinds = WATCHES.iter().map(|kind| PlatformSource::Objects(kind.plural));
        Self {
            hub_client,
            out,
            fallback,
            registries: KindStore::default(),
            classes: KindStore::default(),
            clusters: KindStore::default(),
            policies: KindStore::default(),
            credentials: BTreeMap::new(),
            unjudged: BTreeSet::new(),
            unlisted: unlisted.chain(kinds).collect(),
            namespaces,
            has_changed: false,
            has_withdrawn: false,
            dry_runs: ClassDryRuns::default(),
            namespace_uids: watch::channel(None).0,
        }
    }

    /// The same, which publishes the UIDs of all namespaces that it sees.
    #[must_use]
    pub fn with_namespace_uids(mut self, out: watch::Sender<Option<NamespaceUids>>) -> Self {
        self.namespace_uids = out;
        self
    }

    /// The same, which asks the API server whether it accepts the Jobs of classes.
    #[must_use]
    pub fn with_dry_runs(mut self, context: DryRunContext) -> Self {
        self.dry_runs.begin(context);
        self
    }

    /// Runs until `stop`.
    pub async fn run(mut self, client: Client, namespace: String, metrics: Metrics, stop: CancellationToken) {
        let mut events = events(&client, &namespace, &self.namespaces, &metrics);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = events.next() => self.handle_watch_event(event),
                result = self.dry_runs.next(&self.classes, &self.hub_client) => self.handle_dry_run(result),
                () = tokio::time::sleep(RETRY), if self.has_work() => {}
            }
            if self.unlisted.is_empty() {
                self.reconcile().await;
            }
        }
    }

    fn handle_watch_event(&mut self, event: PlatformWatchEvent) {
        match event {
            PlatformWatchEvent::Object(handle, event) => handle(self, event),
            PlatformWatchEvent::Secret(
                Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret),
            ) => self.handle_secret(secret.metadata.name.as_deref()),
            PlatformWatchEvent::Secret(Event::Init) => {}
            PlatformWatchEvent::Secret(Event::InitDone) => {
                self.unlisted.remove(&PlatformSource::Secrets);
                self.unjudged.extend(self.registries.names().cloned());
            }
            PlatformWatchEvent::Namespace(scope, event) => self.handle_namespace_event(scope, event),
        }
    }

    fn handle_object_event<K: PlatformKind>(&mut self, event: Event<DynamicObject>) {
        let source = PlatformSource::Objects(K::PLURAL);
        match K::store_mut(self).take(event) {
            StoreChange::Listing => _ = self.unlisted.insert(source),
            StoreChange::Listed(gone) => {
                gone.iter().for_each(|name| K::removed(self, name));
                self.unlisted.remove(&source);
                self.has_changed = true;
            }
            StoreChange::NewSpec(name) => {
                if K::store(self)
                    .get(&name)
                    .is_some_and(|object| object.spec.is_none())
                {
                    tracing::warn!(
                        kind = K::PLURAL,
                        object = name,
                        "the spec of this object cannot be decoded; the hub does without it until it is corrected"
                    );
                }
                self.has_changed |= K::spec_changed(self, &name);
            }
            StoreChange::NewRecord(_) => self.has_changed = true,
            StoreChange::Gone(name) => {
                K::removed(self, &name);
                self.has_changed = true;
            }
            StoreChange::Nothing => {}
        }
    }

    fn handle_namespace_event(
        &mut self,
        scope: NamespaceWatchScope,
        event: Event<PartialObjectMeta<Namespace>>,
    ) {
        match event {
            Event::Init => {
                self.namespaces.begin_list(&scope);
                self.unlisted.insert(PlatformSource::Namespaces(scope));
            }
            Event::InitDone => {
                let gone = self.namespaces.end_list(&scope);
                self.unlisted.remove(&PlatformSource::Namespaces(scope));
                let is_namespaces = |source: &PlatformSource| matches!(source, PlatformSource::Namespaces(_));
                if self.namespace_uids.borrow().is_none() && !self.unlisted.iter().any(is_namespaces) {
                    self.namespace_uids
                        .send_replace(Some(self.namespaces.existing().clone()));
                }
                self.handle_new_uids(gone);
            }
            Event::Apply(namespace) | Event::InitApply(namespace) => {
                let changed = self.namespaces.put(&namespace.metadata);
                self.handle_new_uids(changed);
            }
            Event::Delete(namespace) => {
                let gone = self.namespaces.remove(&namespace.metadata);
                self.handle_new_uids(gone);
            }
        }
    }

    /// Handles names that another namespace has now, or none.
    fn handle_new_uids(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.publish_uid(&name);
            let mut is_listed = self.registries.mark_listing(&name);
            is_listed |= self.classes.mark_listing(&name);
            is_listed |= self.clusters.mark_listing(&name);
            self.has_changed |= is_listed;
            self.has_withdrawn |= is_listed;
        }
    }

    /// Publishes which namespace has this name now, once all were listed.
    fn publish_uid(&self, name: &str) {
        let uid = self.namespaces.existing().get(name);
        self.namespace_uids.send_if_modified(|published| {
            let Some(published) = published else { return false };
            match uid {
                Some(uid) => _ = published.insert(name.to_owned(), uid.clone()),
                None => _ = published.remove(name),
            }
            true
        });
    }

    /// Has the credential judged of each registry that names a Secret.
    fn handle_secret(&mut self, secret: Option<&str>) {
        let names_it = |spec: &ClusterRegistrySpec| {
            let named = spec.push_secret_ref.as_ref();
            secret.is_some() && named.map(|named| named.name.as_str()) == secret
        };
        self.unjudged.extend(self.registries.matching(names_it));
    }
}

fn events(
    client: &Client,
    rendering: &str,
    namespaces: &NamespaceStore,
    metrics: &Metrics,
) -> BoxStream<'static, PlatformWatchEvent> {
    let objects = WATCHES.iter().map(|kind| {
        let handle = kind.handle;
        let events = (kind.open)(client, metrics);
        events
            .map(move |event| PlatformWatchEvent::Object(handle, event))
            .boxed()
    });
    // Config Secrets of tasks are in the same namespace; they are not the platform's.
    let platform = Config::default().labels(&format!("!{TASK_UID}"));
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), rendering);
    let secrets = endless(secrets, platform, metrics.clone(), "secrets").map(PlatformWatchEvent::Secret);
    let namespaces = namespaces.scopes().map(|scope| {
        let api: Api<PartialObjectMeta<Namespace>> = Api::all(client.clone());
        let config = match &scope {
            Some(name) => Config::default().fields(&format!("metadata.name={name}")),
            None => Config::default(),
        };
        let events = endless(api, config, metrics.clone(), "namespaces");
        events
            .map(move |event| PlatformWatchEvent::Namespace(scope.clone(), event))
            .boxed()
    });
    stream::select_all(namespaces.chain(objects).chain([secrets.boxed()])).boxed()
}

#[cfg(test)]
mod tests;
