//! Render clusters, of which this controller writes only the record of namespaces; the cluster controller writes the rest.

use crate::api::{AllowedNamespace, RenderCluster, RenderClusterSpec};

use super::super::CatalogController;
use super::super::kind_store::KindStore;
use super::PlatformKind;

impl PlatformKind for RenderCluster {
    const PLURAL: &'static str = "renderclusters";
    const STATUS: Option<&'static str> = Some("renderclusters/status");

    fn store(controller: &CatalogController) -> &KindStore<Self> {
        &controller.clusters
    }

    fn store_mut(controller: &mut CatalogController) -> &mut KindStore<Self> {
        &mut controller.clusters
    }

    fn allowed(spec: &RenderClusterSpec) -> &[AllowedNamespace] {
        &spec.allowed_namespaces
    }
}
