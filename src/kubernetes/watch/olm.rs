//! The watches of what decides about pull Secrets of operators: OLM's kinds, `ServiceAccounts`, and Secrets by metadata.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Client;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;

use crate::api::labels::{COPIED_FOR, COPIED_FOR_OLM};
use crate::api::olm::{COPIED_FROM, OLM_GROUP, OLM_VERSION};
use crate::base::metrics::Metrics;
use crate::kubernetes::object::LabelledObject;

use super::lean::{LeanWatch, LeanWatchEnd};

/// What the watches of a namespace that copies may go to show.
#[derive(Debug)]
pub enum DestinationEvent {
    /// A `Subscription`.
    Subscription(Event<LabelledObject>),
    /// A `ClusterServiceVersion` that is no copy of one of another namespace.
    Csv(Event<LabelledObject>),
    /// A `ServiceAccount`.
    Account(Event<ServiceAccount>),
    /// A Secret with the label of a copy.
    Copy(Event<PartialObjectMeta<Secret>>),
    /// The API server refuses one of the watches.
    Refused,
}

/// What the watches of a namespace of catalogs show.
#[derive(Debug)]
pub enum CatalogEvent {
    /// A `CatalogSource`.
    Catalog(Event<LabelledObject>),
    /// A Secret.
    Source(Event<PartialObjectMeta<Secret>>),
    /// The API server refuses one of the watches.
    Refused,
}

/// Watches of a namespace.
#[derive(Clone, Copy)]
pub struct OlmWatchScope<'a> {
    /// Sends the requests.
    pub client: &'a Client,
    /// Where broken watches are counted.
    pub metrics: &'a Metrics,
    /// The namespace.
    pub namespace: &'a str,
}

impl OlmWatchScope<'_> {
    /// Watches a namespace that copies may go to, until one watch is refused or the channel closes.
    pub async fn destination<E>(
        self,
        out: &mpsc::Sender<E>,
        event: impl Fn(DestinationEvent) -> E + Sync,
    ) -> LeanWatchEnd {
        use DestinationEvent::{Account, Copy, Csv, Subscription};
        let subscriptions = self.of_olm("subscriptions", "");
        let csvs = self.of_olm(
            "clusterserviceversions",
            &format!("?labelSelector=%21{COPIED_FROM}"),
        );
        let accounts = self.of_core("serviceaccounts", "", false);
        let label = COPIED_FOR.replace('/', "%2F");
        let copies = self.of_core(
            "secrets",
            &format!("?labelSelector={label}%3D{COPIED_FOR_OLM}"),
            true,
        );
        tokio::select! {
            end = subscriptions.run(out, |seen| event(Subscription(seen))) => end,
            end = csvs.run(out, |seen| event(Csv(seen))) => end,
            end = accounts.run(out, |seen| event(Account(seen))) => end,
            end = copies.run(out, |seen| event(Copy(seen))) => end,
        }
    }

    /// Watches a namespace of catalogs in the same way.
    pub async fn catalogs<E>(
        self,
        out: &mpsc::Sender<E>,
        event: impl Fn(CatalogEvent) -> E + Sync,
    ) -> LeanWatchEnd {
        let catalogs = self.of_olm("catalogsources", "");
        let sources = self.of_core("secrets", "", true);
        tokio::select! {
            end = catalogs.run(out, |seen| event(CatalogEvent::Catalog(seen))) => end,
            end = sources.run(out, |seen| event(CatalogEvent::Source(seen))) => end,
        }
    }
}

impl<'a> OlmWatchScope<'a> {
    fn of_olm(self, resource: &'static str, query: &str) -> LeanWatch<'a> {
        let namespace = self.namespace;
        let path = format!("/apis/{OLM_GROUP}/{OLM_VERSION}/namespaces/{namespace}/{resource}{query}");
        self.watch(resource, path, false)
    }

    fn of_core(self, resource: &'static str, query: &str, metadata_only: bool) -> LeanWatch<'a> {
        let namespace = self.namespace;
        let path = format!("/api/v1/namespaces/{namespace}/{resource}{query}");
        self.watch(resource, path, metadata_only)
    }

    fn watch(self, name: &'static str, path: String, metadata_only: bool) -> LeanWatch<'a> {
        LeanWatch {
            client: self.client,
            metrics: self.metrics,
            name,
            path,
            metadata_only,
        }
    }
}
