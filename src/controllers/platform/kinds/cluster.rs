//! Render clusters, of which this controller writes only the record of namespaces; the cluster controller writes the rest.

use std::mem;

use futures::{StreamExt, stream};

use crate::api::{AllowedNamespace, RenderCluster, RenderClusterSpec};

use crate::kubernetes::watch::ClusterEvents;

use super::super::kind_store::{KindStore, ListsNamespaces};
use super::super::state::{KindStores, PlatformKind, PlatformWatchParts};

impl ListsNamespaces for RenderCluster {
    fn allowed(spec: &RenderClusterSpec) -> &[AllowedNamespace] {
        &spec.allowed_namespaces
    }
}

impl PlatformKind for RenderCluster {
    const PLURAL: &'static str = "renderclusters";
    const STATUS: Option<&'static str> = Some("renderclusters/status");

    /// The one watch that this controller shares with the cluster controller.
    fn watch(parts: &mut PlatformWatchParts) -> ClusterEvents {
        mem::replace(&mut parts.clusters, stream::empty().boxed())
    }

    fn store(stores: &KindStores) -> &KindStore<Self> {
        &stores.clusters
    }

    fn store_mut(stores: &mut KindStores) -> &mut KindStore<Self> {
        &mut stores.clusters
    }
}
