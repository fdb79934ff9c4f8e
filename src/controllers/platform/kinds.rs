//! The kinds of the platform's objects: for each, what differs from the others.
//!
//! CONTRIBUTING.md has the recipe for a new kind: [`queue_policy`] is the smallest, [`registry`] has a status.

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;

use crate::api::{ClusterRegistry, QueuePolicy, RenderCluster, RendererClass};
use crate::base::metrics::Metrics;
use crate::kubernetes::watch::dynamic;

use super::state::{CatalogController, KindStores, PlatformKind};

mod class;
mod cluster;
mod queue_policy;
mod registry;

/// What the controller does for one kind.
pub(super) struct KindOperations {
    pub plural: &'static str,
    pub watch: fn(&Client, &Metrics) -> BoxStream<'static, Event<DynamicObject>>,
    pub handle_event: EventHandler,
    /// Makes the objects due that list a namespace; returns whether there are any.
    pub mark_listing: fn(&mut KindStores, &str) -> bool,
    /// The namespaces that its objects list by name.
    pub allowed: fn(&KindStores) -> Box<dyn Iterator<Item = &String> + '_>,
    pub record: for<'c> fn(&'c mut CatalogController) -> BoxFuture<'c, ()>,
    pub write_statuses: for<'c> fn(&'c mut CatalogController) -> BoxFuture<'c, ()>,
    /// Whether every record and status was written.
    pub is_written: fn(&KindStores) -> bool,
}

/// Handles an event of one kind.
pub(super) type EventHandler = fn(&mut CatalogController, Event<DynamicObject>);

impl KindOperations {
    const fn of<K: PlatformKind>() -> Self {
        Self {
            plural: K::PLURAL,
            watch: |client, metrics| dynamic::<K>(client, metrics, K::PLURAL),
            handle_event: CatalogController::handle_object_event::<K>,
            mark_listing: |stores, namespace| K::store_mut(stores).mark_listing(namespace),
            allowed: |stores| Box::new(K::store(stores).allowed()),
            record: |controller| controller.record::<K>().boxed(),
            write_statuses: |controller| controller.write_statuses::<K>().boxed(),
            is_written: |stores| K::store(stores).is_written(),
        }
    }
}

/// All kinds.
pub(super) const KINDS: [KindOperations; 4] = [
    KindOperations::of::<ClusterRegistry>(),
    KindOperations::of::<RendererClass>(),
    KindOperations::of::<RenderCluster>(),
    KindOperations::of::<QueuePolicy>(),
];
