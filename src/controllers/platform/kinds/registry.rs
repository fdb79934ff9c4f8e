//! Cluster registries, whose credential the hub judges.

use crate::api::{AllowedNamespace, ClusterRegistry, ClusterRegistrySpec};
use crate::plan::platform::registry::ready;
use crate::plan::platform::undecodable::undecodable;

use super::super::kind_store::{KindStore, ListsNamespaces, StoredObject};
use super::super::state::{CatalogController, KindConditions, KindStores, PlatformKind};

impl ListsNamespaces for ClusterRegistry {
    fn allowed(spec: &ClusterRegistrySpec) -> &[AllowedNamespace] {
        &spec.allowed_namespaces
    }
}

impl PlatformKind for ClusterRegistry {
    const PLURAL: &'static str = "clusterregistries";
    const STATUS: Option<&'static str> = Some("clusterregistries/status");

    fn store(stores: &KindStores) -> &KindStore<Self> {
        &stores.registries
    }

    fn store_mut(stores: &mut KindStores) -> &mut KindStore<Self> {
        &mut stores.registries
    }

    fn spec_changed(controller: &mut CatalogController, name: &str) -> bool {
        controller.credentials.remove(name);
        controller.unjudged_registries.insert(name.to_owned());
        // The registry as it was serves tasks until the credential of the new spec is judged.
        false
    }

    fn removed(controller: &mut CatalogController, name: &str) {
        controller.credentials.remove(name);
    }

    fn conditions(
        controller: &CatalogController,
        name: &str,
        registry: &StoredObject<Self>,
    ) -> Option<KindConditions> {
        let ready = match &registry.spec {
            Some(spec) => ready(spec, controller.credentials.get(name)?),
            None => undecodable(""),
        };
        Some(KindConditions {
            wanted: vec![ready],
            absent: Vec::new(),
        })
    }
}
