//! The kinds of the platform's objects: what the catalog controller does for each of them, and where one differs from another.
//!
//! CONTRIBUTING.md has the recipe for a new kind: [`queue_policy`] is the smallest, [`registry`] has a status.

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::object::HasSpec;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::api::conditions::{ConditionType, DesiredCondition};
use crate::api::{AllowedNamespace, ClusterRegistry, QueuePolicy, RenderCluster, RendererClass};
use crate::base::metrics::Metrics;
use crate::kubernetes::watch::endless;

use super::CatalogController;
use super::kind_store::{KindStore, StoredObject};

mod class;
mod cluster;
mod queue_policy;
mod registry;

/// A kind of object by which the platform operator configures the hub.
pub(super) trait PlatformKind:
    Sized + Resource<DynamicType = ()> + HasSpec<Spec: DeserializeOwned + Send + Sync> + 'static
{
    /// The plural, by which its watch is counted.
    const PLURAL: &'static str;
    /// The status subresource, by which writes to it are counted; `None` where the hub writes no status.
    const STATUS: Option<&'static str>;

    /// The objects of this kind.
    fn store(controller: &CatalogController) -> &KindStore<Self>;

    /// The objects of this kind.
    fn store_mut(controller: &mut CatalogController) -> &mut KindStore<Self>;

    /// The namespaces that a spec lists.
    fn allowed(_: &Self::Spec) -> &[AllowedNamespace] {
        &[]
    }

    /// Starts what a new spec needs; returns whether the catalog changes already.
    fn spec_changed(_: &mut CatalogController, _name: &str) -> bool {
        true
    }

    /// Forgets what the controller knows of an object that is gone.
    fn removed(_: &mut CatalogController, _name: &str) {}

    /// The conditions of an object; `None` where the hub writes none, or cannot judge the object yet.
    fn conditions(_: &CatalogController, _name: &str, _: &StoredObject<Self>) -> Option<KindConditions> {
        None
    }
}

/// The conditions that an object should have.
pub(super) struct KindConditions {
    pub wanted: Vec<DesiredCondition>,
    /// Conditions that it must not have.
    pub absent: &'static [ConditionType],
}

/// How the controller watches a kind.
pub(super) struct KindWatch {
    pub plural: &'static str,
    pub open: fn(&Client, &Metrics) -> BoxStream<'static, Event<DynamicObject>>,
    pub handle: ObjectHandler,
}

/// Handles an event of one kind.
pub(super) type ObjectHandler = fn(&mut CatalogController, Event<DynamicObject>);

impl KindWatch {
    const fn of<K: PlatformKind>() -> Self {
        Self {
            plural: K::PLURAL,
            open: |client, metrics| dynamic::<K>(client, metrics, K::PLURAL),
            handle: CatalogController::handle_object_event::<K>,
        }
    }
}

/// The watches of all kinds.
pub(super) const WATCHES: [KindWatch; 4] = [
    KindWatch::of::<ClusterRegistry>(),
    KindWatch::of::<RendererClass>(),
    KindWatch::of::<RenderCluster>(),
    KindWatch::of::<QueuePolicy>(),
];

/// Watches a kind without its Rust type, because one object that the type cannot decode would stop the watch of all others.
pub(in crate::controllers) fn dynamic<K: Resource<DynamicType = ()>>(
    client: &Client,
    metrics: &Metrics,
    name: &'static str,
) -> BoxStream<'static, Event<DynamicObject>> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    endless(api, Config::default(), metrics.clone(), name).boxed()
}
