//! The loop of the catalog controller: watches, and what follows from each event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::api::labels::TASK_UID;
use crate::api::{ClusterRegistrySpec, RendererClassSpec};
use crate::base::metrics::Metrics;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::watch::endless;
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::pull_secrets::pull_failure::PullReport;

use super::class_images::ClassImages;
use super::dry_run::{ClassDryRuns, DryRunContext};
use super::kind_store::StoreChange;
use super::kinds::{EventHandler, KINDS, KindOperations};
use super::namespace_store::{NamespaceStore, NamespaceWatchScope};
use super::state::{CatalogController, KindStores, PlatformKind, PlatformSource, PublishedCatalog};

/// Pause before failed calls are repeated.
const RETRY: Duration = Duration::from_secs(2);

/// What a watch shows.
pub(super) enum PlatformWatchEvent {
    Object(EventHandler, Event<DynamicObject>),
    Secret(Event<PartialObjectMeta<Secret>>),
    /// Of the namespace with the pull Secrets of classes.
    PullSecret(Event<PartialObjectMeta<Secret>>),
    Namespace(NamespaceWatchScope, Event<PartialObjectMeta<Namespace>>),
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
        let kinds = KINDS.iter().map(|kind| PlatformSource::Objects(kind.plural));
        Self {
            hub_client,
            out,
            fallback,
            stores: KindStores::default(),
            credentials: BTreeMap::new(),
            unjudged_registries: BTreeSet::new(),
            unlisted: unlisted.chain(kinds).collect(),
            namespaces,
            has_changed: false,
            has_withdrawn: false,
            images: ClassImages::default(),
            pull_secret_namespace: None,
            pull_reports: mpsc::channel(1).1,
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

    /// The same, which reads the pull Secrets of classes in `namespace`, and hears in `reports` what became of images.
    #[must_use]
    pub fn with_pull_secrets(
        mut self,
        namespace: Option<String>,
        reports: mpsc::Receiver<PullReport>,
    ) -> Self {
        self.unlisted
            .extend(namespace.as_ref().map(|_| PlatformSource::PullSecrets));
        (self.pull_secret_namespace, self.pull_reports) = (namespace, reports);
        self
    }

    /// Runs until `stop`.
    pub async fn run(mut self, client: Client, namespace: String, metrics: Metrics, stop: CancellationToken) {
        let sources = self.pull_secret_namespace.clone();
        let mut events = events(
            &client,
            (&namespace, sources.as_deref()),
            &self.namespaces,
            &metrics,
        );
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(event) = events.next() => self.handle_watch_event(event),
                Some(report) = self.pull_reports.recv() => self.handle_pull_report(&report),
                result = self.dry_runs.next(&self.stores.classes, &self.hub_client) => self.handle_dry_run(result),
                () = tokio::time::sleep(RETRY), if self.has_work() => {}
            }
            if self.unlisted.is_empty() {
                self.reconcile().await;
            }
        }
    }

    pub(super) fn handle_watch_event(&mut self, event: PlatformWatchEvent) {
        match event {
            PlatformWatchEvent::Object(handle, event) => handle(self, event),
            PlatformWatchEvent::Secret(event) => {
                let name = self.handle_secret_list(event, &PlatformSource::Secrets);
                self.handle_secret(name.as_deref());
                self.handle_pull_secret(name.as_deref());
            }
            PlatformWatchEvent::PullSecret(event) => {
                let name = self.handle_secret_list(event, &PlatformSource::PullSecrets);
                self.handle_pull_secret(name.as_deref());
            }
            PlatformWatchEvent::Namespace(scope, event) => self.handle_namespace_event(scope, event),
        }
    }

    pub(super) fn handle_object_event<K: PlatformKind>(&mut self, event: Event<DynamicObject>) {
        let source = PlatformSource::Objects(K::PLURAL);
        match K::store_mut(&mut self.stores).take(event) {
            StoreChange::Listing => _ = self.unlisted.insert(source),
            StoreChange::Listed(gone) => {
                for name in &gone {
                    K::removed(self, name);
                }
                self.unlisted.remove(&source);
                self.has_changed = true;
            }
            StoreChange::NewSpec(name) => {
                if K::store(&self.stores)
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
            let mark =
                |is_listed, kind: &KindOperations| (kind.mark_listing)(&mut self.stores, &name) || is_listed;
            let is_listed = KINDS.iter().fold(false, mark);
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

    /// Has everything read once a list of Secrets ended; the name of a Secret that changed.
    fn handle_secret_list(
        &mut self,
        event: Event<PartialObjectMeta<Secret>>,
        source: &PlatformSource,
    ) -> Option<String> {
        match event {
            Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret) => secret.metadata.name,
            Event::Init => None,
            Event::InitDone => {
                self.unlisted.remove(source);
                self.unjudged_registries
                    .extend(self.stores.registries.names().cloned());
                self.handle_all_pull_secrets();
                None
            }
        }
    }

    /// Has the credential judged of each registry that names a Secret.
    fn handle_secret(&mut self, secret: Option<&str>) {
        let names_it = |spec: &ClusterRegistrySpec| {
            let named = spec.push_secret_ref.as_ref();
            secret.is_some() && named.map(|named| named.name.as_str()) == secret
        };
        self.unjudged_registries
            .extend(self.stores.registries.matching(names_it));
    }
}

fn events(
    client: &Client,
    (rendering, pull_secrets): (&str, Option<&str>),
    namespaces: &NamespaceStore,
    metrics: &Metrics,
) -> BoxStream<'static, PlatformWatchEvent> {
    let objects = KINDS.iter().map(|kind| {
        let handle = kind.handle_event;
        let events = (kind.watch)(client, metrics);
        events
            .map(move |event| PlatformWatchEvent::Object(handle, event))
            .boxed()
    });
    // Config Secrets of tasks are in the same namespace; they are not the platform's.
    let platform = Config::default().labels(&format!("!{TASK_UID}"));
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), rendering);
    let secrets = endless(secrets, platform, metrics.clone(), "secrets").map(PlatformWatchEvent::Secret);
    let pull_secrets = pull_secrets.map(|namespace| {
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
        let events = endless(api, Config::default(), metrics.clone(), "secrets");
        events.map(PlatformWatchEvent::PullSecret).boxed()
    });
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
    let all = namespaces.chain(objects).chain([secrets.boxed()]);
    stream::select_all(all.chain(pull_secrets)).boxed()
}
