//! The state of the catalog controller, and what a kind adds to it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use crate::api::conditions::{ConditionType, DesiredCondition};
use crate::api::{ClusterRegistry, QueuePolicy, RenderCluster, RendererClass, RendererClassSpec};
use crate::kubernetes::apply::HubClient;
use crate::plan::platform::catalog::Catalog;
use crate::plan::platform::namespaces::NamespaceUids;
use crate::plan::platform::registry::CredentialVerdict;
use crate::plan::pull_secrets::pull_failure::PullReport;

use super::class_images::ClassImages;
use super::dry_run::ClassDryRuns;
use super::kind_store::{KindStore, ListsNamespaces, StoredObject};
use super::namespace_store::{NamespaceStore, NamespaceWatchScope};

/// The catalog, published by the controller; `None` until every watch has listed once.
pub type PublishedCatalog = Option<Arc<Catalog>>;

/// A watch that must have listed before the controller judges or publishes anything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PlatformSource {
    /// Objects of the kind with this plural.
    Objects(&'static str),
    Secrets,
    PullSecrets,
    Namespaces(NamespaceWatchScope),
}

/// The loop's state.
pub struct CatalogController {
    pub(super) hub_client: HubClient,
    pub(super) out: watch::Sender<PublishedCatalog>,
    pub(super) fallback: RendererClassSpec,
    pub(super) stores: KindStores,
    pub(super) namespaces: NamespaceStore,
    /// The verdict on each registry's credential; kept until there is a newer one.
    pub(super) credentials: BTreeMap<String, CredentialVerdict>,
    /// Registries whose credential is to be judged.
    pub(super) unjudged_registries: BTreeSet<String>,
    /// Watches whose current list has not ended.
    pub(super) unlisted: HashSet<PlatformSource>,
    /// Whether the published catalog is out of date.
    pub(super) has_changed: bool,
    /// Whether a namespace that an object lists is gone.
    pub(super) has_withdrawn: bool,
    /// What is known of the images of classes.
    pub(super) images: ClassImages,
    /// The namespace of the pull Secrets that classes name.
    pub(super) pull_secret_namespace: Option<String>,
    /// What reconciles saw of images.
    pub(super) pull_reports: mpsc::Receiver<PullReport>,
    /// Whether the API server accepts the Jobs of each class.
    pub(super) dry_runs: ClassDryRuns,
    /// UIDs of all namespaces that this hub sees; `None` until all were listed once.
    pub(super) namespace_uids: watch::Sender<Option<NamespaceUids>>,
}

/// A kind of object by which the platform operator configures the hub.
pub(super) trait PlatformKind:
    ListsNamespaces<Spec: DeserializeOwned + Send + Sync> + Resource<DynamicType = ()> + 'static
{
    /// The plural, by which its watch is counted.
    const PLURAL: &'static str;
    /// The status subresource, by which writes to it are counted; `None` where the hub writes no status.
    const STATUS: Option<&'static str>;

    /// The objects of this kind.
    fn store(stores: &KindStores) -> &KindStore<Self>;

    /// The objects of this kind.
    fn store_mut(stores: &mut KindStores) -> &mut KindStore<Self>;

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
    pub absent: Vec<ConditionType>,
}

/// The objects of all kinds.
#[derive(Default)]
pub(super) struct KindStores {
    pub registries: KindStore<ClusterRegistry>,
    pub classes: KindStore<RendererClass>,
    pub clusters: KindStore<RenderCluster>,
    pub policies: KindStore<QueuePolicy>,
}
