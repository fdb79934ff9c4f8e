//! The watches of what decides about pull Secrets of operators: OLM's kinds, `ServiceAccounts`, and Secrets by metadata.

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};

use crate::api::labels::{COPIED_FOR, COPIED_FOR_OLM};
use crate::api::olm::{COPIED_FROM, olm_resource};
use crate::base::metrics::Metrics;
use crate::kubernetes::object::LabelledObject;

use super::pipeline::{PipelineWatch, with_refusals};
use super::tenant_objects::of_tenants;

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

/// Watches a namespace that copies may go to.
#[must_use]
pub fn destination(
    client: &Client,
    namespace: &str,
    metrics: &Metrics,
) -> BoxStream<'static, DestinationEvent> {
    use DestinationEvent::{Account, Copy, Csv, Refused, Subscription};
    let of_olm =
        |resource: &ApiResource| Api::<LabelledObject>::namespaced_with(client.clone(), namespace, resource);
    let subscriptions = of_olm(&olm_resource("Subscription", "subscriptions"));
    let subscriptions = with_refusals(subscriptions, of_tenants(), metrics, "subscriptions");
    let csvs = of_olm(&olm_resource("ClusterServiceVersion", "clusterserviceversions"));
    let own = of_tenants().labels(&format!("!{COPIED_FROM}"));
    let csvs = with_refusals(csvs, own, metrics, "clusterserviceversions");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let accounts = with_refusals(accounts, of_tenants(), metrics, "serviceaccounts");
    let copies: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
    let labelled = Config::default().labels(&format!("{COPIED_FOR}={COPIED_FOR_OLM}"));
    let copies = with_refusals(copies, labelled, metrics, "secrets");
    let all = [
        subscriptions
            .map(|seen| said(seen, Subscription, Refused))
            .boxed(),
        csvs.map(|seen| said(seen, Csv, Refused)).boxed(),
        accounts.map(|seen| said(seen, Account, Refused)).boxed(),
        copies.map(|seen| said(seen, Copy, Refused)).boxed(),
    ];
    select_all(all).boxed()
}

/// Watches a namespace of catalogs.
#[must_use]
pub fn catalogs(client: &Client, namespace: &str, metrics: &Metrics) -> BoxStream<'static, CatalogEvent> {
    let resource = olm_resource("CatalogSource", "catalogsources");
    let catalogs: Api<LabelledObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let catalogs = with_refusals(catalogs, of_tenants(), metrics, "catalogsources");
    let sources: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
    let sources = with_refusals(sources, Config::default(), metrics, "secrets");
    let all = [
        catalogs
            .map(|seen| said(seen, CatalogEvent::Catalog, CatalogEvent::Refused))
            .boxed(),
        sources
            .map(|seen| said(seen, CatalogEvent::Source, CatalogEvent::Refused))
            .boxed(),
    ];
    select_all(all).boxed()
}

fn said<K, E>(seen: PipelineWatch<K>, event: impl FnOnce(Event<K>) -> E, refused: E) -> E {
    match seen {
        PipelineWatch::Event(seen) => event(seen),
        PipelineWatch::Refused => refused,
    }
}
