//! Render clusters, of which this controller writes only the record of namespaces; the cluster controller writes the rest.

use crate::api::{AllowedNamespace, RenderCluster, RenderClusterSpec};

use super::super::kind_store::{KindStore, ListsNamespaces};
use super::super::state::{KindStores, PlatformKind};

impl ListsNamespaces for RenderCluster {
    fn allowed(spec: &RenderClusterSpec) -> &[AllowedNamespace] {
        &spec.allowed_namespaces
    }
}

impl PlatformKind for RenderCluster {
    const PLURAL: &'static str = "renderclusters";
    const STATUS: Option<&'static str> = Some("renderclusters/status");

    fn store(stores: &KindStores) -> &KindStore<Self> {
        &stores.clusters
    }

    fn store_mut(stores: &mut KindStores) -> &mut KindStore<Self> {
        &mut stores.clusters
    }
}
